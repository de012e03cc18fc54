"""The nodes that a pod may run on: taints and tolerations, selectors and node affinity."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kapsa.devcluster.embedded.controllers.machinery.kinds import Object

HARD = ("NoSchedule", "NoExecute")


def tolerates(tolerations: Iterable[dict[str, Any]], taint: dict[str, Any]) -> bool:
    """Return whether any of the tolerations covers the taint."""
    return any(_covers(toleration, taint) for toleration in tolerations)


def _covers(toleration: dict[str, Any], taint: dict[str, Any]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Exists":
        return True
    if not toleration.get("key"):
        return False
    return (toleration.get("value") or "") == (taint.get("value") or "")


def untolerated(
    pod_spec: dict[str, Any], node: Object, effects: tuple[str, ...] = HARD
) -> dict[str, Any] | None:
    """Return the first taint that the pod does not tolerate, or None."""
    tolerations = pod_spec.get("tolerations") or ()
    for taint in node["spec"].get("taints") or ():
        if taint.get("effect") in effects and not tolerates(tolerations, taint):
            return dict(taint)
    return None


def selects(pod_spec: dict[str, Any], node: Object) -> bool:
    """Return whether nodeSelector and required node affinity allow the node."""
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(k) != v for k, v in (pod_spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (pod_spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return matches_terms(required, node)


def matches_terms(selector: dict[str, Any], node: Object) -> bool:
    """Return whether a node satisfies a NodeSelector."""
    labels = node["metadata"].get("labels") or {}
    fields = {"metadata.name": node["metadata"]["name"]}
    return any(_term(term, labels, fields) for term in selector.get("nodeSelectorTerms") or ())


def _term(term: dict[str, Any], labels: dict[str, str], fields: dict[str, str]) -> bool:
    expressions, on_fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not on_fields:
        return False
    return all(_requirement(e, labels) for e in expressions) and all(
        _requirement(e, fields) for e in on_fields
    )


def _requirement(expression: dict[str, Any], labels: dict[str, str]) -> bool:
    value, values = labels.get(expression["key"]), expression.get("values") or []
    match expression["operator"]:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and int(value) > int(values[0])
        case "Lt":
            return value is not None and int(value) < int(values[0])
        case _:
            return False
