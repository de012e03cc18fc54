"""The generic strategy: the hooks that a write calls on the object's kind.

A kind with peculiarities has a subclass. A write calls the hooks in this order, each changing the object in
place: `reset_for_*` right after decoding and before field managers are recorded, `admit_create`, then (after
mutating admission) `prepare_for_*`, then `validate_*`, then `warnings`.
"""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.apply.comparison import equal
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.schemas.field_errors import FieldError

__all__ = ["Strategy"]

Object = dict[str, Any]

_COUNTED = frozenset(
    {
        ("", "pods"),
        ("", "podtemplates"),
        ("", "replicationcontrollers"),
        ("apps", "daemonsets"),
        ("apps", "deployments"),
        ("apps", "replicasets"),
        ("apps", "statefulsets"),
        ("batch", "cronjobs"),
        ("batch", "jobs"),
        ("networking.k8s.io", "ingresses"),
        ("networking.k8s.io", "ingressclasses"),
        ("networking.k8s.io", "networkpolicies"),
        ("policy", "poddisruptionbudgets"),
        ("admissionregistration.k8s.io", "mutatingadmissionpolicies"),
        ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings"),
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
        ("admissionregistration.k8s.io", "mutatingadmissionpolicies"),
        ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings"),
        ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
        ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("discovery.k8s.io", "endpointslices"),
        ("flowcontrol.apiserver.k8s.io", "flowschemas"),
        ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"),
        ("resource.k8s.io", "deviceclasses"),
        ("resource.k8s.io", "resourceslices"),
        ("scheduling.k8s.io", "priorityclasses"),
    }
)
_CONDITIONAL = frozenset(
    {
        ("admissionregistration.k8s.io", "mutatingadmissionpolicies"),
        ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings"),
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
        ("admissionregistration.k8s.io", "mutatingadmissionpolicies"),
        ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings"),
        ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
        ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
        ("certificates.k8s.io", "clustertrustbundles"),
        ("coordination.k8s.io", "leases"),
        ("node.k8s.io", "runtimeclasses"),
        ("policy", "poddisruptionbudgets"),
        ("storage.k8s.io", "csidrivers"),
        ("storage.k8s.io", "csinodes"),
        ("storage.k8s.io", "csistoragecapacities"),
        ("storage.k8s.io", "volumeattachments"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
    }
)
_CREATED_BY_PUT = frozenset(
    {
        ("", "endpoints"),
        ("", "events"),
        ("events.k8s.io", "events"),
        ("", "limitranges"),
        ("", "services"),
        ("coordination.k8s.io", "leases"),
        ("node.k8s.io", "runtimeclasses"),
        ("rbac.authorization.k8s.io", "clusterrolebindings"),
        ("rbac.authorization.k8s.io", "clusterroles"),
        ("rbac.authorization.k8s.io", "rolebindings"),
        ("rbac.authorization.k8s.io", "roles"),
    }
)


class Strategy:
    """The strategy of kinds without peculiarities, and the base of all others."""

    def __init__(self, info: ResourceInfo) -> None:
        key = (info.group, info.resource)
        self.info = info
        self.counts_generations = info.is_custom or key in _COUNTED
        """True if a change of the spec raises metadata.generation."""
        self.allows_unconditional_update = not info.is_custom and key not in _CONDITIONAL
        """True if an update without a resourceVersion is accepted."""
        self.allows_create_on_update = key in _CREATED_BY_PUT
        """True if a PUT to a name that does not exist creates the object."""

    # Writing

    def reset_for_create(self, obj: Object) -> None:
        """Remove the fields that a client must not set on creation."""
        if self.info.has_status:
            obj.pop("status", None)

    def reset_for_update(self, obj: Object, old: Object) -> None:
        """Restore the fields that an update must not change."""
        if self.info.has_status:
            _keep(obj, old, "status")

    def reset_for_status(self, obj: Object, old: Object) -> None:
        """Restore the fields that a status update must not change: all but the status and managedFields."""
        for field in obj.keys() | old.keys():
            if field not in ("apiVersion", "kind", "metadata", "status"):
                _keep(obj, old, field)
        own = {field: value for field, value in obj["metadata"].items() if field in _STATUS_METADATA}
        obj["metadata"] = {**old["metadata"], **own}

    def admit_create(self, obj: Object) -> None:
        """Set the fields of the built-in admission plugins. They have no manager, and webhooks see them."""

    def prepare_for_create(self, obj: Object) -> None:
        """Set the fields that the system adds to a new object: allocations, derived fields."""

    def prepare_for_update(self, obj: Object, old: Object) -> None:
        """Set or copy the fields that the system maintains."""

    def prepare_for_status(self, obj: Object, old: Object) -> None:
        """Set or copy the fields of a status that the system maintains."""

    def prepare_for_part(self, subresource: str, obj: Object, old: Object) -> None:
        """Restore the fields that a write to a part of the object must not change."""

    def complete_conditions(self, obj: Object, old: Object, now: str) -> None:
        """Set the times that the conditions of an updated status lack."""

    def raises_generation(self, obj: Object, old: Object) -> bool:
        """Return whether an update changes fields other than metadata and status."""
        for field in obj.keys() | old.keys():
            if field in ("apiVersion", "kind", "metadata") or (field == "status" and self.info.has_status):
                continue
            if not equal(obj.get(field), old.get(field)):
                return True
        return False

    # Checking

    def validate_create(self, obj: Object) -> list[FieldError]:
        """Return the errors in a new object beyond its schema."""
        return []

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        """Return the errors in an update beyond its schema."""
        return []

    def validate_status(self, obj: Object, old: Object) -> list[FieldError]:
        """Return the errors in a status update beyond its schema."""
        return []

    def validate_part(self, subresource: str, obj: Object, old: Object) -> list[FieldError]:
        """Return the errors in a write to a part of the object beyond its schema."""
        return []

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        """Return the warnings to send to the client with a successful reply."""
        return []

    # Deleting

    def defer_deletion(self, obj: Object, now: str) -> bool:
        """Begin a deletion specific to the kind. Returns True if the kind's finalizer must run first."""
        return False

    def grace_seconds(self, obj: Object, requested: int | None) -> int | None:
        """Return the grace period of a deletion; None if the kind is deleted at once."""
        return None

    def may_go(self, obj: Object) -> bool:
        """Return whether an object that is being deleted, without metadata.finalizers, may be removed."""
        return True

    def default_propagation(self, obj: Object) -> str:
        """Return the default propagation policy: `background`, `orphan` or `unsupported`."""
        return "background"


_STATUS_METADATA = ("managedFields", "resourceVersion", "uid")


def _keep(obj: Object, old: Object, field: str) -> None:
    if field in old:
        obj[field] = old[field]
    else:
        obj.pop(field, None)
