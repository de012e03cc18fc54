"""Charts for tests: one like an operator's, with a CRD, a webhook and rights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kapsa.adapters.testing.chart_server import pack_chart

__all__ = ["crd", "operator_chart", "operator_files"]


def crd(
    plural: str = "widgets", group: str = "example.com", *, scope: str = "Namespaced", **spec: Any
) -> dict[str, Any]:
    """Return a CRD with one version."""
    kind = plural.removesuffix("s").capitalize()
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}},
    }
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [version],
            **spec,
        },
    }


def operator_files() -> dict[str, str | bytes]:
    """Return the files of a chart whose names follow the release."""
    name = "{{ .Release.Name }}-widget"
    return {
        "values.yaml": "replicas: 1\n",
        "crds/widgets.json": json.dumps(crd()),
        "templates/role.yaml": (
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\n"
            f"metadata: {{name: '{name}'}}\nrules: []\n"
        ),
        "templates/config.yaml": (
            "apiVersion: v1\nkind: ConfigMap\n"
            f"metadata: {{name: '{name}', namespace: '{{{{ .Release.Namespace }}}}'}}\n"
            "data: {replicas: {{ .Values.replicas | quote }}}\n"
        ),
    }


def operator_chart(
    version: str = "1.0.0", files: Mapping[str, str | bytes] | None = None, **metadata: Any
) -> bytes:
    """Return the archive of a chart `widget`, with more files."""
    return pack_chart("widget", version, {**operator_files(), **(files or {})}, **metadata)
