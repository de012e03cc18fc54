"""Create and update: from a decoded body to a committed change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kapsa.devcluster.embedded.apply.field_manager import track_update
from kapsa.devcluster.embedded.apply.managedfields import keep_times_of_unchanged
from kapsa.devcluster.embedded.apply.object_versions import converter
from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.codec.claimed_version import unknown_in_its_version
from kapsa.devcluster.embedded.codec.restored_types import print_as_go, restore_types
from kapsa.devcluster.embedded.codec.scale import has_replicas
from kapsa.devcluster.embedded.codec.stored_form import stored_form, with_revision
from kapsa.devcluster.embedded.codec.typed_decoding import DecodingError, check_metadata, check_types
from kapsa.devcluster.embedded.codec.version_conversion import from_storage, to_storage
from kapsa.devcluster.embedded.codec.written_form import store_as_go, write_as_go
from kapsa.devcluster.embedded.kinds import names
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.embedded.requests.options import WriteParameters
from kapsa.devcluster.embedded.storage.store import Stored
from kapsa.devcluster.embedded.verbs import metadata
from kapsa.devcluster.embedded.verbs.deletion import finish_if_released
from kapsa.devcluster.embedded.verbs.reset_fields import reset_fields
from kapsa.devcluster.wire import status_errors as errors
from kapsa.devcluster.wire.exchange import ADMIN, RequestUser
from kapsa.schemas import field_errors, go_format
from kapsa.schemas.defaulting import apply_defaults, fill_defaults
from kapsa.schemas.pruning import prune
from kapsa.schemas.validation import unknown_fields, validate, validate_status

__all__ = [
    "Transform",
    "WriteRequest",
    "cannot_decode",
    "create",
    "shown_patched",
    "tell_of_another_version",
    "update",
]

Object = dict[str, Any]
_STRICT_PROBLEMS = 100
Transform = Callable[[Object | None], Object]
"""From the live object (None: there is none) to the wanted one. Called again when the live object moves on."""

_ATTEMPTS = 5


class WriteRequest(msgspec.Struct, kw_only=True):
    """One write in flight."""

    info: ResourceInfo
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    options: WriteParameters = WriteParameters()
    user: RequestUser = ADMIN
    warnings: list[str] = []
    patches: bool = False
    """Whether this is a patch of some type: only a whole object's uid is a precondition."""
    strategic: Any = None
    """The patch, if it is a strategic merge patch."""
    duplicates: list[str] = []
    """Fields that the body has twice, and what else strict decoding finds in a patch."""
    applies: bool = False
    """Whether this is an apply, which keeps the record of field managers itself and may create."""
    created: bool = False
    """Set when an update or apply turned out to be a create."""

    @property
    def key(self) -> str:
        return self.info.object_key(self.namespace, self.name)


async def create(backend: Backend, write: WriteRequest, obj: Object) -> Stored:
    """Store a new object.

    :raises ApiError: as the real server's create would.
    """
    info = write.info
    strategy = backend.strategy(info)
    _decode_into_schema(write, obj)
    metadata.check_namespace(info, obj, write.namespace)
    write.name = obj["metadata"].get("name") or ""
    metadata.wipe_system_fields(obj)
    strategy.reset_for_create(obj)
    if not info.is_custom:
        write_as_go(info.schema, obj)
    obj = _track(backend, write, obj, None)
    strategy.admit_create(obj)
    for admission in backend.admission:
        obj = await admission.mutate(write, obj, None)
    meta = obj["metadata"]
    generated = not meta.get("name") and meta.get("generateName")
    if generated:
        meta["name"] = names.generate(meta["generateName"], backend.random)
    write.name = meta.get("name") or ""
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
    for admission in backend.admission:
        await admission.validate(write, obj, None)
    write.warnings.extend(strategy.warnings(obj, None))
    if meta.get("resourceVersion") and not write.created:
        raise errors.StatusError(500, "", "resourceVersion should not be set on objects to be created")
    if info.converter is not None:
        obj = await info.converter.to_storage(obj)
    existing = backend.collection(info).get(write.key)
    if existing is not None:
        if generated:
            raise errors.generate_name_conflict(info, write.name)
        raise errors.already_exists(info, write.name, ends=b'"deletionTimestamp":"' in existing.body)
    stored = _commit_create(backend, write, obj)
    if info.converter is not None:
        await info.converter.prepare([stored])
    return stored


async def update(backend: Backend, write: WriteRequest, transform: Transform) -> Stored:
    """Replace an object by what ``transform`` makes of it.

    :raises ApiError: as the real server's update and patch would.
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
        _decode_into_schema(write, obj)
        _check_identity(write, obj)
        _check_revision(backend, write, obj, old)
        obj = keep_times_of_unchanged(await _prepare_update(backend, write, obj, old), old)
        if converter is not None:
            obj = await converter.to_storage(obj)
        if collection.get(write.key) is live:
            stored = _commit_update(backend, write, obj, live)
            if converter is not None:
                await converter.prepare([stored])
            return stored
    raise errors.conflict(write.info, write.name)


async def _create_by_update(backend: Backend, write: WriteRequest, transform: Transform) -> Stored:
    allowed = write.applies or backend.strategy(write.info).allows_create_on_update
    if not allowed or write.subresource:
        if not write.patches:
            # A whole object is read, and warned about, before anybody looks whether there is one to replace.
            obj = transform(None)
            _decode_into_schema(write, obj)
            _check_identity(write, obj)
        raise errors.not_found(write.info, write.name)
    obj = transform(None)
    _check_identity(write, obj)
    if write.applies and (uid := obj["metadata"].get("uid")):
        why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        raise errors.conflict(write.info, write.name, why)
    write.created = True
    return await create(backend, write, obj)


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
    """Optimistic locking: a resourceVersion that the update carries must be the live one."""
    meta, live = obj["metadata"], old["metadata"]
    if meta.get("uid") and meta["uid"] != live["uid"]:
        if write.patches:
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
            # The store knows resources only, and names one where a kind belongs.
            told = msgspec.structs.replace(write.info.stored_as, kind=write.info.resource)
            raise errors.invalid(told, write.name, [problem])
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
    is_system = write.subresource == "binding"
    metadata.keep_system_fields(obj, old)
    if is_status:
        strategy.reset_for_status(obj, old)
    elif is_whole:
        strategy.reset_for_update(obj, old)
    if not info.is_custom:
        write_as_go(info.schema, obj)
    if not is_system:
        obj = _track(backend, write, obj, old)
    for admission in backend.admission:
        obj = await admission.mutate(write, obj, old)
    metadata.keep_system_fields(obj, old)
    if is_whole:
        strategy.prepare_for_update(obj, old)
    if not (is_status or is_system) and strategy.counts_generations and strategy.raises_generation(obj, old):
        obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
    own = strategy.validate_status(obj, old) if is_status else []
    own += strategy.validate_update(obj, old) if is_whole else []
    check = validate_status if is_status else validate
    problems = check(
        info.schema if info.is_custom else None,
        obj,
        old,
        before=metadata.validate_change(info, obj, old),
        after=own,
    )
    if problems:
        raise errors.invalid(info.stored_as, write.name, problems)
    for admission in backend.admission:
        await admission.validate(write, obj, old)
    write.warnings.extend(strategy.warnings(obj, old))
    return obj


def _track(backend: Backend, write: WriteRequest, obj: Object, old: Object | None) -> Object:
    """Record which fields this write's manager sets."""
    if write.applies:
        return obj
    if write.subresource == "scale" and write.info.is_custom and not has_replicas(write.info, old or {}):
        # The real server has no entry to translate then, and records nothing.
        return obj
    if write.info.is_custom and obj["metadata"].get("managedFields") == []:
        # Metadata of a custom resource is decoded first, and an empty list says nothing there.
        del obj["metadata"]["managedFields"]
    return track_update(
        old,
        obj,
        manager=write.options.manager,
        schema=write.info.schema,
        subresource=write.subresource,
        api_version=write.info.api_version,
        now=backend.now(),
        reset=reset_fields(write.info, write.subresource),
        convert=converter(backend.registry, write.info),
    )


def _decode_into_schema(write: WriteRequest, obj: Object) -> None:
    """Refuse what does not fit the kind's types; name, then drop, unknown fields; fill defaults."""
    info = write.info
    schema = info.schema
    if schema is None:
        return
    if write.applies and info.is_custom:
        # A configuration fits its schema already, and its nulls are for validation to judge.
        fill_defaults(schema, obj)
        return
    try:
        if info.is_custom:
            check_metadata(obj)
        elif write.strategic is not None:
            restore_types(schema, obj)
        else:
            check_types(schema, obj, info)
    except DecodingError as error:
        raise cannot_decode(write, obj, str(error)) from None
    directive = write.options.field_validation
    if directive == "Ignore":
        prune(schema, obj)
    elif problems := _strict_problems(write, unknown_fields(schema, obj)):
        if directive == "Strict":
            raise cannot_decode(write, obj, f"strict decoding error: {_joined(problems)}")
        write.warnings.extend(problems)
        prune(schema, obj)
    apply_defaults(schema, obj)


def _strict_problems(write: WriteRequest, unknown: list[str]) -> list[str]:
    # What is wrong with a patch itself comes before what is wrong with what it makes.
    found = [*write.duplicates, *unknown] if write.patches else [*unknown, *write.duplicates]
    # Go's decoder of built-in kinds tells so many and no more.
    return found if write.info.is_custom else found[:_STRICT_PROBLEMS]


def tell_of_another_version(write: WriteRequest, obj: Object) -> None:
    """Name the fields of a custom resource that the version it claims to be of does not have."""
    if not write.info.is_custom or not isinstance(obj.get("apiVersion"), str):
        return
    directive = write.options.field_validation
    problems = [] if directive == "Ignore" else unknown_in_its_version(write.info, obj)
    if problems and directive == "Strict":
        raise cannot_decode(write, obj, f"strict decoding error: {_joined(problems)}")
    write.warnings.extend(problems)


def _joined(problems: list[str]) -> str:
    if problems[0].startswith("line "):
        return "yaml: unmarshal errors:\n  " + "\n  ".join(problems)
    return ", ".join(problems)


def cannot_decode(write: WriteRequest, obj: Any, why: str) -> errors.StatusError:
    """What a client is told whose object does not fit its kind; of a patch, with the object it made."""
    if not write.patches or write.applies:
        kind, version = write.info.kind, go_format.quote(obj["apiVersion"].rpartition("/")[2])
        return errors.bad_request(f"{kind} in version {version} cannot be handled as a {kind}: {why}")
    return errors.invalid(_Nothing(), "", [field_errors.invalid("patch", shown_patched(write, obj), why)])


def shown_patched(write: WriteRequest, obj: Any) -> str:
    """What the real server shows of a patch: itself if it is strategic, what it made if not."""
    if write.strategic is not None:
        return print_as_go(write.strategic)
    if write.info.is_custom or not isinstance(obj, dict):
        return msgspec.json.encode(obj, order="sorted").decode()
    return msgspec.json.encode(dict(sorted(obj.items()))).decode()


class _Nothing(msgspec.Struct, frozen=True):
    """The kind of an error about no kind."""

    group: str = ""
    resource: str = ""
    kind: str = ""


def _commit_create(backend: Backend, write: WriteRequest, obj: Object) -> Stored:
    revision = backend.store.next_revision
    _lose(write.info, obj)
    if write.options.dry_run:
        return stored_form(write.info, to_storage(write.info, obj), 0)
    obj["metadata"]["resourceVersion"] = str(revision)
    stored = stored_form(write.info, to_storage(write.info, obj), revision)
    backend.collection(write.info).put(stored)
    return stored


def _commit_update(backend: Backend, write: WriteRequest, obj: Object, live: Stored) -> Stored:
    _lose(write.info, obj)
    unchanged = stored_form(write.info, to_storage(write.info, obj), live.revision)
    if write.options.dry_run or _same(unchanged.body, live.body):
        return unchanged
    if finish_if_released(backend, write.info, obj, live):
        return unchanged
    stored = with_revision(unchanged, backend.store.next_revision)
    backend.collection(write.info).put(stored)
    return stored


def _lose(info: ResourceInfo, obj: Object) -> None:
    # Definitions and custom resources are stored as JSON, which loses nothing.
    if not info.is_custom and info.group != "apiextensions.k8s.io":
        store_as_go(info.schema, obj)


def _same(body: bytes, other: bytes) -> bool:
    """Whether two objects differ in nothing but the order of their fields."""
    return body == other or (
        len(body) == len(other) and bool(msgspec.json.decode(body) == msgspec.json.decode(other))
    )
