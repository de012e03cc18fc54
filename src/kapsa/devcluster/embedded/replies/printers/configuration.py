"""The printers of kinds that configure the cluster: roles, storage, admission, priorities, leases."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kapsa.devcluster.embedded.replies.printers.cells import Object, age, dig, printer

__all__ = ["PRINTERS"]

_DEFAULT_STORAGE = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)


def _binding(obj: Object, now: datetime) -> list[Any]:
    role = obj.get("roleRef") or {}
    subjects: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in obj.get("subjects") or ():
        name = subject.get("name", "")
        if subject["kind"] == "ServiceAccount":
            name = f"{subject.get('namespace', '')}/{name}"
        subjects.setdefault(subject["kind"], []).append(name)
    shown = [", ".join(subjects[kind]) for kind in ("User", "Group", "ServiceAccount")]
    reference = f"{role.get('kind', '')}/{role.get('name', '')}"
    return [obj["metadata"]["name"], reference, age(obj, now), *shown]


def _storage_class(obj: Object, now: datetime) -> list[Any]:
    metadata = obj["metadata"]
    annotations = metadata.get("annotations") or {}
    default = any(annotations.get(key) == "true" for key in _DEFAULT_STORAGE)
    return [
        f"{metadata['name']} (default)" if default else metadata["name"],
        obj.get("provisioner", ""),
        obj.get("reclaimPolicy", "Delete"),
        obj.get("volumeBindingMode", "Immediate"),
        bool(obj.get("allowVolumeExpansion")),
        age(obj, now),
    ]


def _attachment(obj: Object, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    volume = dig(spec, "source", "persistentVolumeName") or ""
    attached = bool(dig(obj, "status", "attached"))
    return [
        obj["metadata"]["name"],
        spec.get("attacher", ""),
        volume,
        spec.get("nodeName", ""),
        attached,
        age(obj, now),
    ]


def _csi_driver(obj: Object, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    requests = spec.get("tokenRequests")
    audiences = "<unset>" if requests is None else ",".join(each.get("audience", "") for each in requests)
    return [
        obj["metadata"]["name"],
        spec.get("attachRequired", True),
        bool(spec.get("podInfoOnMount")),
        bool(spec.get("storageCapacity")),
        audiences,
        bool(spec.get("requiresRepublish")),
        ",".join(spec.get("volumeLifecycleModes") or ()) or "<none>",
        age(obj, now),
    ]


def _volume_attributes_class(obj: Object, now: datetime) -> list[Any]:
    return [obj["metadata"]["name"], obj.get("driverName", ""), age(obj, now)]


def _csi_node(obj: Object, now: datetime) -> list[Any]:
    return [obj["metadata"]["name"], len(dig(obj, "spec", "drivers") or ()), age(obj, now)]


def _webhooks(obj: Object, now: datetime) -> list[Any]:
    return [obj["metadata"]["name"], len(obj.get("webhooks") or ()), age(obj, now)]


def _policy(key: str) -> Any:
    def cells(obj: Object, now: datetime) -> list[Any]:
        kind = dig(obj, "spec", "paramKind")
        shown = f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}" if kind else "<unset>"
        return [obj["metadata"]["name"], len(dig(obj, "spec", key) or ()), shown, age(obj, now)]

    return cells


def _policy_binding(obj: Object, now: datetime) -> list[Any]:
    reference = dig(obj, "spec", "paramRef")
    shown = "<unset>"
    if reference and reference.get("name"):
        shown = f"{reference.get('namespace') or '*'}/{reference['name']}"
    return [obj["metadata"]["name"], dig(obj, "spec", "policyName") or "", shown, age(obj, now)]


def _priority_class(obj: Object, now: datetime) -> list[Any]:
    shown = [obj.get("value", 0), bool(obj.get("globalDefault"))]
    return [obj["metadata"]["name"], *shown, age(obj, now), obj.get("preemptionPolicy", "")]


def _lease(obj: Object, now: datetime) -> list[Any]:
    return [obj["metadata"]["name"], dig(obj, "spec", "holderIdentity") or "", age(obj, now)]


def _runtime_class(obj: Object, now: datetime) -> list[Any]:
    return [obj["metadata"]["name"], obj.get("handler", ""), age(obj, now)]


def _api_service(obj: Object, now: datetime) -> list[Any]:
    service = dig(obj, "spec", "service")
    shown = f"{service.get('namespace', '')}/{service.get('name', '')}" if service else "Local"
    available = "Unknown"
    for condition in dig(obj, "status", "conditions") or ():
        if condition["type"] == "Available":
            state = condition.get("status", "")
            available = state if state == "True" else f"{state} ({condition.get('reason', '')})"
    return [obj["metadata"]["name"], shown, available, age(obj, now)]


_ADMISSION = "admissionregistration.k8s.io"
_BINDINGS = "Name, Role, Age, Users+, Groups+, ServiceAccounts+"
_RBAC = "rbac.authorization.k8s.io"

PRINTERS = {
    (_RBAC, "rolebindings"): printer(_BINDINGS, _binding),
    (_RBAC, "clusterrolebindings"): printer(_BINDINGS, _binding),
    ("storage.k8s.io", "storageclasses"): printer(
        "Name, Provisioner, ReclaimPolicy, VolumeBindingMode, AllowVolumeExpansion, Age", _storage_class
    ),
    ("storage.k8s.io", "volumeattachments"): printer(
        "Name, Attacher:string:name, PV, Node, Attached:boolean, Age", _attachment
    ),
    ("storage.k8s.io", "csidrivers"): printer(
        "Name, AttachRequired:boolean, PodInfoOnMount:boolean, StorageCapacity:boolean, TokenRequests, "
        "RequiresRepublish:boolean, Modes, Age",
        _csi_driver,
    ),
    ("storage.k8s.io", "volumeattributesclasses"): printer("Name, DriverName, Age", _volume_attributes_class),
    ("storage.k8s.io", "csinodes"): printer("Name, Drivers:integer, Age", _csi_node),
    (_ADMISSION, "mutatingwebhookconfigurations"): printer("Name, Webhooks:integer, Age", _webhooks),
    (_ADMISSION, "validatingwebhookconfigurations"): printer("Name, Webhooks:integer, Age", _webhooks),
    (_ADMISSION, "validatingadmissionpolicies"): printer(
        "Name, Validations:integer, ParamKind, Age", _policy("validations")
    ),
    (_ADMISSION, "mutatingadmissionpolicies"): printer(
        "Name, Mutations:integer, ParamKind, Age", _policy("mutations")
    ),
    (_ADMISSION, "validatingadmissionpolicybindings"): printer(
        "Name, PolicyName, ParamRef, Age", _policy_binding
    ),
    (_ADMISSION, "mutatingadmissionpolicybindings"): printer(
        "Name, PolicyName, ParamRef, Age", _policy_binding
    ),
    ("scheduling.k8s.io", "priorityclasses"): printer(
        "Name, Value:integer, Global-Default:boolean, Age, PreemptionPolicy", _priority_class
    ),
    ("coordination.k8s.io", "leases"): printer("Name, Holder, Age", _lease),
    ("node.k8s.io", "runtimeclasses"): printer("Name, Handler, Age", _runtime_class),
    ("apiregistration.k8s.io", "apiservices"): printer("Name, Service, Available, Age", _api_service),
}
