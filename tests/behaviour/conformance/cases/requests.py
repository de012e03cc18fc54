"""Builders for the requests and bodies that the cases consist of."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.behaviour.conformance.exchange import Call, Case, Watch

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

CONFIGMAPS = "/api/v1/namespaces/{ns}/configmaps"
SECRETS = "/api/v1/namespaces/{ns}/secrets"
PODS = "/api/v1/namespaces/{ns}/pods"
SERVICES = "/api/v1/namespaces/{ns}/services"
DEPLOYMENTS = "/apis/apps/v1/namespaces/{ns}/deployments"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases"
WIDGETS = "/apis/conformance.kapsa.dev/v1/namespaces/{ns}/widgets"
GADGETS = "/apis/conformance.kapsa.dev/v1/gadgets"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def case(name: str, *steps: Call | Watch) -> Case:
    return Case(name=name, steps=steps)


def get(path: str, query: str = "", **more: Any) -> Call:
    return Call(method="GET", path=path, query=query, **more)


def post(path: str, body: Any, query: str = "", **more: Any) -> Call:
    return Call(method="POST", path=path, query=query, body=body, **more)


def put(path: str, body: Any, query: str = "", **more: Any) -> Call:
    return Call(method="PUT", path=path, query=query, body=body, **more)


def delete(path: str, body: Any = None, query: str = "", **more: Any) -> Call:
    return Call(method="DELETE", path=path, query=query, body=body, **more)


def patch(path: str, body: Any, content_type: str, query: str = "", **more: Any) -> Call:
    return Call(method="PATCH", path=path, query=query, body=body, content_type=content_type, **more)


def json_patch(path: str, *operations: Any, query: str = "") -> Call:
    return patch(path, list(operations), JSON_PATCH, query)


def merge(path: str, body: Any, query: str = "") -> Call:
    return patch(path, body, MERGE_PATCH, query)


def strategic(path: str, body: Any, query: str = "") -> Call:
    return patch(path, body, STRATEGIC_PATCH, query)


def apply(path: str, body: Any, manager: str = "alpha", force: bool = False, query: str = "") -> Call:
    parameters = [f"fieldManager={manager}"] if manager else []
    parameters += ["force=true"] if force else []
    parameters += [query] if query else []
    return patch(path, body, APPLY_PATCH, "&".join(parameters))


def as_user(call: Call, user: str, *groups: str, uid: str = "", **extra: str) -> Call:
    """Return the call as the administrator sends it in the name of another user."""
    headers = {"Impersonate-User": user}
    if groups:
        headers["Impersonate-Group"] = "\n".join(groups)
    if uid:
        headers["Impersonate-Uid"] = uid
    headers |= {f"Impersonate-Extra-{key}": value for key, value in extra.items()}
    return msgspec.structs.replace(call, headers={**call.headers, **headers})


def named(spec: Any) -> dict[str, Any]:
    """Return an object of the path's kind."""
    return {"metadata": {"name": "one"}, "spec": spec}


def configmap(name: str = "one", data: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}
    if data is not None:
        body["data"] = data
    return body


def secret(name: str = "one", **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, **fields}


def pod(name: str = "one", **spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "example.com/app:1"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"automountServiceAccountToken": False, "containers": containers, **spec},
    }


def deployment(name: str = "one", containers: list[Any] | None = None, **spec: Any) -> dict[str, Any]:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": containers or [{"name": "main", "image": "example.com/app:1"}]},
            },
            **spec,
        },
    }


def service(name: str = "one", /, **spec: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}
    body["spec"].setdefault("ports", [{"port": 80}])
    return body


def widget(name: str = "one", spec: Any = None, **fields: Any) -> dict[str, Any]:
    body: dict[str, Any] = {
        "apiVersion": "conformance.kapsa.dev/v1",
        "kind": "Widget",
        "metadata": {"name": name},
        **fields,
    }
    if spec is not None:
        body["spec"] = spec
    return body
