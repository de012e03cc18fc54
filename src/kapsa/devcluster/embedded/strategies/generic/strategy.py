"""What a kind does on its way to storage, beyond what every kind does.

A kind with peculiarities has a subclass. The core calls the hooks in this order, each working on the object in place:
``reset_for_*`` right after decoding and before field managers are recorded, ``admit_create``, then (after mutating
admission) ``prepare_for_*``, then ``validate_*``, then ``warnings``.
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
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
        ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
        ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("discovery.k8s.io", "endpointslices"),
        ("flowcontrol.apiserver.k8s.io", "flowschemas"),
        ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"),
        ("scheduling.k8s.io", "priorityclasses"),
    }
)
_CONDITIONAL = frozenset(
    {
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
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
    """The way of kinds with nothing special, and of custom resources."""

    def __init__(self, info: ResourceInfo) -> None:
        key = (info.group, info.resource)
        self.info = info
        self.counts_generations = info.is_custom or key in _COUNTED
        """Whether a change of what is wanted raises metadata.generation."""
        self.allows_unconditional_update = not info.is_custom and key not in _CONDITIONAL
        """Whether an update may come without a resourceVersion."""
        self.allows_create_on_update = key in _CREATED_BY_PUT
        """Whether a PUT to a name that does not exist creates it."""

    # Writing

    def reset_for_create(self, obj: Object) -> None:
        """Drop what a creator may not set."""
        if self.info.has_status:
            obj.pop("status", None)

    def reset_for_update(self, obj: Object, old: Object) -> None:
        """Put back what this update may not change."""
        if self.info.has_status:
            _keep(obj, old, "status")

    def reset_for_status(self, obj: Object, old: Object) -> None:
        """Put back all that a status update may not change: everything but the status and who manages what."""
        for field in obj.keys() | old.keys():
            if field not in ("apiVersion", "kind", "metadata", "status"):
                _keep(obj, old, field)
        own = {field: value for field, value in obj["metadata"].items() if field in _STATUS_METADATA}
        obj["metadata"] = {**old["metadata"], **own}

    def admit_create(self, obj: Object) -> None:
        """What the built-in admission plugins fill in: nobody owns it, and webhooks see it."""

    def prepare_for_create(self, obj: Object) -> None:
        """Fill what the system gives a new object of this kind: allocations, derived fields."""

    def prepare_for_update(self, obj: Object, old: Object) -> None:
        """Fill or carry over what the system keeps of this kind."""

    def raises_generation(self, obj: Object, old: Object) -> bool:
        """Whether an update changes what is wanted, as opposed to metadata and what is observed."""
        for field in obj.keys() | old.keys():
            if field in ("apiVersion", "kind", "metadata") or (field == "status" and self.info.has_status):
                continue
            if not equal(obj.get(field), old.get(field)):
                return True
        return False

    # Checking

    def validate_create(self, obj: Object) -> list[FieldError]:
        """What is wrong with a new object beyond its schema."""
        return []

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        """What is wrong with an update beyond its schema."""
        return []

    def validate_status(self, obj: Object, old: Object) -> list[FieldError]:
        """What is wrong with an update of the status beyond its schema."""
        return []

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        """Advice to the client that comes with success."""
        return []

    # Deleting

    def defer_deletion(self, obj: Object, now: str) -> bool:
        """Begin a deletion in the kind's own way; True when the object now waits for the kind's finalizer."""
        return False

    def grace_seconds(self, obj: Object, requested: int | None) -> int | None:
        """How long this object is given to end; None when the kind is deleted at once."""
        return None

    def may_go(self, obj: Object) -> bool:
        """Whether an object that is being deleted and has no metadata.finalizers may leave the store."""
        return True

    def default_propagation(self, obj: Object) -> str:
        """What happens to dependents when the client does not say: ``background``, ``orphan`` or ``unsupported``."""
        return "background"


_STATUS_METADATA = ("managedFields", "resourceVersion", "uid")


def _keep(obj: Object, old: Object, field: str) -> None:
    if field in old:
        obj[field] = old[field]
    else:
        obj.pop(field, None)
