"""Health, version and the list of paths: the first requests of most clients."""

from __future__ import annotations

from typing import Any

import msgspec

from kapsa.devcluster.embedded.kinds.definitions import load
from kapsa.devcluster.embedded.kinds.registry import ResourceRegistry
from kapsa.devcluster.wire.exchange import Reply, Request

__all__ = ["health", "paths", "version"]

_CHECKS = ("ping", "log", "etcd", "informer-sync", "poststarthook/start-apiextensions-controllers")
_PROBES = ("healthz", "livez", "readyz")
_TEXT = {
    "content-type": "text/plain; charset=utf-8",
    "cache-control": "no-cache, private",
    "x-content-type-options": "nosniff",
}
_JSON = {"content-type": "application/json", "cache-control": "no-cache, private"}


def health(request: Request) -> Reply | None:
    """Serve `/healthz`, `/livez`, `/readyz` and their single checks; `?verbose` lists all checks."""
    probe, slash, check = request.path.removeprefix("/").partition("/")
    if probe not in _PROBES or (slash and check not in _CHECKS):
        return None
    if check or "verbose" not in request.query:
        return Reply(status=200, headers=dict(_TEXT), body=b"ok")
    lines = [*(f"[+]{name} ok" for name in _CHECKS), f"{probe} check passed", ""]
    return Reply(status=200, headers=dict(_TEXT), body="\n".join(lines).encode())


def version(request: Request) -> Reply | None:
    """Serve `/version`: the version of Kubernetes that this server behaves like."""
    if request.path.rstrip("/") != "/version":
        return None
    emulated = load().version
    document: dict[str, Any] = {
        "major": emulated.major,
        "minor": emulated.minor,
        "emulationMajor": emulated.major,
        "emulationMinor": emulated.minor,
        "minCompatibilityMajor": emulated.major,
        "minCompatibilityMinor": str(int(emulated.minor) - 1),
        "gitVersion": f"{emulated.git_version}+kapsa",
        "gitCommit": emulated.git_commit,
        "gitTreeState": "",
        "buildDate": emulated.build_date,
        "goVersion": "",
        "compiler": "",
        "platform": "python",
    }
    return Reply(
        status=200, headers=dict(_JSON), body=msgspec.json.format(msgspec.json.encode(document), indent=2)
    )


def paths(request: Request, registry: ResourceRegistry) -> Reply | None:
    """Serve `/`: the list of all paths."""
    if request.path != "/":
        return None
    served = ["/api", "/apis", "/metrics", "/openapi/v2", "/openapi/v3", "/version"]
    for group, versions in registry.groups().items():
        root = f"/apis/{group}" if group else "/api"
        served += [root, *(f"{root}/{name}" for name in versions)]
    for probe in _PROBES:
        served += [f"/{probe}", *(f"/{probe}/{check}" for check in _CHECKS)]
    body = msgspec.json.format(msgspec.json.encode({"paths": sorted(set(served))}), indent=2)
    return Reply(status=200, headers=dict(_JSON), body=body)
