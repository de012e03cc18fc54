"""Writes and deletions: what a client requests, built once and passed down to admission and the store."""

from __future__ import annotations

from typing import Any

import msgspec

from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.embedded.requests.parameters import DeleteParameters, WriteMethod, WriteParameters
from kapsa.devcluster.wire.exchange import ADMIN, RequestUser

__all__ = ["DeleteRequest", "InvocationMemory", "Reinvocation", "WriteRequest"]


class InvocationMemory(msgspec.Struct):
    """The webhooks or policies that one write has called, and those to call again."""

    repeatable: set[str] = msgspec.field(default_factory=set)
    """Called so far, and willing to be called again if something changes the object later."""
    due: set[str] = msgspec.field(default_factory=set)
    """To be called in the second pass."""
    output: bytes = b""
    """The object as the last of them left it."""

    def require_again(self) -> None:
        """Note that the object has changed: all that are willing are called again."""
        self.due |= self.repeatable
        self.repeatable.clear()


class Reinvocation(msgspec.Struct):
    """The passes of one write through mutating admission: a second one follows if the first changed the object."""

    requested: bool = False
    is_second: bool = False
    webhooks: InvocationMemory = msgspec.field(default_factory=InvocationMemory)
    policies: InvocationMemory = msgspec.field(default_factory=InvocationMemory)


class WriteRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One write of one object."""

    info: ResourceInfo
    method: WriteMethod
    namespace: str = ""
    name: str = ""
    """Empty for a create whose name is generated."""
    subresource: str = ""
    parameters: WriteParameters = WriteParameters()
    user: RequestUser = ADMIN
    strict_problems: list[str] = []
    """Fields that the body has twice, and what else strict decoding detects in the text of the body."""
    strategic_patch: Any = None
    """The decoded strategic merge patch, which errors show; None for every other write."""
    warnings: list[str] = []
    """Warnings for the client. The steps of the write append to it."""
    reinvocation: Reinvocation = msgspec.field(default_factory=Reinvocation)

    @property
    def key(self) -> str:
        """Key of the object in its collection."""
        return self.info.object_key(self.namespace, self.name)


class DeleteRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The deletion of one object."""

    info: ResourceInfo
    namespace: str = ""
    name: str = ""
    parameters: DeleteParameters = DeleteParameters()
    user: RequestUser = ADMIN
    warnings: list[str] = []
    """Warnings for the client. Admission appends to it."""

    @property
    def dry_run(self) -> bool:
        """True if nothing is to be stored."""
        return bool(self.parameters.dry_run)
