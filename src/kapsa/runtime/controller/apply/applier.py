"""Server-side apply that sends nothing while nothing has changed, and detects changes by other managers.

The applier remembers what it applied to each object, with the version of the object that resulted. While the
desired object is the same, and our fields on the server are, no request is made. That takes one comparison
while the object's version stays the same, and a comparison of our own fields after another manager has
written to it. After a restart this memory is empty. Then the field ownership that the server keeps serves the
same purpose, as long as the server formats the values as we do: a field that we desire and no longer own was
changed while we were away.
"""

from __future__ import annotations

from typing import Any

import msgspec
import structlog

from kapsa.runtime.cache.cache import Cache
from kapsa.runtime.cache.object_parser import owned_fields
from kapsa.runtime.client.client import Client
from kapsa.runtime.controller._primary import Primary
from kapsa.runtime.controller.apply._field_ownership import (
    digest,
    drifted_paths,
    held_by_others,
    holds,
    managers_of,
    parse_fields,
    projection,
)
from kapsa.runtime.errors import ClientError
from kapsa.runtime.resources.metadata import GroupVersionKind
from kapsa.runtime.resources.model import encode_json
from kapsa.runtime.resources.stored_object import Change, Key, StoredObject

__all__ = ["Applied", "Applier", "Drift"]

_log = structlog.get_logger(__name__)

_RecordKey = tuple[GroupVersionKind, Key, str]
"""An object, by kind and key, and the field manager that applied it."""


class Drift(msgspec.Struct, frozen=True):
    """Changes that other managers made to fields that we own."""

    gvk: GroupVersionKind
    key: Key
    managers: dict[str, list[str]]
    """Each manager and the fields it changed."""

    def __str__(self) -> str:
        changes = "; ".join(
            f"{manager} changed {', '.join(paths)}" for manager, paths in self.managers.items()
        )
        return f"{self.gvk.kind} {self.key.name}: {changes or 'another manager changed our fields'}; reverted"


class Applied(msgspec.Struct, frozen=True):
    """The result of an apply."""

    object: dict[str, Any]
    """The object as the server has it, without managedFields."""
    changed: bool
    """True if a request was made and it changed something."""
    drift: Drift | None = None


class _Record(msgspec.Struct, gc=False):
    """An apply to one object, and the state that resulted."""

    desired: bytes
    uid: str
    version: str
    fields: bytes
    state: bytes
    """The object as it was then, while the cache holds the same text; empty once `ours` is computed."""
    _ours: bytes = b""

    def ours(self) -> bytes:
        """Return our fields as they were then.

        Computed late: needed only after another manager has written.
        """
        if self.state:
            then = msgspec.json.decode(self.state)
            self._ours = digest(projection(parse_fields(self.fields), then))
            self.state = b""
        return self._ours


class Applier:
    """An applier of objects for one operator."""

    def __init__(self, cache: Cache, *, manager: str) -> None:
        self.manager = manager
        self._cache = cache
        self._records: dict[_RecordKey, _Record] = {}
        self._managers = {manager}
        self._followed: set[GroupVersionKind] = set()

    async def apply(
        self,
        primary: Primary,
        gvk: GroupVersionKind,
        key: Key,
        desired: dict[str, Any],
        *,
        force: bool,
        manager: str,
    ) -> Applied:
        """Make the server have these fields, on behalf of a run, with a request only if one is needed.

        Raises OutdatedError if the request would come from an outdated state of the run's resource.
        """
        record_key = (gvk, key, manager)
        wish = digest(encode_json(desired))
        watched = self._cache.watches(gvk)
        live = self._cache.get(gvk, key) if watched else None
        record = self._records.get(record_key)
        drifted = False
        if live is not None:
            if live.deletion_timestamp is not None:
                # It is being deleted: a write would be lost. Its DELETED event causes the run that creates it.
                return Applied(live.to_dict(), changed=False)
            if self._still_holds(record_key, record, wish, desired, live):
                return Applied(live.to_dict(), changed=False)
            drifted = self._cache.keeps_all_of(gvk) and self._may_be_drift(record_key, wish, desired, live)
        await primary.confirm(live, gvk, key)
        client = primary.client
        drift = await self._explain(client, gvk, key, desired, record) if drifted else None
        raw = await client.apply(
            desired, into=bytes, force=force, field_manager=manager, namespace=key.namespace
        )
        stored = primary.record(gvk, raw, replaced=live)
        if stored is not None and self._cache.keeps_all_of(gvk):
            answer, fields, state = stored.to_dict(), stored.owned_fields, stored.raw
            if manager != self.manager:
                fields = owned_fields(raw, manager)
        else:
            answer = msgspec.json.decode(raw)
            answer["metadata"].pop("managedFields", None)
            fields, state = owned_fields(raw, manager), b""  # the cache keeps nothing whole to compare with
        if watched:
            self._remember(record_key, wish, fields, state, answer["metadata"])
        changed = live is None or live.resource_version != answer["metadata"]["resourceVersion"]
        return Applied(answer, changed=changed, drift=drift)

    def _follow(self, gvk: GroupVersionKind) -> None:
        """Forget what was applied to objects of a kind once they are gone."""

        def changed(change: Change) -> None:
            if change.new is None:
                key = change.object.key
                for manager in self._managers:
                    self._records.pop((gvk, key, manager), None)

        if gvk not in self._followed:
            self._followed.add(gvk)
            for informer in self._cache.of_kind(gvk):
                informer.add_handler(changed)

    def __len__(self) -> int:
        return len(self._records)

    def _still_holds(
        self,
        record_key: _RecordKey,
        record: _Record | None,
        wish: bytes,
        desired: dict[str, Any],
        live: StoredObject,
    ) -> bool:
        if record is not None and record.desired == wish and record.uid == live.uid:
            if record.version == live.resource_version:
                return True
            if not self._cache.keeps_all_of(record_key[0]):
                return False
            now = digest(projection(parse_fields(record.fields), live.to_dict()))
            if now == record.ours():
                record.version = live.resource_version
                return True
            return False
        if (
            not live.owned_fields
            or record_key[2] != self.manager
            or not self._cache.keeps_all_of(record_key[0])
        ):
            return False
        if not holds(parse_fields(live.owned_fields), desired, live.to_dict()):
            return False
        self._keep(
            record_key,
            _Record(
                desired=wish,
                uid=live.uid,
                version=live.resource_version,
                fields=live.owned_fields,
                state=live.raw,
            ),
        )
        return True

    def _may_be_drift(
        self,
        record_key: _RecordKey,
        wish: bytes,
        desired: dict[str, Any],
        live: StoredObject,
    ) -> bool:
        """Return whether another manager may be the cause, and not a new desired state."""
        if (record := self._records.get(record_key)) is not None:
            return record.desired == wish and record.uid == live.uid
        if not live.owned_fields or record_key[2] != self.manager:
            return False
        # After a restart: if a field that we still own differs, it is the desired state that has changed.
        return not any(drifted_paths(parse_fields(live.owned_fields), desired, live.to_dict()))

    def _keep(self, record_key: _RecordKey, record: _Record) -> None:
        cached = self._cache.get(record_key[0], record_key[1])
        if cached is None or cached.raw is not record.state:
            record.ours()  # else the record alone would keep the whole text in memory
        self._records[record_key] = record
        self._managers.add(record_key[2])
        self._follow(record_key[0])

    def _remember(
        self,
        record_key: _RecordKey,
        wish: bytes,
        fields: bytes,
        state: bytes,
        metadata: dict[str, Any],
    ) -> None:
        if not fields:  # the server does not report which fields are ours
            self._records.pop(record_key, None)
            return
        self._keep(
            record_key,
            _Record(
                desired=wish,
                uid=metadata["uid"],
                version=metadata["resourceVersion"],
                fields=fields,
                state=state,
            ),
        )

    async def _explain(
        self, client: Client, gvk: GroupVersionKind, key: Key, desired: dict[str, Any], record: _Record | None
    ) -> Drift | None:
        """Determine which managers changed our fields, before they are reverted and the trace is lost."""
        try:
            live = await client.get(str(gvk), key.name, into=dict, namespace=key.namespace)
        except ClientError as error:
            _log.info("drift not explained", object=f"{gvk.kind} {key}", error=str(error))
            return Drift(gvk, key, {}) if record is not None else None
        managed = live["metadata"].get("managedFields", ())
        if record is None:
            holders = held_by_others(managed, desired, live, ours=self.manager)
            return Drift(gvk, key, holders) if holders else None
        fields = parse_fields(record.fields)
        if digest(projection(fields, live)) == record.ours():
            return None  # reverted by someone else in the meantime
        paths = list(drifted_paths(fields, desired, live))
        return Drift(gvk, key, managers_of(managed, paths, ours=self.manager))
