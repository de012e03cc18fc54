"""The printers of the core group: namespaces, nodes, volumes, events, quotas."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kapsa.devcluster.embedded.replies.printers.cells import (
    Object,
    age,
    containers,
    dig,
    labels,
    printer,
    since,
)

__all__ = ["PRINTERS"]

_ACCESS_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}
_ROLE = "node-role.kubernetes.io/"
_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"


def _config_map(obj: Object, now: datetime) -> list[Any]:
    count = len(obj.get("data") or ()) + len(obj.get("binaryData") or ())
    return [obj["metadata"]["name"], count, age(obj, now)]


def _secret(obj: Object, now: datetime) -> list[Any]:
    return [obj["metadata"]["name"], obj.get("type", ""), len(obj.get("data") or ()), age(obj, now)]


def _service_account(obj: Object, now: datetime) -> list[Any]:
    return [obj["metadata"]["name"], age(obj, now)]


def _namespace(obj: Object, now: datetime) -> list[Any]:
    return [obj["metadata"]["name"], dig(obj, "status", "phase") or "", age(obj, now)]


def _node(obj: Object, now: datetime) -> list[Any]:
    status, info = obj.get("status") or {}, dig(obj, "status", "nodeInfo") or {}
    states = [
        "Ready" if condition.get("status") == "True" else "NotReady"
        for condition in status.get("conditions") or ()
        if condition["type"] == "Ready"
    ] or ["Unknown"]
    if dig(obj, "spec", "unschedulable"):
        states.append("SchedulingDisabled")
    kernel = info.get("kernelVersion") or "<unknown>"
    if info.get("architecture"):
        kernel = f"{kernel} ({info['architecture']})"
    return [
        obj["metadata"]["name"],
        ",".join(states),
        ",".join(_roles(obj)) or "<none>",
        age(obj, now),
        info.get("kubeletVersion", ""),
        _address(status, "InternalIP"),
        _address(status, "ExternalIP"),
        info.get("osImage") or "<unknown>",
        kernel,
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def _roles(node: Object) -> list[str]:
    roles = set()
    for key, value in (node["metadata"].get("labels") or {}).items():
        if key.startswith(_ROLE) and len(key) > len(_ROLE):
            roles.add(key.removeprefix(_ROLE))
        elif key == "kubernetes.io/role" and value:
            roles.add(value)
    return sorted(roles)


def _address(status: Object, type_: str) -> str:
    return next(
        (entry["address"] for entry in status.get("addresses") or () if entry["type"] == type_), "<none>"
    )


def _modes(modes: Any) -> str:
    given = set(modes or ())
    return ",".join(short for mode, short in _ACCESS_MODES.items() if mode in given)


def _storage_class_of(obj: Object) -> str:
    annotated = (obj["metadata"].get("annotations") or {}).get(_CLASS_ANNOTATION)
    return annotated if annotated is not None else dig(obj, "spec", "storageClassName") or ""


def _claim(obj: Object, now: datetime) -> list[Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    phase = "Terminating" if obj["metadata"].get("deletionTimestamp") else status.get("phase", "")
    volume = spec.get("volumeName") or ""
    return [
        obj["metadata"]["name"],
        phase,
        volume,
        str(dig(status, "capacity", "storage") or "0") if volume else "",
        _modes(status.get("accessModes")) if volume else "",
        _storage_class_of(obj),
        spec.get("volumeAttributesClassName") or "<unset>",
        age(obj, now),
        spec.get("volumeMode") or "<unset>",
    ]


def _volume(obj: Object, now: datetime) -> list[Any]:
    spec, status, claim = obj.get("spec") or {}, obj.get("status") or {}, dig(obj, "spec", "claimRef")
    phase = "Terminating" if obj["metadata"].get("deletionTimestamp") else status.get("phase", "")
    return [
        obj["metadata"]["name"],
        str(dig(spec, "capacity", "storage") or "0"),
        _modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        phase,
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        _storage_class_of(obj),
        spec.get("volumeAttributesClassName") or "<unset>",
        status.get("reason", ""),
        age(obj, now),
        spec.get("volumeMode") or "<unset>",
    ]


def _quota(obj: Object, now: datetime) -> list[Any]:
    hard, used = dig(obj, "status", "hard") or {}, dig(obj, "status", "used") or {}
    requests: list[str] = []
    limits: list[str] = []
    for name in sorted(hard):
        column = limits if name.startswith("limits.") else requests
        column.append(f"{name}: {used.get(name, '0')}/{hard[name]}")
    return [obj["metadata"]["name"], ", ".join(requests), ", ".join(limits), age(obj, now)]


def _event(obj: Object, now: datetime) -> list[Any]:
    series, source = obj.get("series"), obj.get("source") or obj.get("deprecatedSource") or {}
    first_seen = obj.get("firstTimestamp") or obj.get("deprecatedFirstTimestamp") or obj.get("eventTime")
    last_seen = obj.get("lastTimestamp") or obj.get("deprecatedLastTimestamp") or first_seen
    count = obj.get("count") or obj.get("deprecatedCount") or 1
    if series is not None:
        last_seen, count = series.get("lastObservedTime"), series.get("count", 0)
    target = obj.get("involvedObject") or obj.get("regarding") or {}
    kind = target.get("kind", "").lower()
    component = (
        source.get("component") or obj.get("reportingComponent") or obj.get("reportingController") or ""
    )
    instance = source.get("host") or obj.get("reportingInstance") or ""
    return [
        since(last_seen, now),
        obj.get("type", ""),
        obj.get("reason", ""),
        f"{kind}/{target['name']}" if target.get("name") else kind,
        target.get("fieldPath", ""),
        f"{component}, {instance}" if instance else component,
        (obj.get("message") or obj.get("note") or "").strip(),
        since(first_seen, now),
        count,
        obj["metadata"]["name"],
    ]


def _pod_template(obj: Object, now: datetime) -> list[Any]:
    template = obj.get("template") or {}
    shown = labels(dig(template, "metadata", "labels"))
    return [obj["metadata"]["name"], *containers(template.get("spec")), shown]


_EVENTS = "Last Seen, Type, Reason, Object, Subobject+, Source+, Message, First Seen+, Count+, Name+"

PRINTERS = {
    ("", "configmaps"): printer("Name, Data, Age", _config_map),
    ("", "secrets"): printer("Name, Type, Data, Age", _secret),
    ("", "serviceaccounts"): printer("Name, Age", _service_account),
    ("", "namespaces"): printer("Name, Status, Age", _namespace),
    ("", "nodes"): printer(
        "Name, Status, Roles, Age, Version, Internal-IP+, External-IP+, OS-Image+, Kernel-Version+, "
        "Container-Runtime+",
        _node,
    ),
    ("", "persistentvolumeclaims"): printer(
        "Name, Status, Volume, Capacity, Access Modes, StorageClass, VolumeAttributesClass, Age, VolumeMode+",
        _claim,
    ),
    ("", "persistentvolumes"): printer(
        "Name, Capacity, Access Modes, Reclaim Policy, Status, Claim, StorageClass, VolumeAttributesClass, "
        "Reason, Age, VolumeMode+",
        _volume,
    ),
    ("", "resourcequotas"): printer("Name, Request, Limit, Age", _quota),
    ("", "events"): printer(_EVENTS, _event),
    ("events.k8s.io", "events"): printer(_EVENTS, _event),
    ("", "podtemplates"): printer("Name, Containers, Images, Pod Labels", _pod_template),
}
