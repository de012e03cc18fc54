"""What built-in kinds share on the write path: Go-style defaults, a first status, whole-object checks."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.embedded.strategies.generic.addresses import Addresses
from kapsa.devcluster.embedded.strategies.generic.strategy import Strategy
from kapsa.schemas.field_errors import FieldError

__all__ = ["BuiltInStrategy", "Object"]

Object = dict[str, Any]


class BuiltInStrategy(Strategy):
    """A built-in kind. Kinds with peculiarities override what they need."""

    immutable_first = False
    """Whether the real server reports what may not change before what is wrong anyway."""
    reset_by_status: tuple[str, ...] = ()
    """Fields of metadata that an update of the status cannot change."""

    def __init__(self, info: ResourceInfo, addresses: Addresses) -> None:
        super().__init__(info)
        self.addresses = addresses

    def default(self, obj: Object) -> None:
        """Fill in what the user may leave out. Runs again after mutating admission, so it must be idempotent."""

    def initial_status(self, obj: Object) -> dict[str, Any] | None:
        """The status of a new object; None where it has none."""
        return {}

    def validate(self, obj: Object) -> list[FieldError]:
        """What is wrong with the object as it stands, new or not."""
        return []

    def immutable(self, obj: Object, old: Object) -> list[FieldError]:
        """What an update may not change."""
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
        wanted = obj["metadata"]
        super().reset_for_status(obj, old)
        # Unlike custom resources, most built-in kinds let the status subresource change metadata.
        kept = {key: old["metadata"][key] for key in self.reset_by_status if key in old["metadata"]}
        obj["metadata"] = {k: v for k, v in wanted.items() if k not in self.reset_by_status} | kept
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
