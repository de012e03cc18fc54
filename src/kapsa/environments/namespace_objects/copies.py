"""Copies of Secrets and ConfigMaps in an environment's namespace, kept in sync with their sources.

A label of a copy names the kind of its origin; copies that are no longer needed are deleted. The content of a
Secret is never kept in memory: the cache has metadata only, and the content is read when the source or the
copy has changed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from kapsa.adapters.secret_data import decoded_secret
from kapsa.environments.names import MANAGED_BY, OPERATOR
from kapsa.environments.namespace_objects.children import marked
from kapsa.environments.step_run import Manifest, StepRun
from kapsa.runtime import ClientError, Invalid, NotFound

__all__ = [
    "CONFIG_MAP",
    "COPIED_FROM",
    "SECRET",
    "Copies",
    "Copy",
    "MissingSourceError",
    "Origin",
    "copied_secrets",
]

SECRET = "v1/Secret"  # noqa: S105 - a kind
CONFIG_MAP = "v1/ConfigMap"
COPIED_FROM = "catalyst.dev/copied-from"
"""A label with the origin of a copy."""
Origin: TypeAlias = Literal["project", "environment", "registry"]
Content: TypeAlias = Callable[[Manifest], Manifest]

_State: TypeAlias = tuple[str, str]
_SHORTEST_SECRET = 6
"""The shortest value to redact: shorter ones, such as a port, occur in most texts by chance."""


def _same(source: Manifest) -> Manifest:
    """Return the content that a copy shares with its source."""
    return {key: source[key] for key in ("type", "data", "binaryData") if key in source}


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """One object to copy."""

    kind: str
    namespace: str
    """The namespace of the source."""
    name: str
    """The source's name."""
    origin: Origin
    target: str = ""
    """The copy's name; the source's if empty."""
    content: Content = _same
    """The function that makes the content of the copy from the source."""

    @property
    def target_name(self) -> str:
        return self.target or self.name


class MissingSourceError(Exception):
    """The source of a copy does not exist."""

    def __init__(self, copy: Copy) -> None:
        kind = copy.kind.rpartition("/")[2]
        super().__init__(f"{kind} {copy.name} does not exist in namespace {copy.namespace}")
        self.copy = copy


class Copies:
    """The copies that were made, with their versions, to skip those that have not changed."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str, str], tuple[_State, _State]] = {}

    async def keep(self, visit: StepRun, copies: Sequence[Copy]) -> None:
        """Make these copies. Raises MissingSourceError if a source does not exist."""
        for copy in copies:
            await self._copy(visit, copy)

    def forget(self, uid: str) -> None:
        """Drop what is remembered of a deleted environment."""
        for key in [key for key in self._made if key[0] == uid]:
            del self._made[key]

    async def prune(self, visit: StepRun, copies: Sequence[Copy]) -> None:
        """Delete the copies that are not among these."""
        kept = {(copy.kind, copy.target_name) for copy in copies}
        for kind in (SECRET, CONFIG_MAP):
            for existing in visit.ctx.list(kind, namespace=visit.namespace, labels=COPIED_FROM):
                metadata = existing["metadata"]
                origin = metadata["labels"][COPIED_FROM]
                if origin in get_args(Origin) and (kind, metadata["name"]) not in kept:
                    await visit.ctx.delete(kind, metadata["name"], namespace=visit.namespace)

    async def _copy(self, visit: StepRun, copy: Copy) -> None:
        ctx = visit.ctx
        key = (visit.environment.metadata.uid, copy.kind, copy.target_name)
        source = _state(ctx.get(copy.kind, copy.name, namespace=copy.namespace, track=True))
        target = _state(ctx.get(copy.kind, copy.target_name, namespace=visit.namespace))
        if source is not None and target is not None and self._made.get(key) == (source, target):
            return
        content = None
        with contextlib.suppress(NotFound):
            content = await ctx.client.get(copy.kind, copy.name, namespace=copy.namespace)
        if content is None:
            await ctx.delete(copy.kind, copy.target_name, namespace=visit.namespace)
            raise MissingSourceError(copy)
        made = await self._apply(visit, copy, content)
        read, written = _state(content), _state(made)
        if read is not None and written is not None:
            self._made[key] = (read, written)

    async def _apply(self, visit: StepRun, copy: Copy, source: Manifest) -> Manifest:
        labels = {MANAGED_BY: OPERATOR, COPIED_FROM: copy.origin}
        manifest = {
            "apiVersion": "v1",
            "kind": copy.kind.rpartition("/")[2],
            "metadata": {"name": copy.target_name},
            **copy.content(source),
        }
        desired = marked(visit, manifest, labels)
        try:
            return await visit.ctx.apply(desired, owner=False)
        except Invalid:
            # A Secret's type is immutable: replace the Secret.
            await visit.ctx.client.delete(
                copy.kind, copy.target_name, namespace=visit.namespace, missing_ok=True
            )
            return await visit.ctx.apply(desired, owner=False)


async def copied_secrets(visit: StepRun) -> list[str]:
    """Return the values in the copied Secrets of the namespace, to redact them from logs and messages."""
    texts: set[str] = set()
    for copied in visit.ctx.list(SECRET, namespace=visit.namespace, labels=COPIED_FROM):
        with contextlib.suppress(ClientError):
            secret = await visit.ctx.client.get(SECRET, copied["metadata"]["name"], namespace=visit.namespace)
            texts |= set(decoded_secret(secret).values())
    return [text for text in texts if len(text.strip()) >= _SHORTEST_SECRET]


def _state(stored: Any) -> _State | None:
    """Return the UID and resource version of an object."""
    if stored is None:
        return None
    metadata = stored["metadata"]
    return metadata["uid"], metadata["resourceVersion"]
