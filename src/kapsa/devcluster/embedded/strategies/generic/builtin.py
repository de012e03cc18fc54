"""The strategy that built-in kinds share: defaults, an initial status, validation of whole objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.embedded.strategies.generic.addresses import Addresses
from kapsa.devcluster.embedded.strategies.generic.checks import Check
from kapsa.devcluster.embedded.strategies.generic.strategy import Strategy
from kapsa.schemas.field_errors import FieldError, invalid

__all__ = ["BuiltInStrategy", "CheckedStrategy", "Object"]

Object = dict[str, Any]


class BuiltInStrategy(Strategy):
    """A strategy of a built-in kind. Subclasses override the hooks they need."""

    immutable_first = False
    """True if kube-apiserver reports immutable fields before other errors."""
    reset_by_status: tuple[str, ...] = ()
    """Fields of metadata that a status update cannot change."""
    unenforced = ""
    """A statement of what the embedded engine does not do with objects of this kind, for a warning."""

    def __init__(self, info: ResourceInfo, addresses: Addresses) -> None:
        super().__init__(info)
        self.addresses = addresses

    def default(self, obj: Object) -> None:
        """Set defaults. This runs again after mutating admission, so it must be idempotent."""

    def initial_status(self, obj: Object) -> dict[str, Any] | None:
        """Return the status of a new object; None if it has none."""
        return {}

    def validate(self, obj: Object) -> list[FieldError]:
        """Return the errors in an object, new or updated."""
        return []

    def immutable(self, obj: Object, old: Object) -> list[FieldError]:
        """Return the errors for immutable fields that an update changes."""
        return []

    def reset_for_create(self, obj: Object) -> None:
        super().reset_for_create(obj)
        self.default(obj)
        if self.info.has_status:
            status = self.initial_status(obj)
            if status is not None:
                obj["status"] = status

    def reset_for_update(self, obj: Object, old: Object) -> None:
        super().reset_for_update(obj, old)
        self.default(obj)

    def reset_for_status(self, obj: Object, old: Object) -> None:
        requested = obj["metadata"]
        super().reset_for_status(obj, old)
        # Unlike custom resources, most built-in kinds let the status subresource change metadata.
        kept = {key: old["metadata"][key] for key in self.reset_by_status if key in old["metadata"]}
        obj["metadata"] = {k: v for k, v in requested.items() if k not in self.reset_by_status} | kept
        self.default(obj)

    def prepare_for_create(self, obj: Object) -> None:
        self.default(obj)

    def prepare_for_update(self, obj: Object, old: Object) -> None:
        self.default(obj)

    def validate_create(self, obj: Object) -> list[FieldError]:
        return self.validate(obj)

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        fixed = self.immutable(obj, old)
        return [*fixed, *self.validate(obj)] if self.immutable_first else [*self.validate(obj), *fixed]

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        unchanged = old is not None and obj.get("spec") == old.get("spec")
        if unchanged or not self.unenforced:
            return []
        return [f"not enforced by the embedded engine: {self.unenforced}"]


class CheckedStrategy(BuiltInStrategy):
    """A strategy of a kind with checks of its fields, immutable ones among them, and an empty status."""

    fixed: ClassVar[tuple[str, ...]] = ()
    """Paths of fields that an update cannot change, such as `spec.driver`."""

    checks: ClassVar[Mapping[str, Check]] = {}
    """The checks of the fields of the object."""

    def initial_status(self, obj: Object) -> dict[str, Any] | None:
        return None

    def validate(self, obj: Object) -> list[FieldError]:
        return [error for field, check in self.checks.items() for error in check(obj.get(field), field)]

    def immutable(self, obj: Object, old: Object) -> list[FieldError]:
        pairs = ((path, _at(obj, path), _at(old, path)) for path in self.fixed)
        return [
            invalid(path, after, "field is immutable") for path, after, before in pairs if after != before
        ]


def _at(obj: Object, path: str) -> Any:
    value: Any = obj
    for field in path.split("."):
        value = (value or {}).get(field)
    return value
