"""Server-side apply that sends nothing while nothing has changed, and notices who changed what we own.

What was applied is remembered with the version of the object it led to. As long as the desired object is the same,
and our fields on the server are, no request is made: that is one comparison while the object's version stands still,
and a reading of our own fields when others have written to it. After a restart the memory is empty; then the
ownership that the server keeps tells as much, as long as the server spells the values as we do: a field that we want
and have lost to another manager was changed while we were away.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import structlog

from kapsa.runtime.cache.cache import Cache
from kapsa.runtime.cache.store import Change, Key, StoredObject
from kapsa.runtime.client.client import Client
from kapsa.runtime.controller._field_ownership import (
    digest,
    drifted_paths,
    held_by_others,
    holds,
    parse_fields,
    projection,
    who_changed,
)
from kapsa.runtime.errors import ClientError
from kapsa.runtime.resources.metadata import GroupVersionKind
from kapsa.runtime.resources.stored_object import owned_fields

__all__ = ["Applied", "Applier", "Drift"]

_log = structlog.get_logger(__name__)
_encode = msgspec.json.Encoder().encode


class Drift(msgspec.Struct, frozen=True):
    """Somebody else changed fields that we own."""

    gvk: GroupVersionKind
    key: Key
    managers: dict[str, list[str]]
    """Who, and which fields."""

    def __str__(self) -> str:
        who = "; ".join(f"{manager} changed {', '.join(paths)}" for manager, paths in self.managers.items())
        return f"{self.gvk.kind} {self.key.name}: {who or 'somebody changed our fields'}; put back"


class Applied(msgspec.Struct, frozen=True):
    """What came of an apply."""

    object: dict[str, Any]
    """The object as the server has it, without managedFields."""
    changed: bool
    """Whether a request was made and it changed something."""
    drift: Drift | None = None


class _Record(msgspec.Struct, gc=False):
    """What we applied to one object, and what that led to."""

    desired: bytes
    uid: str
    version: str
    fields: bytes
    state: bytes
    """The object as it was then, as long as the cache has the same; empty once our fields have been taken from it."""
    _ours: bytes = b""

    def ours(self) -> bytes:
        """Our fields as they were then. Mostly nobody asks: only when somebody has written to the object."""
        if self.state:
            then = msgspec.json.decode(self.state)
            self._ours = digest(projection(parse_fields(self.fields), then))
            self.state = b""
        return self._ours


class Applier:
    """Applies objects for one operator."""

    def __init__(self, cache: Cache, *, manager: str) -> None:
        self.manager = manager
        self._cache = cache
        self._records: dict[tuple[GroupVersionKind, Key, str], _Record] = {}
        self._managers = {manager}
        self._followed: set[GroupVersionKind] = set()

    async def apply(
        self,
        client: Client,
        gvk: GroupVersionKind,
        key: Key,
        desired: dict[str, Any],
        *,
        force: bool,
        manager: str,
        before_change: Callable[[StoredObject | None], Awaitable[None]],
    ) -> Applied:
        """Make the server have these fields, by a request only if it is needed.

        `before_change` is told what is there, if anything, before a request is sent; it raises to prevent that.
        """
        place = (gvk, key, manager)
        wanted = digest(_encode(desired))
        watched = self._cache.watches(gvk)
        live = self._cache.get(gvk, key) if watched else None
        record = self._records.get(place)
        drifted = False
        if live is not None:
            if live.deletion_timestamp is not None:
                # It goes; a write now is lost. Its DELETED event brings the run that makes it anew.
                return Applied(live.to_dict(), changed=False)
            if self._still_holds(place, record, wanted, desired, live):
                return Applied(live.to_dict(), changed=False)
            drifted = self._cache.keeps_all_of(gvk) and self._may_be_drift(place, wanted, desired, live)
        await before_change(live)
        drift = await self._explain(client, gvk, key, desired, record) if drifted else None
        raw = await client.apply(
            desired, into=bytes, force=force, field_manager=manager, namespace=key.namespace
        )
        stored = self._cache.note_write(gvk, raw) if watched else None
        if stored is not None and self._cache.keeps_all_of(gvk):
            answer, fields, state = stored.to_dict(), stored.owned_fields, stored.raw
            if manager != self.manager:
                fields = owned_fields(raw, manager)
        else:
            answer = msgspec.json.decode(raw)
            answer["metadata"].pop("managedFields", None)
            fields, state = owned_fields(raw, manager), b""  # there is nothing whole to compare it with
        if watched:
            self._remember(place, wanted, fields, state, answer["metadata"])
        changed = live is None or live.resource_version != answer["metadata"]["resourceVersion"]
        return Applied(answer, changed=changed, drift=drift)

    def _follow(self, gvk: GroupVersionKind) -> None:
        """Forget what we applied to an object once that is gone."""

        def changed(change: Change) -> None:
            if change.new is None:
                key = change.object.key
                for place in [(gvk, key, manager) for manager in self._managers]:
                    self._records.pop(place, None)

        if gvk not in self._followed:
            self._followed.add(gvk)
            for informer in self._cache.of_kind(gvk):
                informer.add_handler(changed)

    def __len__(self) -> int:
        return len(self._records)

    def _still_holds(
        self,
        place: tuple[GroupVersionKind, Key, str],
        record: _Record | None,
        wanted: bytes,
        desired: dict[str, Any],
        live: StoredObject,
    ) -> bool:
        if record is not None and record.desired == wanted and record.uid == live.uid:
            if record.version == live.resource_version:
                return True
            if not self._cache.keeps_all_of(place[0]):
                return False
            now = digest(projection(parse_fields(record.fields), live.to_dict()))
            if now == record.ours():
                record.version = live.resource_version
                return True
            return False
        if not live.owned_fields or place[2] != self.manager or not self._cache.keeps_all_of(place[0]):
            return False
        if not holds(parse_fields(live.owned_fields), desired, live.to_dict()):
            return False
        self._keep(
            place,
            _Record(
                desired=wanted,
                uid=live.uid,
                version=live.resource_version,
                fields=live.owned_fields,
                state=live.raw,
            ),
        )
        return True

    def _may_be_drift(
        self,
        place: tuple[GroupVersionKind, Key, str],
        wanted: bytes,
        desired: dict[str, Any],
        live: StoredObject,
    ) -> bool:
        """Whether somebody else may be the reason that the object is not as desired, and not a new wish of ours."""
        if (record := self._records.get(place)) is not None:
            return record.desired == wanted and record.uid == live.uid
        if not live.owned_fields or place[2] != self.manager:
            return False
        # After a restart: where a field that is still ours differs, it is the wish that has changed.
        return not any(drifted_paths(parse_fields(live.owned_fields), desired, live.to_dict()))

    def _keep(self, place: tuple[GroupVersionKind, Key, str], record: _Record) -> None:
        cached = self._cache.get(place[0], place[1])
        if cached is None or cached.raw is not record.state:
            record.ours()  # or the whole text would be held for this alone
        self._records[place] = record
        self._managers.add(place[2])
        self._follow(place[0])

    def _remember(
        self,
        place: tuple[GroupVersionKind, Key, str],
        wanted: bytes,
        fields: bytes,
        state: bytes,
        metadata: dict[str, Any],
    ) -> None:
        if not fields:  # nothing tells what is ours
            self._records.pop(place, None)
            return
        self._keep(
            place,
            _Record(
                desired=wanted,
                uid=metadata["uid"],
                version=metadata["resourceVersion"],
                fields=fields,
                state=state,
            ),
        )

    async def _explain(
        self, client: Client, gvk: GroupVersionKind, key: Key, desired: dict[str, Any], record: _Record | None
    ) -> Drift | None:
        """Find out who changed our fields, before we put them back and the trace is gone."""
        try:
            live = await client.get(str(gvk), key.name, into=dict, namespace=key.namespace)
        except ClientError as error:
            _log.info("drift, but nobody to name", object=f"{gvk.kind} {key}", error=str(error))
            return Drift(gvk, key, {}) if record is not None else None
        managed = live["metadata"].get("managedFields", ())
        if record is None:
            holders = held_by_others(managed, desired, live, ours=self.manager)
            return Drift(gvk, key, holders) if holders else None
        fields = parse_fields(record.fields)
        if digest(projection(fields, live)) == record.ours():
            return None  # somebody put it back meanwhile
        paths = list(drifted_paths(fields, desired, live))
        return Drift(gvk, key, who_changed(managed, paths, ours=self.manager))
