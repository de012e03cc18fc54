"""Kubeconfigs for tests."""

import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from kapsa.runtime.webhooks.certificates import issue_certificate, make_authority

NOW = datetime.now(UTC)
AUTHORITY = make_authority("test", now=NOW, lifetime=timedelta(days=1))
PAIR = issue_certificate(AUTHORITY, ["me"], now=NOW, lifetime=timedelta(days=1), usage="client")


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def config(
    *, cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None, namespace: str = ""
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "dev",
        "contexts": [{"name": "dev", "context": {"cluster": "c", "user": "u", "namespace": namespace}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://api:6443", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
    }


def oidc(issuer: str = "https://idp", **more: str) -> dict[str, Any]:
    return {
        "auth-provider": {"name": "oidc", "config": {"idp-issuer-url": issuer, "client-id": "kapsa", **more}}
    }


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path
