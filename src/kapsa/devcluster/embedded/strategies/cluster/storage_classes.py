"""The classes and drivers of storage: defaults and validation."""

from __future__ import annotations

from typing import Any, ClassVar

from kapsa.devcluster.embedded.strategies.generic import rules
from kapsa.devcluster.embedded.strategies.generic.builtin import BuiltInStrategy, CheckedStrategy, Object
from kapsa.devcluster.embedded.strategies.generic.checks import (
    LABEL_KEY,
    SUBDOMAIN,
    at_least,
    each,
    every,
    fields,
    filled,
    given,
    one_of,
    present,
    unique,
)
from kapsa.devcluster.embedded.strategies.generic.claims import csi_driver
from kapsa.schemas.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
)
from kapsa.schemas.go_format import GoStruct
from kapsa.schemas.quantities import parse

__all__ = [
    "ATTRIBUTES_CLASS_PROTECTION",
    "CSIDriverStrategy",
    "CSINodeStrategy",
    "CSIStorageCapacityStrategy",
    "StorageClassStrategy",
    "VolumeAttachmentStrategy",
    "VolumeAttributesClassStrategy",
]

ATTRIBUTES_CLASS_PROTECTION = "kubernetes.io/vac-protection"
_DRIVER_DEFAULTS: dict[str, Any] = {
    "attachRequired": True,
    "podInfoOnMount": False,
    "storageCapacity": False,
    "fsGroupPolicy": "ReadWriteOnceWithFSType",
    "requiresRepublish": False,
    "seLinuxMount": False,
}
_TOKENS_IN_ATTRIBUTES = (
    "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible "
    "logging of tokens in volume attributes"
)
_MOST_PARAMETERS, _LARGEST_PARAMETERS = 512, 256 * 1024
_LONGEST_NODE_ID = 256
_SHORTEST_TOKEN, _LONGEST_TOKEN = 600, 2**32
_MODES = ("Persistent", "Ephemeral")


def _provisioner(name: str | None, path: str) -> list[FieldError]:
    return LABEL_KEY(name.lower(), path) if name else [required(path)]


def _parameters(parameters: dict[str, str] | None, path: str) -> list[FieldError]:
    given_parameters = parameters or {}
    errors: list[FieldError] = []
    if len(given_parameters) > _MOST_PARAMETERS:
        errors.append(too_long(path, _MOST_PARAMETERS))
    if "" in given_parameters:
        errors.append(invalid(path, "", "field can not be empty."))
    if sum(len(key) + len(value) for key, value in given_parameters.items()) > _LARGEST_PARAMETERS:
        errors.append(too_long(path, _LARGEST_PARAMETERS))
    return errors


_TERM = fields(
    matchLabelExpressions=every(each(fields(values=every(present(), unique()), key=LABEL_KEY)), unique("key"))
)


def _topologies(terms: list[Object] | None, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    # As in the real server, a term without expressions equals one that is not there.
    seen: list[dict[str, set[str]]] = [{}]
    for index, term in enumerate(terms or ()):
        errors += _TERM(term, f"{path}[{index}]")
        expressions = term.get("matchLabelExpressions") or ()
        labels = {each_one.get("key") or "": set(each_one.get("values") or ()) for each_one in expressions}
        if labels in seen:
            errors.append(duplicate(f"{path}[{index}].matchLabelExpressions", ""))
        seen.append(labels)
    return errors


_CLASS = fields(
    provisioner=_provisioner,
    parameters=_parameters,
    reclaimPolicy=filled(one_of("Delete", "Retain")),
    volumeBindingMode=one_of("Immediate", "WaitForFirstConsumer"),
    allowedTopologies=_topologies,
)


_ABSENT = {"provisioner": ""}
"""Values of absent fields that Go shows as something other than null."""


def _changed(obj: Object, old: Object, *fixed: str) -> list[str]:
    return [field for field in fixed if (obj.get(field) or None) != (old.get(field) or None)]


class StorageClassStrategy(BuiltInStrategy):
    def default(self, obj: Object) -> None:
        for field, value in (("reclaimPolicy", "Delete"), ("volumeBindingMode", "Immediate")):
            if obj.get(field) is None:
                obj[field] = value

    def validate(self, obj: Object) -> list[FieldError]:
        return _CLASS(obj, "")

    def immutable(self, obj: Object, old: Object) -> list[FieldError]:
        changed = _changed(obj, old, "parameters", "provisioner", "reclaimPolicy", "volumeBindingMode")
        return [invalid(field, obj.get(field, _ABSENT.get(field)), "field is immutable") for field in changed]


class VolumeAttributesClassStrategy(BuiltInStrategy):
    def admit_create(self, obj: Object) -> None:
        finalizers = obj["metadata"].get("finalizers") or []
        if ATTRIBUTES_CLASS_PROTECTION not in finalizers:
            obj["metadata"]["finalizers"] = [*finalizers, ATTRIBUTES_CLASS_PROTECTION]

    def validate(self, obj: Object) -> list[FieldError]:
        errors = _provisioner(obj.get("driverName"), "driverName")
        errors += _parameters(obj.get("parameters"), "parameters")
        detail = "must contain at least one key/value pair"
        return errors + present(detail=detail)(obj.get("parameters"), "parameters")

    def immutable(self, obj: Object, old: Object) -> list[FieldError]:
        changed = _changed(obj, old, "driverName", "parameters")
        return [forbidden(field, f"updates to {field} are forbidden.") for field in changed]


def _lifecycle_modes(modes: list[str] | None, path: str) -> list[FieldError]:
    return [not_supported(path, mode, _MODES) for mode in modes or () if mode not in _MODES]


def _token_lifetime(seconds: int, path: str) -> list[FieldError]:
    if seconds < _SHORTEST_TOKEN:
        return [invalid(path, seconds, "may not specify a duration less than 10 minutes")]
    if seconds > _LONGEST_TOKEN:
        return [invalid(path, seconds, "may not specify a duration larger than 2^32 seconds")]
    return []


_DRIVER = fields(
    fsGroupPolicy=given(one_of("File", "None", "ReadWriteOnceWithFSType")),
    tokenRequests=every(each(fields(expirationSeconds=given(_token_lifetime))), unique("audience")),
    volumeLifecycleModes=_lifecycle_modes,
    nodeAllocatableUpdatePeriodSeconds=given(at_least(10, "must be greater than or equal to 10 seconds")),
)


class CSIDriverStrategy(BuiltInStrategy):
    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        for field, value in _DRIVER_DEFAULTS.items():
            if spec.get(field) is None:
                spec[field] = value
        spec["volumeLifecycleModes"] = spec.get("volumeLifecycleModes") or ["Persistent"]

    def prepare_for_update(self, obj: Object, old: Object) -> None:
        super().prepare_for_update(obj, old)
        # The real server counts changes, but gives a new driver no generation.
        if self.raises_generation(obj, old):
            obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj["spec"]
        errors = _DRIVER(spec, "spec")
        in_secrets = spec.get("serviceAccountTokenInSecrets")
        if in_secrets is not None and not spec.get("tokenRequests"):
            detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified"
            errors.append(invalid("spec.serviceAccountTokenInSecrets", in_secrets, detail))
        return errors

    def immutable(self, obj: Object, old: Object) -> list[FieldError]:
        # The first path is spelled as the real server spells it.
        fixed = (("attachRequired", "attachedRequired"), ("volumeLifecycleModes", "volumeLifecycleModes"))
        return [
            invalid(f"spec.{path}", obj["spec"].get(field), "field is immutable")
            for field, path in fixed
            if obj["spec"].get(field) != old["spec"].get(field)
        ]

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        spec = obj["spec"]
        requests = spec.get("tokenRequests")
        unchanged = old is not None and old["spec"].get("tokenRequests") == requests
        if not requests or unchanged or spec.get("serviceAccountTokenInSecrets") is not None:
            return []
        return [_TOKENS_IN_ATTRIBUTES]


def _node_id(value: str, path: str) -> list[FieldError]:
    detail = f"must be {_LONGEST_NODE_ID} characters or less"
    return [invalid(path, value, detail)] if len(value) > _LONGEST_NODE_ID else []


def _topology_keys(driver: Object, path: str) -> list[FieldError]:
    """Return the errors in the topology keys of a driver, which the real server reports at the driver."""
    keys = driver.get("topologyKeys") or []
    errors: list[FieldError] = []
    for index, key in enumerate(keys):
        errors += [] if key else [required(path)]
        errors += [duplicate(path, key)] if key in keys[:index] else []
        errors += LABEL_KEY(key, path)
    return errors


_NODE_DRIVER = fields(
    name=csi_driver,
    nodeID=present(_node_id),
    allocatable=fields(count=given(at_least(0))),
)


class CSINodeStrategy(CheckedStrategy):
    """Strategy of the drivers that a node has."""

    checks: ClassVar = {"spec": fields(drivers=every(each(_NODE_DRIVER, _topology_keys), unique("name")))}

    def immutable(self, obj: Object, old: Object) -> list[FieldError]:
        """Return the errors for drivers that an update changes: it may only add, remove and count them."""
        before = {driver["name"]: _identity(driver) for driver in old["spec"].get("drivers") or ()}
        after = [_identity(driver) for driver in obj["spec"].get("drivers") or ()]
        changed = [driver for driver in after if before.get(driver["Name"], driver) != driver]
        return [invalid("spec.drivers", driver, "field is immutable") for driver in changed]


def _identity(driver: Object) -> GoStruct:
    """Return a driver of a node as Go prints it, without the number of its volumes, which may change."""
    name, node = driver.get("name") or "", driver.get("nodeID") or ""
    return GoStruct(Name=name, NodeID=node, TopologyKeys=driver.get("topologyKeys"), Allocatable=None)


def _capacity(value: Any, path: str) -> list[FieldError]:
    return [] if parse(value) >= 0 else [invalid(path, str(value), "must be greater than or equal to 0")]


class CSIStorageCapacityStrategy(CheckedStrategy):
    """Strategy of the capacity that a driver reports."""

    checks: ClassVar = {
        "nodeTopology": given(rules.label_selector),
        "storageClassName": SUBDOMAIN,
        "capacity": given(_capacity),
    }
    fixed = ("nodeTopology", "storageClassName")


def _attached(source: Any, path: str) -> list[FieldError]:
    given_source = source or {}
    name, inline = given_source.get("persistentVolumeName"), given_source.get("inlineVolumeSpec")
    detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
    if name is None and inline is None:
        return [required(path, detail)]
    if name is not None and inline is not None:
        return [forbidden(path, detail)]
    if name is None:
        driver = ((inline or {}).get("csi") or {}).get("driver")
        return given(csi_driver)(driver, f"{path}.inlineVolumeSpec.csi.driver")
    where = f"{path}.persistentVolumeName"
    return present(detail="must specify non empty persistentVolumeName")(name, where) + SUBDOMAIN(name, where)


class VolumeAttachmentStrategy(CheckedStrategy):
    """Strategy of the requests to attach a volume to a node."""

    checks: ClassVar = {"spec": fields(attacher=csi_driver, source=_attached, nodeName=SUBDOMAIN)}
    fixed = ("spec",)
