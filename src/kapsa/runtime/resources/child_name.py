"""Names of children that follow from their owner, so that no child is created twice."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from kapsa.runtime.resources.resource import CustomResource

__all__ = ["child_name"]

_DIGITS = 10


def child_name(owner: CustomResource[Any, Any], *parts: object, max_length: int = 63) -> str:
    """Return a name for a child of `owner`: the owner's name, and a hash of its UID and `parts`.

    Use it where `generateName` seems to fit: for one child per run, per entry of a list, per time slot. The same
    parts give the same name after a crash and on another replica, so `ctx.apply` creates the child once. A resource
    that is deleted and created again has another UID, and so its children have other names. The name is valid as a
    label value; `max_length` shortens the part before the hash.
    """
    if max_length < _DIGITS + 2:
        raise ValueError(f"max_length must be at least {_DIGITS + 2}, got {max_length}")
    identity = msgspec.json.encode([owner.metadata.uid, owner.name, *map(str, parts)])
    digits = hashlib.sha256(identity).hexdigest()[:_DIGITS]
    prefix = owner.name.replace(".", "-")[: max_length - _DIGITS - 1].rstrip("-")
    return f"{prefix}-{digits}"
