"""Deletion: preconditions, grace periods, finalizers, propagation, removal."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.codec.canonical import timestamp
from kapsa.devcluster.embedded.codec.stored_form import decode, stored_form
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.embedded.requests.mutations import DeleteRequest
from kapsa.devcluster.embedded.requests.parameters import Preconditions
from kapsa.devcluster.embedded.storage.store import Stored
from kapsa.devcluster.embedded.verbs.commit import commit_stored, remove
from kapsa.devcluster.wire import status_errors as errors

__all__ = ["FOREGROUND", "ORPHAN", "advance", "check_preconditions", "delete", "finish_if_released"]

Object = dict[str, Any]
ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"


async def delete(backend: Backend, deletion: DeleteRequest) -> tuple[Stored, bool]:
    """Begin or finish the deletion of an object. Return its state, and whether it was removed.

    Raises StatusError as the real server's delete would.
    """
    info, name = deletion.info, deletion.name
    collection = backend.collection(info)
    key = info.object_key(deletion.namespace, name)
    while True:
        live = collection.get(key)
        if live is None:
            raise errors.not_found(info, name)
        obj = decode(live)
        check_preconditions(info, obj, deletion.parameters.preconditions)
        for admission in backend.admission_of(info):
            await admission.validate_deletion(deletion, obj)
        if collection.get(key) is live:
            return advance(backend, deletion, obj, live)


def check_preconditions(info: ResourceInfo, obj: Object, required: Preconditions | None) -> None:
    """Raise StatusError 409 when an object does not have the required uid or revision."""
    if required is None:
        return
    meta = obj["metadata"]
    if required.uid is not None and required.uid != meta["uid"]:
        why = (
            f"the UID in the precondition ({required.uid}) does not match the UID in record ({meta['uid']}). "
            "The object might have been deleted and then recreated"
        )
        raise errors.conflict(info, meta["name"], why, kind=info.kind)
    if required.resource_version is not None and required.resource_version != meta["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({required.resource_version}) does not match the ResourceVersion "
            f"in record ({meta['resourceVersion']}). The object might have been modified"
        )
        raise errors.conflict(info, meta["name"], why, kind=info.kind)


def advance(backend: Backend, deletion: DeleteRequest, obj: Object, live: Stored) -> tuple[Stored, bool]:
    """Mark an object as being deleted, or remove it if nothing holds it back."""
    meta = obj["metadata"]
    strategy = backend.strategy(deletion.info)
    if not meta.get("deletionTimestamp") and strategy.defer_deletion(obj, backend.now()):
        return _store(backend, deletion, obj, live), False
    grace, pending = _grace(backend, deletion, obj)
    if pending:
        return live, False
    finalizers = _finalizers(backend, deletion, obj)
    if finalizers:
        meta["finalizers"] = finalizers
    else:
        meta.pop("finalizers", None)
    waits = bool(finalizers) or not strategy.may_go(obj)
    if grace is None and waits:
        _mark(backend, obj)
    if grace is not None or waits:
        live = _store(backend, deletion, obj, live)
        if waits or grace:
            return live, False
    if deletion.dry_run:
        return live, True
    return remove(backend, deletion.info, live), True


def _grace(backend: Backend, deletion: DeleteRequest, obj: Object) -> tuple[int | None, bool]:
    """Return the grace period in seconds (None: not a graceful kind), and whether it is already running."""
    meta = obj["metadata"]
    requested = deletion.parameters.grace_period_seconds
    if requested is not None and requested < 0:
        requested = 1
    period = backend.strategy(deletion.info).grace_seconds(obj, requested)
    if period is None:
        return None, False
    if not meta.get("deletionTimestamp"):
        meta["deletionTimestamp"] = timestamp(backend.clock.now() + timedelta(seconds=period))
        meta["deletionGracePeriodSeconds"] = period
        if meta.get("generation"):
            meta["generation"] += 1
        return period, False
    current = meta.get("deletionGracePeriodSeconds")
    if not current:
        return None, False
    if requested is None or requested >= current:
        return None, True
    return _shorten(backend, meta, current, requested), False


def _shorten(backend: Backend, meta: Object, current: int, requested: int) -> int:
    """Shorten a running grace period, never into the past."""
    ends = datetime.fromisoformat(meta["deletionTimestamp"]) + timedelta(seconds=requested - current)
    now = backend.clock.now()
    if ends < now:
        ends, requested = now, 1 if requested else 0
    meta["deletionTimestamp"] = timestamp(ends)
    meta["deletionGracePeriodSeconds"] = requested
    return requested


def _finalizers(backend: Backend, deletion: DeleteRequest, obj: Object) -> list[str]:
    """Return the finalizers with those of the propagation policy added or removed."""
    existing = obj["metadata"].get("finalizers") or []
    policy = _policy(backend, deletion, existing, obj)
    kept = [finalizer for finalizer in existing if finalizer not in (ORPHAN, FOREGROUND)]
    if policy == "orphan":
        kept.append(ORPHAN)
    elif policy == "foreground":
        kept.append(FOREGROUND)
    return existing if set(kept) == set(existing) else kept


def _policy(backend: Backend, deletion: DeleteRequest, existing: list[str], obj: Object) -> str:
    parameters = deletion.parameters
    default = backend.strategy(deletion.info).default_propagation(obj)
    if default == "unsupported":
        return "background"
    if parameters.orphan_dependents is not None:
        return "orphan" if parameters.orphan_dependents else "background"
    if parameters.propagation_policy is not None:
        return parameters.propagation_policy.lower()
    if ORPHAN in existing:
        return "orphan"
    if FOREGROUND in existing:
        return "foreground"
    return default


def _mark(backend: Backend, obj: Object) -> None:
    """Set the deletion timestamp of an object that only waits for finalizers."""
    meta = obj["metadata"]
    now = backend.now()
    if not meta.get("deletionTimestamp") and meta.get("generation"):
        meta["generation"] += 1
    if not meta.get("deletionTimestamp") or meta["deletionTimestamp"] > now:
        meta["deletionTimestamp"] = now
    meta["deletionGracePeriodSeconds"] = 0


def _store(backend: Backend, deletion: DeleteRequest, obj: Object, live: Stored) -> Stored:
    info = deletion.info
    unchanged = stored_form(info, obj, live.revision)
    if unchanged.body == live.body or deletion.dry_run:
        return unchanged
    return commit_stored(backend, info, unchanged)


def finish_if_released(backend: Backend, info: ResourceInfo, obj: Object, live: Stored) -> bool:
    """Remove an object if the finalizers that an update removes were the last obstacle. Return whether it did."""
    meta = obj["metadata"]
    if not meta.get("deletionTimestamp") or meta.get("finalizers") or meta.get("deletionGracePeriodSeconds"):
        return False
    if not backend.strategy(info).may_go(obj):
        return False
    remove(backend, info, live)
    return True
