"""Release Secrets of helm: its own, and ones that somebody else wrote."""

from __future__ import annotations

import base64
import functools
import gzip
import json
from typing import Any

import pytest

from kapsa.adapters.errors import LimitExceeded, Refused
from kapsa.adapters.helm.release_secret import read_release

RELEASE = {
    "name": "web",
    "namespace": "elsewhere",
    "version": 3,
    "info": {
        "status": "deployed",
        "description": "Upgrade complete",
        "last_deployed": "2026-01-02T03:04:05Z",
    },
    "chart": {"metadata": {"name": "app", "version": "1.2.3", "appVersion": "9"}},
    "config": {"password": "hunter2-very-secret"},
    "manifest": "---\nkind: A\n",
}

packed = functools.partial(gzip.compress, mtime=0)
"""The same bytes at any time: they are in the names of tests."""


def secret(content: bytes) -> dict[str, Any]:
    release = base64.b64encode(base64.b64encode(content)).decode()
    return {
        "metadata": {"name": "sh.helm.release.v1.web.v3", "namespace": "shop", "labels": {"owner": "helm"}},
        "type": "helm.sh/release.v1",
        "data": {"release": release},
    }


@pytest.mark.parametrize("pack", [packed, bytes])
def test_a_release_is_read_with_the_namespace_of_its_secret(pack: Any) -> None:
    record = read_release(secret(pack(json.dumps(RELEASE).encode())))
    assert (record.namespace, record.name, record.revision, record.status) == ("shop", "web", 3, "deployed")
    assert (record.chart, record.chart_version, record.labels) == ("app", "1.2.3", {"owner": "helm"})
    assert "hunter2" not in repr(record)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"junk",
        packed(b"junk"),
        packed(b"[1]"),
        packed(b"[" * 100_000),
        b"\x1f\x8bjunk",
    ],
)
def test_something_else_in_the_secret_is_refused(content: bytes) -> None:
    with pytest.raises(Refused, match=r"shop/sh\.helm\.release"):
        read_release(secret(content))


def test_a_bomb_and_a_huge_secret_are_refused() -> None:
    with pytest.raises(LimitExceeded, match="unpacks to more than 24 MB"):
        read_release(secret(packed(b" " * (100 * 1024 * 1024))))
    with pytest.raises(LimitExceeded, match="larger than"):
        read_release(secret(b"x" * (4 * 1024 * 1024)))
    with pytest.raises(Refused):
        read_release({"metadata": {}, "data": {}})
