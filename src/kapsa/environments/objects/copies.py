"""Copies of Secrets and ConfigMaps into an environment's namespace, kept as their sources are.

A copy says which kind of source it has; copies that nothing asks for any more go. Nothing of what a Secret holds is
remembered: the cache has metadata only, and the content is read when source or copy have changed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from kapsa.adapters.secret_data import decoded_secret
from kapsa.environments.names import MANAGED_BY, OPERATOR
from kapsa.environments.objects.children import marked
from kapsa.environments.visit import Manifest, Visit
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
"""A label: whose object it is a copy of."""
Origin: TypeAlias = Literal["project", "environment", "registry", "domain-pool"]
Content: TypeAlias = Callable[[Manifest], Manifest]

_State: TypeAlias = tuple[str, str]
_SHORTEST_SECRET = 6
"""Shorter values, such as a port or a level of logging, are in most texts by chance."""


def _same(source: Manifest) -> Manifest:
    """What a copy has of its source: what it holds, and not whether it may be changed."""
    return {key: source[key] for key in ("type", "data", "binaryData") if key in source}


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """One object to be copied."""

    kind: str
    namespace: str
    """Where the source is."""
    name: str
    """The source's name."""
    origin: Origin
    target: str = ""
    """The copy's name; the source's if empty."""
    content: Content = _same
    """What the copy holds, from the source."""

    @property
    def target_name(self) -> str:
        return self.target or self.name


class MissingSourceError(Exception):
    """There is nothing to copy."""

    def __init__(self, copy: Copy) -> None:
        kind = copy.kind.rpartition("/")[2]
        super().__init__(f"there is no {kind} {copy.name} in namespace {copy.namespace}")
        self.copy = copy


class Copies:
    """Makes copies, and remembers of which version so that nothing is read or written while nothing has changed."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str, str], tuple[_State, _State]] = {}

    async def keep(self, visit: Visit, wanted: Sequence[Copy], origins: Iterable[Origin]) -> None:
        """Have these copies, and no others of these origins.

        :raises MissingSourceError: a source is not there. The copies that are no longer wanted are gone all the same.
        """
        await self._prune(visit, wanted, set(origins))
        for copy in wanted:
            await self._copy(visit, copy)

    def forget(self, uid: str) -> None:
        """The environment is gone."""
        for place in [place for place in self._made if place[0] == uid]:
            del self._made[place]

    async def _prune(self, visit: Visit, wanted: Sequence[Copy], origins: set[Origin]) -> None:
        kept = {(copy.kind, copy.target_name) for copy in wanted}
        for kind in (SECRET, CONFIG_MAP):
            for found in visit.ctx.list(kind, namespace=visit.place, labels=COPIED_FROM):
                metadata = found["metadata"]
                origin = metadata["labels"][COPIED_FROM]
                if origin in origins and (kind, metadata["name"]) not in kept:
                    await visit.ctx.delete(kind, metadata["name"], namespace=visit.place)

    async def _copy(self, visit: Visit, copy: Copy) -> None:
        ctx = visit.ctx
        visit.interests.note(ctx.key, copy.kind, copy.name, namespace=copy.namespace)
        place = (visit.environment.metadata.uid, copy.kind, copy.target_name)
        source = _state(ctx.get(copy.kind, copy.name, namespace=copy.namespace))
        target = _state(ctx.get(copy.kind, copy.target_name, namespace=visit.place))
        if source is not None and target is not None and self._made.get(place) == (source, target):
            return
        found = None
        with contextlib.suppress(NotFound):
            found = await ctx.client.get(copy.kind, copy.name, namespace=copy.namespace)
        if found is None:
            await ctx.delete(copy.kind, copy.target_name, namespace=visit.place)
            raise MissingSourceError(copy)
        made = await self._apply(visit, copy, found)
        read, written = _state(found), _state(made)
        if read is not None and written is not None:
            self._made[place] = (read, written)

    async def _apply(self, visit: Visit, copy: Copy, source: Manifest) -> Manifest:
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
            # A Secret's type cannot be changed: it is made anew, without a moment in which it is wrong.
            await visit.ctx.client.delete(copy.kind, copy.target_name, namespace=visit.place, missing_ok=True)
            return await visit.ctx.apply(desired, owner=False)


async def copied_secrets(visit: Visit) -> list[str]:
    """What the copies of Secrets in the namespace hold: it is hidden where an application repeats it."""
    texts: set[str] = set()
    for known in visit.ctx.list(SECRET, namespace=visit.place, labels=COPIED_FROM):
        with contextlib.suppress(ClientError):
            found = await visit.ctx.client.get(SECRET, known["metadata"]["name"], namespace=visit.place)
            texts |= set(decoded_secret(found).values())
    return [text for text in texts if len(text.strip()) >= _SHORTEST_SECRET]


def _state(found: Any) -> _State | None:
    """Which version of which object it is."""
    if found is None:
        return None
    metadata = found["metadata"]
    return metadata["uid"], metadata["resourceVersion"]
