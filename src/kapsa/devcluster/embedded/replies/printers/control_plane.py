"""The printers of kinds about the control plane itself: components, certificates, priority and fairness."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from kapsa.devcluster.embedded.replies.printers.cells import Object, age, dig, human_duration, printer

__all__ = ["PRINTERS"]


def _component_status(obj: Object, now: datetime) -> list[Any]:
    for condition in obj.get("conditions") or ():
        if condition.get("type") == "Healthy":
            status = "Healthy" if condition.get("status") == "True" else "Unhealthy"
            return [
                obj["metadata"]["name"],
                status,
                condition.get("message", ""),
                condition.get("error", ""),
            ]
    return [obj["metadata"]["name"], "Unknown", "", ""]


def _signing_request(obj: Object, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    seconds = spec.get("expirationSeconds")
    return [
        obj["metadata"]["name"],
        age(obj, now),
        spec.get("signerName") or "<none>",
        spec.get("username", ""),
        "<none>" if seconds is None else human_duration(timedelta(seconds=seconds)),
        _signing_state(obj),
    ]


def _signing_state(obj: Object) -> str:
    types = {condition["type"] for condition in dig(obj, "status", "conditions") or ()}
    states = ["Denied" if "Denied" in types else "Approved" if "Approved" in types else "Pending"]
    if "Failed" in types:
        states.append("Failed")
    if dig(obj, "status", "certificate"):
        states.append("Issued")
    return ",".join(states)


def _flow_schema(obj: Object, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    conditions = dig(obj, "status", "conditions") or ()
    dangling = [each.get("status", "") for each in conditions if each.get("type") == "Dangling"]
    return [
        obj["metadata"]["name"],
        dig(spec, "priorityLevelConfiguration", "name") or "",
        spec.get("matchingPrecedence", 0),
        dig(spec, "distinguisherMethod", "type") or "<none>",
        age(obj, now),
        dangling[0] if dangling else "?",
    ]


def _precedence(obj: Object) -> tuple[int, str]:
    return (dig(obj, "spec", "matchingPrecedence") or 0, obj["metadata"]["name"])


def _priority_level(obj: Object, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    limited, queuing = spec.get("limited"), dig(spec, "limited", "limitResponse", "queuing")
    shares = "<none>" if limited is None else limited.get("nominalConcurrencyShares", 0)
    keys = ("queues", "handSize", "queueLengthLimit")
    shown = ["<none>" if queuing is None else queuing.get(key, 0) for key in keys]
    return [obj["metadata"]["name"], spec.get("type", ""), shares, *shown, age(obj, now)]


_FLOWS = "flowcontrol.apiserver.k8s.io"

PRINTERS = {
    ("", "componentstatuses"): printer("Name, Status, Message, Error", _component_status),
    ("certificates.k8s.io", "certificatesigningrequests"): printer(
        "Name, Age, SignerName, Requestor, RequestedDuration, Condition", _signing_request
    ),
    (_FLOWS, "flowschemas"): msgspec.structs.replace(
        printer("Name, PriorityLevel, MatchingPrecedence, DistinguisherMethod, Age, MissingPL", _flow_schema),
        order=_precedence,
    ),
    (_FLOWS, "prioritylevelconfigurations"): printer(
        "Name, Type, NominalConcurrencyShares, Queues, HandSize, QueueLengthLimit, Age", _priority_level
    ),
}
