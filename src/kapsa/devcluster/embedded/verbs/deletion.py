"""Deletion: grace, finalizers, preconditions, propagation; what it means to be gone."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

import msgspec

from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.codec.canonical import timestamp
from kapsa.devcluster.embedded.codec.stored_form import decode, stored_form, with_revision
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.embedded.storage.store import Stored
from kapsa.devcluster.wire import status_errors as errors
from kapsa.devcluster.wire.exchange import ADMIN, RequestUser
from kapsa.schemas import field_errors, go_format

__all__ = [
    "DeleteParameters",
    "DeleteRequest",
    "Preconditions",
    "advance",
    "delete",
    "finish_if_released",
    "remove",
]

Object = dict[str, Any]
ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
_POLICIES = ("Background", "Foreground", "Orphan")


class Preconditions(msgspec.Struct, frozen=True, rename="camel"):
    """What must be true of the object for it to be deleted."""

    uid: str | None = None
    resource_version: str | None = None


class DeleteParameters(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """metav1.DeleteOptions."""

    grace_period_seconds: int | None = None
    preconditions: Preconditions | None = None
    orphan_dependents: bool | None = None
    propagation_policy: str | None = None
    dry_run: list[str] | None = None

    def validate(self) -> None:
        """Refuse options that contradict each other.

        :raises ApiError: 422, as the real server does.
        """
        problems = []
        if self.orphan_dependents is not None and self.propagation_policy is not None:
            detail = "orphanDependents and deletionPropagation cannot be both set"
            problems.append(field_errors.invalid("propagationPolicy", self.propagation_policy, detail))
        if self.propagation_policy is not None and self.propagation_policy not in _POLICIES:
            problems.append(
                field_errors.not_supported(
                    "propagationPolicy",
                    self.propagation_policy,
                    ["Foreground", "Background", "Orphan", "nil"],
                )
            )
        if self.dry_run and self.dry_run != ["All"]:
            problems.append(field_errors.not_supported("dryRun", self.dry_run, ["All"]))
        if problems:
            raise errors.invalid(_OptionsKind(), "", problems)


class _OptionsKind(msgspec.Struct, frozen=True):
    kind: str = "DeleteOptions"
    group: str = "meta.k8s.io"
    resource: str = ""


class DeleteRequest(msgspec.Struct, kw_only=True):
    """One deletion in flight."""

    info: ResourceInfo
    namespace: str = ""
    name: str = ""
    options: DeleteParameters = DeleteParameters()
    user: RequestUser = ADMIN
    warnings: list[str] = []

    @property
    def dry_run(self) -> bool:
        return bool(self.options.dry_run)


async def delete(backend: Backend, deletion: DeleteRequest) -> tuple[Stored, bool]:
    """Begin (or finish) the deletion of an object: its state now, and whether it is gone.

    :raises ApiError: as the real server's delete would.
    """
    info, name = deletion.info, deletion.name
    collection = backend.collection(info)
    key = info.object_key(deletion.namespace, name)
    while True:
        live = collection.get(key)
        if live is None:
            raise errors.not_found(info, name)
        obj = decode(live)
        _check_preconditions(info, obj, deletion.options.preconditions)
        for admission in backend.admission:
            await admission.validate_deletion(deletion, obj)
        if collection.get(key) is live:
            return advance(backend, deletion, obj, live)


def _check_preconditions(info: ResourceInfo, obj: Object, wanted: Preconditions | None) -> None:
    if wanted is None:
        return
    meta = obj["metadata"]
    if wanted.uid is not None and wanted.uid != meta["uid"]:
        why = (
            f"the UID in the precondition ({wanted.uid}) does not match the UID in record ({meta['uid']}). "
            "The object might have been deleted and then recreated"
        )
        raise errors.conflict(info, meta["name"], why, kind=info.kind)
    if wanted.resource_version is not None and wanted.resource_version != meta["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({wanted.resource_version}) does not match the ResourceVersion "
            f"in record ({meta['resourceVersion']}). The object might have been modified"
        )
        raise errors.conflict(info, meta["name"], why, kind=info.kind)


def advance(backend: Backend, deletion: DeleteRequest, obj: Object, live: Stored) -> tuple[Stored, bool]:
    """Take one step towards the end: mark the object, or remove it."""
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
    """Seconds the object is given (None: its kind knows no grace), and whether it is ending already."""
    meta = obj["metadata"]
    requested = deletion.options.grace_period_seconds
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
    """Move the end of a graceful deletion closer, never into the past."""
    ends = datetime.fromisoformat(meta["deletionTimestamp"]) + timedelta(seconds=requested - current)
    now = backend.clock.now()
    if ends < now:
        ends, requested = now, 1 if requested else 0
    meta["deletionTimestamp"] = timestamp(ends)
    meta["deletionGracePeriodSeconds"] = requested
    return requested


def _finalizers(backend: Backend, deletion: DeleteRequest, obj: Object) -> list[str]:
    """The object's finalizers, with those of the propagation policy put in or taken out."""
    existing = obj["metadata"].get("finalizers") or []
    policy = _policy(backend, deletion, existing, obj)
    kept = [finalizer for finalizer in existing if finalizer not in (ORPHAN, FOREGROUND)]
    if policy == "orphan":
        kept.append(ORPHAN)
    elif policy == "foreground":
        kept.append(FOREGROUND)
    return existing if set(kept) == set(existing) else kept


def _policy(backend: Backend, deletion: DeleteRequest, existing: list[str], obj: Object) -> str:
    options = deletion.options
    default = backend.strategy(deletion.info).default_propagation(obj)
    if default == "unsupported":
        return "background"
    if options.orphan_dependents is not None:
        return "orphan" if options.orphan_dependents else "background"
    if options.propagation_policy is not None:
        return options.propagation_policy.lower()
    if ORPHAN in existing:
        return "orphan"
    if FOREGROUND in existing:
        return "foreground"
    return default


def _mark(backend: Backend, obj: Object) -> None:
    """Set the deletion timestamp of an object that waits for finalizers only."""
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
    stored = with_revision(unchanged, backend.store.next_revision)
    backend.collection(info).put(stored)
    return stored


def remove(backend: Backend, info: ResourceInfo, live: Stored) -> Stored:
    """Take an object out of the store; its last state, at the revision of its deletion."""
    last = with_revision(live, backend.store.next_revision)
    backend.collection(info).remove(last)
    return last


def finish_if_released(backend: Backend, info: ResourceInfo, obj: Object, live: Stored) -> bool:
    """Remove an object whose deletion waited for nothing but the finalizers this update takes away."""
    meta = obj["metadata"]
    if not meta.get("deletionTimestamp") or meta.get("finalizers") or meta.get("deletionGracePeriodSeconds"):
        return False
    if not backend.strategy(info).may_go(obj):
        return False
    remove(backend, info, live)
    return True


def options_of_query(values: dict[str, list[str]]) -> DeleteParameters:
    """The options of a deletion that has no body."""
    grace = values.get("gracePeriodSeconds", [""])[0]
    orphan = values.get("orphanDependents", [""])[0]
    if grace and not re.fullmatch("[+-]?[0-9]{1,18}", grace):
        text = go_format.quote(grace)
        raise errors.bad_request(f"strconv.ParseInt: parsing {text}: invalid syntax")
    return DeleteParameters(
        grace_period_seconds=int(grace) if grace else None,
        orphan_dependents=orphan.lower() not in ("0", "false") if orphan else None,
        propagation_policy=values["propagationPolicy"][0] if "propagationPolicy" in values else None,
        dry_run=values.get("dryRun"),
    )
