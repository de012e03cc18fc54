"""Functions of the authorizer: `authorizer.group('apps').resource('deployments').check('list').allowed()`.

The values are made by the engine, which knows who may do what: each has a method of the same name as the
function. Rules of custom resources have no authorizer, but their checker knows the functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kapsa.schemas.cel.library.signatures import Functions, method

__all__ = ["FUNCTIONS"]

_PREFIX = "kubernetes.authorization."
_AUTHORIZER, _PATH, _GROUP, _RESOURCE, _DECISION = (
    f"{_PREFIX}{name}" for name in ("Authorizer", "PathCheck", "GroupCheck", "ResourceCheck", "Decision")
)


def _delegate(name: str) -> Callable[..., Any]:
    return lambda receiver, *args: getattr(receiver, name)(*args)


def _of_resource(name: str, id_: str = "") -> list[Any]:
    params = f"{_RESOURCE}; string"
    return [method(id_ or f"resourcecheck_{name}", params, _RESOURCE, _delegate(name))]


FUNCTIONS: Functions = {
    "path": [method("authorizer_path", f"{_AUTHORIZER}; string", _PATH, _delegate("path"))],
    "group": [method("authorizer_group", f"{_AUTHORIZER}; string", _GROUP, _delegate("group"))],
    "serviceAccount": [
        method(
            "authorizer_serviceaccount",
            f"{_AUTHORIZER}; string; string",
            _AUTHORIZER,
            _delegate("service_account"),
        )
    ],
    "resource": [method("groupcheck_resource", f"{_GROUP}; string", _RESOURCE, _delegate("resource"))],
    "subresource": _of_resource("subresource"),
    "namespace": _of_resource("namespace"),
    "name": _of_resource("name"),
    "fieldSelector": _of_resource("field_selector", "authorizer_fieldselector"),
    "labelSelector": _of_resource("label_selector", "authorizer_labelselector"),
    "check": [
        method("pathcheck_check", f"{_PATH}; string", _DECISION, _delegate("check")),
        method("resourcecheck_check", f"{_RESOURCE}; string", _DECISION, _delegate("check")),
    ],
    "errored": [method("decision_errored", _DECISION, "bool", _delegate("errored"))],
    "error": [method("decision_error", _DECISION, "string", _delegate("error"))],
    "allowed": [method("decision_allowed", _DECISION, "bool", _delegate("allowed"))],
    "reason": [method("decision_reason", _DECISION, "string", _delegate("reason"))],
}
