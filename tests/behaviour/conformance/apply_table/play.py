"""Plays a case of the table against a server and keeps the comparable parts of the responses.

A case is a name, the alias of a kind and steps. A step has `verb` (apply, create, put, merge, json,
strategic, get), `as` (the field manager), `force`, `to` (a subresource), `version`, `query` and `name`; its
other keys are the body. Each step happens in a second of its own, so a time in managedFields identifies the
step that wrote it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

HERE = Path(__file__).parent
GROUP = "table.kapsa.dev"
EXPECTED = HERE / "expected.json"

Send = Callable[[str, str, dict[str, str], bytes], Awaitable[tuple[int, Any]]]
"""Sends a method, a path with its query, headers and a body; returns the status and the decoded response."""
Tick = Callable[[], Awaitable[None]]
"""Advances the server's clock to the next second."""

KINDS = {
    "widget": (f"{GROUP}/v1", "Widget", "widgets"),
    "gadget": (f"{GROUP}/v1", "Gadget", "gadgets"),
    "blob": (f"{GROUP}/v1", "Blob", "blobs"),
    "edition": (f"{GROUP}/v1", "Edition", "editions"),
    "configmap": ("v1", "ConfigMap", "configmaps"),
    "secret": ("v1", "Secret", "secrets"),
    "service": ("v1", "Service", "services"),
    "serviceaccount": ("v1", "ServiceAccount", "serviceaccounts"),
    "persistentvolumeclaim": ("v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
    "resourcequota": ("v1", "ResourceQuota", "resourcequotas"),
    "deployment": ("apps/v1", "Deployment", "deployments"),
    "statefulset": ("apps/v1", "StatefulSet", "statefulsets"),
    "cronjob": ("batch/v1", "CronJob", "cronjobs"),
    "controllerrevision": ("apps/v1", "ControllerRevision", "controllerrevisions"),
    "daemonset": ("apps/v1", "DaemonSet", "daemonsets"),
    "horizontalpodautoscaler": ("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers"),
    "job": ("batch/v1", "Job", "jobs"),
    "limitrange": ("v1", "LimitRange", "limitranges"),
    "endpointslice": ("discovery.k8s.io/v1", "EndpointSlice", "endpointslices"),
    "poddisruptionbudget": ("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    "role": ("rbac.authorization.k8s.io/v1", "Role", "roles"),
    "rolebinding": ("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings"),
    "lease": ("coordination.k8s.io/v1", "Lease", "leases"),
    "ingress": ("networking.k8s.io/v1", "Ingress", "ingresses"),
    "networkpolicy": ("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies"),
}
CONTENT_TYPES = {
    "apply": "application/apply-patch+yaml",
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
WORDS = frozenset({"verb", "as", "force", "to", "version", "query", "name", "ops"})


def cases() -> list[dict[str, Any]]:
    """Return all cases of the table, in the order of the files."""
    table: list[dict[str, Any]] = []
    for path in sorted(HERE.glob("*.yaml")):
        if path.name != "definitions.yaml":
            table += yaml.safe_load(path.read_text())
    return table


def expected() -> dict[str, Any]:
    """Return the recorded responses of the real server, by case."""
    recorded: dict[str, Any] = json.loads(EXPECTED.read_text())
    return recorded


def record(outcomes: dict[str, Any]) -> None:
    """Write the responses of the real server: one line per case, so that a diff shows which ones changed."""
    lines = [f"{json.dumps(name)}: {json.dumps(outcomes[name], sort_keys=True)}" for name in outcomes]
    EXPECTED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def definitions() -> list[dict[str, Any]]:
    """Return the CustomResourceDefinitions of the table."""
    return [_definition(short) for short in yaml.safe_load((HERE / "definitions.yaml").read_text())]


def _definition(short: dict[str, Any]) -> dict[str, Any]:
    versions = [
        {
            "name": name,
            "served": True,
            "storage": name == "v1",
            "schema": {"openAPIV3Schema": short["schema"]},
            "subresources": short.get("subresources", {}),
        }
        for name in short.get("versions", ["v1"])
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{short['plural']}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": short["plural"], "kind": short["kind"], "singular": short["kind"].lower()},
            "versions": versions,
        },
    }


async def play(case: dict[str, Any], namespace: str, send: Send, tick: Tick) -> list[Any]:
    """Send the case's steps and return the masked responses."""
    api_version, kind, resource = KINDS[case.get("kind", "widget")]
    masks = _Masks(namespace)
    for number, step in enumerate(case["steps"]):
        await tick()
        version = f"{GROUP}/{step['version']}" if "version" in step else api_version
        base = f"/api/{version}" if "/" not in version else f"/apis/{version}"
        name = step.get("name", "x")
        path = f"{base}/namespaces/{namespace}/{resource}"
        if step["verb"] != "create":
            path += f"/{name}"
        if "to" in step:
            path += f"/{step['to']}"
        body = {"apiVersion": version, "kind": kind, **_body(step, masks.revision)}
        body["metadata"] = {"name": name, **(body.get("metadata") or {})}
        method = {"create": "POST", "put": "PUT", "get": "GET"}.get(step["verb"], "PATCH")
        content = step.get("ops") or _payload(step, body, masks.revision)
        headers = {
            "Accept": "application/json",
            "User-Agent": "table/1 (test)",
            "Content-Type": CONTENT_TYPES.get(step["verb"], "application/json"),
        }
        raw = b"" if method == "GET" else json.dumps(content).encode()
        status, answer = await send(method, path + _query(step), headers, raw)
        masks.see(number, status, answer)
    return masks.outcomes


def _body(step: dict[str, Any], revision: str) -> dict[str, Any]:
    body = {key: value for key, value in step.items() if key not in WORDS}
    filled: dict[str, Any] = json.loads(json.dumps(body).replace("{rv}", revision))
    return filled


def _payload(step: dict[str, Any], body: dict[str, Any], revision: str) -> dict[str, Any]:
    """Return the body for a verb: a patch omits what it does not change, a put carries the live revision."""
    if step["verb"] in ("merge", "strategic"):
        return {key: value for key, value in body.items() if key in step}
    if step["verb"] == "put":
        body["metadata"].setdefault("resourceVersion", revision)
    # An explicit null at the top level, or as the name, means that the field is left out.
    body = {
        key: value for key, value in body.items() if value is not None or key not in ("apiVersion", "kind")
    }
    if body["metadata"].get("name", "") is None:
        del body["metadata"]["name"]
    return body


def _query(step: dict[str, Any]) -> str:
    parts = [step["query"]] if "query" in step else []
    if "as" in step:
        parts.append(f"fieldManager={quote(step['as'])}")
    if "force" in step:
        parts.append(f"force={str(step['force']).lower()}")
    return "?" + "&".join(parts) if parts else ""


class _Masks:
    """Responses without the values that differ in each run: namespaces, uids, revisions, times."""

    def __init__(self, namespace: str) -> None:
        self.outcomes: list[Any] = []
        self.revision = ""
        self._namespace = namespace
        self._times: dict[str, str] = {}

    def see(self, step: int, status: int, answer: Any) -> None:
        if status >= 400:
            self.outcomes.append({"status": status, "error": self._error(answer)})
            return
        metadata = answer["metadata"]
        revision = metadata.pop("resourceVersion", "")
        moved = revision != self.revision
        self.revision = revision
        for name in ("uid", "creationTimestamp", "selfLink"):
            metadata.pop(name, None)
        for entry in metadata.get("managedFields", ()):
            if "time" in entry:
                entry["time"] = self._times.setdefault(entry["time"], f"step {step + 1}")
        self.outcomes.append({"status": status, "moved": moved, "object": self._plain(answer)})

    def _error(self, answer: Any) -> Any:
        if not isinstance(answer, dict):
            return self._text(str(answer))
        error = {key: answer[key] for key in ("message", "reason", "details") if key in answer}
        causes = error.get("details", {}).get("causes")
        if causes:
            causes.sort(key=lambda cause: (cause.get("message", ""), cause.get("field", "")))
            if error.get("reason") == "Invalid" and len(causes) > 1:
                # Go visits maps in random order, which the message reflects; the sorted causes are the same.
                error["message"] = error["message"].partition(": [")[0]
        return self._plain(error)

    def _plain(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: self._plain(item)
                for key, item in value.items()
                if key not in ("clusterIP", "clusterIPs", "nodePort")
            }
        if isinstance(value, list):
            return [self._plain(item) for item in value]
        return self._text(value) if isinstance(value, str) else value

    def _text(self, value: str) -> str:
        return _UID.sub("<uid>", value.replace(self._namespace, "<ns>"))
