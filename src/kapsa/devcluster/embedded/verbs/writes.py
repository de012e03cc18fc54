"""Create and update: from a decoded body to a committed change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kapsa.devcluster.embedded.apply.field_manager import track_update
from kapsa.devcluster.embedded.apply.managedfields import keep_times_of_unchanged
from kapsa.devcluster.embedded.apply.object_versions import converter
from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.codec.scale import has_replicas
from kapsa.devcluster.embedded.codec.stored_form import stored_form
from kapsa.devcluster.embedded.codec.version_conversion import from_storage, to_storage
from kapsa.devcluster.embedded.codec.written_form import store_as_go, write_as_go
from kapsa.devcluster.embedded.kinds import names
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.embedded.requests.mutations import Reinvocation, WriteRequest
from kapsa.devcluster.embedded.requests.parameters import WriteMethod
from kapsa.devcluster.embedded.storage.store import Stored
from kapsa.devcluster.embedded.verbs import metadata
from kapsa.devcluster.embedded.verbs.commit import commit, commit_stored
from kapsa.devcluster.embedded.verbs.decoder import decode_into_schema
from kapsa.devcluster.embedded.verbs.deletion import finish_if_released
from kapsa.devcluster.embedded.verbs.reset_fields import reset_fields
from kapsa.devcluster.wire import status_errors as errors
from kapsa.schemas import field_errors, go_format
from kapsa.schemas.validation import validate, validate_status

__all__ = ["Transform", "Written", "create", "update"]

Object = dict[str, Any]
Transform = Callable[[Object | None], Object]
"""Turns the live object (None if it does not exist) into the requested one; called again if the live one changes."""

_ATTEMPTS = 5
_PARTS = ("approval", "ephemeralcontainers", "resize")


class Written(msgspec.Struct, frozen=True):
    """The outcome of an update."""

    stored: Stored
    created: bool = False
    """True if the object did not exist and was created."""


async def create(backend: Backend, write: WriteRequest, obj: Object) -> Stored:
    """Store a new object. Raises StatusError as the real server's create would."""
    info = write.info
    strategy = backend.strategy(info)
    decode_into_schema(write, obj)
    metadata.check_namespace(info, obj, write.namespace)
    write = _named(write, obj)
    metadata.wipe_system_fields(obj)
    strategy.reset_for_create(obj)
    if not info.is_custom:
        write_as_go(info.schema, obj)
    obj = _track(backend, write, obj, None)
    strategy.admit_create(obj)
    obj = await _mutate(backend, write, obj, None)
    meta = obj["metadata"]
    generated = not meta.get("name") and meta.get("generateName")
    if generated:
        meta["name"] = names.generate(meta["generateName"], backend.random)
    write = _named(write, obj)
    metadata.initialize(obj, uid=backend.new_uid(), now=backend.now())
    strategy.prepare_for_create(obj)
    if strategy.counts_generations:
        obj["metadata"]["generation"] = 1
    problems = validate(
        info.schema if info.is_custom else None,
        obj,
        before=metadata.validate(info, obj, names.validator_of(info)),
        after=strategy.validate_create(obj),
    )
    if problems:
        raise errors.invalid(info.stored_as, write.name, problems)
    for admission in backend.admission_of(info):
        await admission.validate(write, obj, None)
    write.warnings.extend(strategy.warnings(obj, None))
    if _names_revision(meta.get("resourceVersion")) and write.method is WriteMethod.CREATE:
        raise errors.StatusError(500, "", "resourceVersion should not be set on objects to be created")
    if info.converter is not None:
        obj = await info.converter.to_storage(obj)
    existing = backend.collection(info).get(write.key)
    if existing is not None:
        if generated:
            raise errors.generate_name_conflict(info, write.name)
        raise errors.already_exists(info, write.name, deleting=b'"deletionTimestamp":"' in existing.body)
    stored = _commit_create(backend, write, obj)
    if info.converter is not None:
        await info.converter.prepare([stored])
    return stored


def _names_revision(text: str | None) -> bool:
    """Return whether a resourceVersion is a number other than zero. On creation the real server ignores all others."""
    if text is None or not text.isascii() or not text.isdigit():
        return False
    digits = text.lstrip("0")
    return 0 < len(digits) <= 20 and int(digits) < 2**64


def _named(write: WriteRequest, obj: Object) -> WriteRequest:
    name = obj["metadata"].get("name") or ""
    return write if name == write.name else msgspec.structs.replace(write, name=name)


async def update(backend: Backend, write: WriteRequest, transform: Transform) -> Written:
    """Replace an object with the result of `transform`, or create it where the kind allows that.

    Raises StatusError as the real server's update and patch would.
    """
    collection = backend.collection(write.info)
    for _ in range(_ATTEMPTS):
        live = collection.get(write.key)
        if live is None:
            return await _create_by_update(backend, write, transform)
        converter = write.info.converter
        if converter is not None:
            await converter.prepare([live])
        old = from_storage(write.info, live)
        obj = transform(from_storage(write.info, live))
        decode_into_schema(write, obj)
        _check_identity(write, obj)
        _check_revision(backend, write, obj, old)
        if write.reinvocation.requested:
            write = msgspec.structs.replace(write, reinvocation=Reinvocation())
        obj = keep_times_of_unchanged(await _prepare_update(backend, write, obj, old), old)
        if converter is not None:
            obj = await converter.to_storage(obj)
        if collection.get(write.key) is live:
            stored = _commit_update(backend, write, obj, live)
            if converter is not None:
                await converter.prepare([stored])
            return Written(stored)
    raise errors.conflict(write.info, write.name)


async def _create_by_update(backend: Backend, write: WriteRequest, transform: Transform) -> Written:
    applies = write.method is WriteMethod.APPLY
    allowed = applies or backend.strategy(write.info).allows_create_on_update
    if not allowed or write.subresource:
        if not write.method.is_patch:
            # The real server decodes a whole object, with warnings, before it looks up the one to replace.
            obj = transform(None)
            decode_into_schema(write, obj)
            _check_identity(write, obj)
        raise errors.not_found(write.info, write.name)
    obj = transform(None)
    _check_identity(write, obj)
    if applies and (uid := obj["metadata"].get("uid")):
        why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        raise errors.conflict(write.info, write.name, why)
    return Written(await create(backend, write, obj), created=True)


def _check_identity(write: WriteRequest, obj: Object) -> None:
    name = obj["metadata"].get("name") or ""
    if not name:
        raise errors.bad_request(
            f"the name of the object ({write.name} based on URL) was undeterminable: name must be provided"
        )
    if name != write.name:
        raise errors.bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({write.name})"
        )
    metadata.check_namespace(write.info, obj, write.namespace)


def _check_revision(backend: Backend, write: WriteRequest, obj: Object, old: Object) -> None:
    """Check optimistic locking: the uid and resourceVersion of an update must be the live ones."""
    meta, live = obj["metadata"], old["metadata"]
    if meta.get("uid") and meta["uid"] != live["uid"]:
        if write.method.is_patch:
            # Checked for every kind, and once more by the kind itself.
            problem = field_errors.invalid("metadata.uid", meta["uid"], "field is immutable")
            raise errors.invalid(write.info.stored_as, write.name, [problem, problem])
        key = f"/registry/{errors.qualified(write.info)}/{write.key}"
        if not write.info.is_custom:
            key = f"/registry/{write.info.resource}/{write.key}"
        why = (
            f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: "
            f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {live['uid']}"
        )
        raise errors.conflict(write.info, write.name, why)
    given = meta.get("resourceVersion") or ""
    if not given or given == "0":
        if not backend.strategy(write.info).allows_unconditional_update:
            problem = field_errors.invalid("metadata.resourceVersion", 0, "must be specified for an update")
            # The real server's store has no kinds, and names the resource instead.
            resource_as_kind = msgspec.structs.replace(write.info.stored_as, kind=write.info.resource)
            raise errors.invalid(resource_as_kind, write.name, [problem])
        meta["resourceVersion"] = live["resourceVersion"]
        return
    if not given.isdigit():
        quoted = go_format.quote(given)
        raise errors.StatusError(500, "", f"strconv.ParseUint: parsing {quoted}: invalid syntax")
    if given != live["resourceVersion"]:
        raise errors.conflict(write.info, write.name)


async def _prepare_update(backend: Backend, write: WriteRequest, obj: Object, old: Object) -> Object:
    info = write.info
    strategy = backend.strategy(info)
    is_status = write.subresource in ("status", "approval")
    is_whole = write.subresource in ("", "scale")
    is_part = write.subresource in _PARTS
    is_end = write.subresource == "finalize"
    is_system = write.subresource == "binding"
    metadata.keep_system_fields(obj, old)
    if is_status:
        strategy.reset_for_status(obj, old)
    elif is_whole or is_part:
        strategy.reset_for_update(obj, old)
    if not info.is_custom:
        write_as_go(info.schema, obj)
    if not is_system:
        obj = _track(backend, write, obj, old)
    obj = await _mutate(backend, write, obj, old)
    metadata.keep_system_fields(obj, old)
    if is_whole:
        strategy.prepare_for_update(obj, old)
    elif is_part:
        strategy.prepare_for_part(write.subresource, obj, old)
    elif is_status:
        strategy.prepare_for_status(obj, old)
    if is_status:
        strategy.complete_conditions(obj, old, backend.now())
    if not (is_status or is_system) and strategy.counts_generations and strategy.raises_generation(obj, old):
        obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
    own = strategy.validate_status(obj, old) if is_status and not is_part else []
    own += strategy.validate_update(obj, old) if is_whole else []
    own += strategy.validate_part(write.subresource, obj, old) if is_part or is_end else []
    check = validate_status if is_status else validate
    problems = check(
        info.schema if info.is_custom else None,
        obj,
        old,
        before=metadata.validate_change(info, obj, old),
        after=own,
        warnings=write.warnings,
    )
    if problems:
        raise errors.invalid(info.stored_as, write.name, problems)
    for admission in backend.admission_of(info):
        await admission.validate(write, obj, old)
    write.warnings.extend(strategy.warnings(obj, old))
    return obj


async def _mutate(backend: Backend, write: WriteRequest, obj: Object, old: Object | None) -> Object:
    """Pass an object through mutating admission, twice if a webhook or policy has changed it."""
    plugins = backend.admission_of(write.info)
    for plugin in plugins:
        obj = await plugin.mutate(write, obj, old)
    if write.reinvocation.requested:
        write.reinvocation.is_second = True
        for plugin in plugins:
            obj = await plugin.mutate(write, obj, old)
    return obj


def _track(backend: Backend, write: WriteRequest, obj: Object, old: Object | None) -> Object:
    """Record which fields this write's manager sets."""
    if write.method is WriteMethod.APPLY:
        return obj
    if write.subresource == "scale" and write.info.is_custom and not has_replicas(write.info, old or {}):
        # The real server has no entry to translate then, and records nothing.
        return obj
    if write.info.is_custom and obj["metadata"].get("managedFields") == []:
        # The metadata of a custom resource is decoded first, which drops an empty list.
        del obj["metadata"]["managedFields"]
    return track_update(
        old,
        obj,
        manager=write.parameters.manager,
        schema=write.info.schema,
        subresource=write.subresource,
        api_version=write.info.api_version,
        now=backend.now(),
        reset=reset_fields(write.info, write.subresource),
        convert=converter(backend.registry, write.info),
    )


def _commit_create(backend: Backend, write: WriteRequest, obj: Object) -> Stored:
    _drop_what_go_loses(write.info, obj)
    if write.parameters.dry_run:
        return stored_form(write.info, to_storage(write.info, obj), 0)
    return commit(backend, write.info, to_storage(write.info, obj))


def _commit_update(backend: Backend, write: WriteRequest, obj: Object, live: Stored) -> Stored:
    _drop_what_go_loses(write.info, obj)
    unchanged = stored_form(write.info, to_storage(write.info, obj), live.revision)
    if write.parameters.dry_run or _same(unchanged.body, live.body):
        return unchanged
    if finish_if_released(backend, write.info, obj, live):
        return unchanged
    return commit_stored(backend, write.info, unchanged)


def _drop_what_go_loses(info: ResourceInfo, obj: Object) -> None:
    # Definitions and custom resources are stored as JSON, which loses nothing.
    if not info.is_custom and info.group != "apiextensions.k8s.io":
        store_as_go(info.schema, obj)


def _same(body: bytes, other: bytes) -> bool:
    """Return whether two objects differ at most in the order of their fields."""
    return body == other or (
        len(body) == len(other) and bool(msgspec.json.decode(body) == msgspec.json.decode(other))
    )
