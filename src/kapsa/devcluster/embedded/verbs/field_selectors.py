"""The fieldSelector query: `status.phase=Running,metadata.name!=x`, with the fields of each kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.embedded.requests.field_terms import (
    FieldTerm,
    SelectorError,
    parse_terms,
    required_name,
)
from kapsa.devcluster.embedded.storage.store import Stored

__all__ = ["FieldMatcher", "parse"]

FieldMatcher = Callable[[Stored], bool]

_POD_FIELDS = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
)
_EVENT_FIELDS = (
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
)
_FIELDS: dict[tuple[str, str], tuple[str, ...]] = {
    ("", "pods"): _POD_FIELDS,
    ("", "events"): _EVENT_FIELDS,
    ("events.k8s.io", "events"): (
        "regarding.kind",
        "regarding.namespace",
        "regarding.name",
        "regarding.uid",
        "regarding.apiVersion",
        "regarding.resourceVersion",
        "regarding.fieldPath",
        "reason",
        "reportingController",
        "type",
    ),
    ("", "secrets"): ("type",),
    ("", "services"): ("spec.clusterIP", "spec.type"),
    ("", "namespaces"): ("status.phase",),
    ("", "nodes"): ("spec.unschedulable",),
    ("", "replicationcontrollers"): ("status.replicas",),
    ("apps", "replicasets"): ("status.replicas",),
    ("batch", "jobs"): ("status.successful",),
    ("certificates.k8s.io", "certificatesigningrequests"): ("spec.signerName",),
    ("certificates.k8s.io", "clustertrustbundles"): ("spec.signerName",),
    ("resource.k8s.io", "resourceslices"): ("spec.nodeName", "spec.driver"),
}
_DEFAULTS = {"spec.hostNetwork": "false", "spec.unschedulable": "false", "status.replicas": "0"}


def parse(text: str, info: ResourceInfo) -> tuple[FieldMatcher | None, str]:
    """Return the selector as a predicate on stored objects, and the name it requires, if any.

    Raises SelectorError if it is invalid or contains a field that the kind does not support.
    """
    terms = parse_terms(text)
    if not terms:
        return None, ""
    supported = _FIELDS.get((info.group, info.resource), ()) + _declared(info)
    for field, _, _ in terms:
        if field not in ("metadata.name", "metadata.namespace") and field not in supported:
            raise SelectorError(_unsupported(field, info))
    name = required_name(terms)
    matchers = [_matcher(term, info) for term in terms]
    if len(matchers) == 1:
        return matchers[0], name
    return (lambda stored: all(matcher(stored) for matcher in matchers)), name


def _declared(info: ResourceInfo) -> tuple[str, ...]:
    """Return the selectableFields of a custom resource's version."""
    if info.definition is None:
        return ()
    for version in info.definition["spec"]["versions"]:
        if version["name"] == info.version:
            return tuple(field["jsonPath"].lstrip(".") for field in version.get("selectableFields") or ())
    return ()


def _unsupported(field: str, info: ResourceInfo) -> str:
    if info.is_custom:
        return f"field label not supported: {field}"
    if (info.group, info.resource) in _FIELDS:
        return f"field label not supported: {field}"
    return f'"{field}" is not a known field selector: only "metadata.name", "metadata.namespace"'


def _matcher(term: FieldTerm, info: ResourceInfo) -> FieldMatcher:
    field, equal, value = term
    if field == "metadata.name":
        return lambda stored: (stored.name == value) == equal
    if field == "metadata.namespace":
        return lambda stored: (stored.namespace == value) == equal
    path = _stored_name(field, info).split(".")
    default = _DEFAULTS.get(field, "")
    special = _SPECIAL.get((info.group, info.resource, field))

    def matches(stored: Stored) -> bool:
        decoded = msgspec.json.decode(stored.body)
        actual = special(decoded) if special else _lookup(decoded, path, default)
        return (actual == value) == equal

    return matches


def _stored_name(field: str, info: ResourceInfo) -> str:
    """Return the stored name of a field: events of both groups are stored as those of the core group."""
    if info.group != "events.k8s.io":
        return field
    if field == "reportingController":
        return "reportingComponent"
    return field.replace("regarding.", "involvedObject.", 1)


def _lookup(value: Any, path: list[str], default: str) -> str:
    for step in path:
        if not isinstance(value, Mapping) or step not in value:
            return default
        value = value[step]
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _pod_ip(pod: Mapping[str, Any]) -> str:
    addresses = pod.get("status", {}).get("podIPs") or ()
    return str(addresses[0]["ip"]) if addresses else ""


def _event_source(event: Mapping[str, Any]) -> str:
    return str((event.get("source") or {}).get("component") or event.get("reportingComponent", ""))


def _job_successful(job: Mapping[str, Any]) -> str:
    return str(job.get("status", {}).get("succeeded", 0))


_SPECIAL: dict[tuple[str, str, str], Callable[[Mapping[str, Any]], str]] = {
    ("", "pods", "status.podIP"): _pod_ip,
    ("", "events", "source"): _event_source,
    ("batch", "jobs", "status.successful"): _job_successful,
}
