"""Server-side apply, and field ownership of all other writes.

`apply` merges a configuration into the live object; `track_update` records the fields that a create, an
update or a patch changed. Both return a new object with current metadata.managedFields. They do not change
their arguments; the result shares the parts that did not change.
"""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.apply import managedfields
from kapsa.devcluster.embedded.apply.claims import claimed, reconciled
from kapsa.devcluster.embedded.apply.comparison import Comparison, equal
from kapsa.devcluster.embedded.apply.conflicts import ApplyConflict, reject_conflicts
from kapsa.devcluster.embedded.apply.fieldset import (
    Fields,
    contains,
    difference,
    from_paths,
    ordered,
    recursive_difference,
    union,
)
from kapsa.devcluster.embedded.apply.last_applied_annotation import allowed_fields, with_last_applied
from kapsa.devcluster.embedded.apply.managedfields import Entry, Managed, Manager
from kapsa.devcluster.embedded.apply.merge import merge
from kapsa.devcluster.embedded.apply.object_versions import Convert, Versions
from kapsa.devcluster.embedded.apply.removal import without_abandoned
from kapsa.devcluster.embedded.apply.shape import TypedError
from kapsa.devcluster.embedded.apply.typecheck import check
from kapsa.devcluster.embedded.codec.written_form import zero_object
from kapsa.devcluster.wire.status_errors import StatusError, bad_request
from kapsa.schemas.schema import Schema

__all__ = ["ApplyConflict", "Convert", "apply", "check_request", "failed", "track_update"]

Object = dict[str, Any]
_UNTRACKED = from_paths(
    ("apiVersion",),
    ("kind",),
    ("metadata",),
    *(
        ("metadata", name)
        for name in (
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "clusterName",
            "generation",
            "managedFields",
            "resourceVersion",
        )
    ),
)
"""Fields that no manager owns: they identify the object, or the server sets them."""


def failed(message: str) -> StatusError:
    """Return an error that kube-apiserver does not classify: 500 without a reason."""
    return StatusError(500, "", message)


def track_update(
    old: Object | None,
    new: Object,
    *,
    manager: str,
    schema: Schema | None,
    subresource: str = "",
    api_version: str,
    now: str,
    reset: Fields | None = None,
    convert: Convert | None = None,
) -> Object:
    """Return `new` with current managedFields: `manager` owns the fields it changed, the others lose them.

    `old` is None for a create. `reset` are fields that this endpoint always takes from the old object
    (`status`, for the main resource), so that no manager gets to own them here.
    """
    live = old if old is not None else zero_object(schema, api_version, new.get("kind", ""))
    managed, trusted = _managed_of_write(live, new, subresource)
    # An object that lost its managedFields is not tracked again until a configuration is applied to it.
    if not managed and old is not None:
        return _with_managed_fields(new, [])
    versions = Versions(api_version, schema, reset, convert)
    author = Manager(manager or "unknown", "Update", api_version, subresource)
    try:
        after = _updated(live, new, managed, author, versions, now)
    except TypedError:
        # Fields that do not fit the schema cannot be owned; validation decides about the object.
        return _with_managed_fields(new, [])
    if after is managed and trusted:
        return _with_managed_fields(new, _entries(live))
    return _with_managed_fields(new, managedfields.encode(managedfields.capped(after)))


def _managed_of_write(live: Object, new: Object, subresource: str) -> tuple[Managed, bool]:
    """Return the entries that a write starts from, and whether they are the live object's own, unchanged.

    A request may replace the list, through the main resource only; one that leaves it out does not change it.
    """
    before = _entries(live)
    entries = (new.get("metadata") or {}).get("managedFields")
    if isinstance(entries, list):
        entries = [{} if entry is None else entry for entry in entries]  # as Go reads a null
    if subresource or entries is None or entries == before:
        return managedfields.decode(before, trusted=True), True
    if managedfields.is_reset(entries):
        return {}, False
    try:
        managed = managedfields.decode(entries, trusted=False)
    except managedfields.ManagedFieldsError:
        managed = {}
    if managed:
        return managed, False
    return managedfields.decode(before, trusted=True), True


def _updated(
    live: Object, new: Object, managed: Managed, author: Manager, versions: Versions, now: str
) -> Managed:
    """Return the entries after `author` changed `live` to `new`, the same dict if no owner changes."""
    comparison = versions.compare(live, new, author.api_version)
    assert comparison is not None
    own = difference(comparison.changed, _UNTRACKED)
    after = _without(_reconciled(live, managed, versions), comparison, live, new, versions)
    if not own:
        return after
    result = dict(after)
    before = result.get(author)
    fields = union(own, before.fields) if before else own
    time = (before.time if before else None) if _loses_time(author) else now
    result[author] = Entry(ordered(fields), author.api_version, time)
    return result


def _loses_time(author: Manager) -> bool:
    """Return whether a new time is lost, as in a Scale: its entries are translated to those of its object."""
    return author.subresource == "scale"


def _reconciled(live: Object, managed: Managed, versions: Versions) -> Managed:
    """Return the entries after a change of schema, without those of versions that are no longer served."""
    result = managed
    for manager, entry in managed.items():
        there = versions.at(live, entry.api_version)
        fields = None if there is None else reconciled(entry.fields, there[1])
        if fields is entry.fields:
            continue
        if result is managed:
            result = dict(managed)
        if fields is None:
            del result[manager]
        else:
            result[manager] = entry._replace(fields=fields)
    return result


def _without(
    managed: Managed,
    comparison: Comparison,
    live: Object,
    new: Object,
    versions: Versions,
    *,
    keep: Manager | None = None,
) -> Managed:
    """Return the entries without changed and removed fields, except that of `keep`; drop empty ones."""
    result = managed
    lost = {versions.api_version: union(comparison.changed, comparison.removed)}
    for manager, entry in managed.items():
        version = entry.api_version
        if manager == keep:
            fields = entry.fields
        else:
            if version not in lost:
                there = versions.compare(live, new, version)
                lost[version] = union(there.changed, there.removed) if there else entry.fields
            fields = difference(entry.fields, lost[version])
        if fields and fields is entry.fields:
            continue
        if result is managed:
            result = dict(managed)
        if fields:
            result[manager] = entry._replace(fields=fields)
        else:
            del result[manager]
    return result


def apply(
    live: Object | None,
    applied: Object,
    *,
    manager: str,
    schema: Schema | None,
    force: bool,
    subresource: str = "",
    api_version: str,
    now: str,
    kind: str = "",
    reset: Fields | None = None,
    convert: Convert | None = None,
) -> Object:
    """Merge `applied` into the live object, without the fields that `manager` applied before and now omits.

    `live` is None if the object does not exist. Raises ApplyConflict, or another StatusError for a
    configuration that cannot be applied. The caller fills in defaults, which no manager owns.
    """
    check_request(applied, api_version, kind)
    versions = Versions(api_version, schema, reset, convert)
    base = live if live is not None else {"apiVersion": api_version, "kind": applied.get("kind", kind)}
    managed = managedfields.decode(_entries(base), trusted=True)
    try:
        check(applied, versions.shape)
    except TypedError as error:
        raise failed(f"failed to create typed patch object ({_identify(applied)}): {error}") from error
    try:
        if not managed and live is not None:
            empty = zero_object(schema, api_version, base.get("kind", kind))
            first = Manager("before-first-apply", "Update", api_version, subresource)
            managed = _updated(empty, base, {}, first, versions, now)
        author = Manager(manager, "Apply", subresource=subresource)
        new, managed = _apply_as_kubectl(base, applied, managed, author, versions, force=force)
    except TypedError as error:
        raise failed(f"failed to merge config: {error}") from error
    if not equal(base, new) and author in managed and not _loses_time(author):
        managed[author] = managed[author]._replace(time=now)
    if manager == "kubectl":
        new = with_last_applied(new, applied)
    return _with_managed_fields(_without_null_metadata(new), managedfields.encode(managed))


def _without_null_metadata(obj: Object) -> Object:
    """Drop nulls from metadata, where a list or map that lost its last entry is absent, not null."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict) or None not in metadata.values():
        return obj
    return {**obj, "metadata": {name: value for name, value in metadata.items() if value is not None}}


def check_request(applied: Object, api_version: str, kind: str) -> None:
    """Reject a configuration of another type than `kind`, if that is given, or one with managedFields."""
    version, name = applied.get("apiVersion", ""), applied.get("kind", "")
    if kind and (version, name) != (api_version, kind):
        raise bad_request(f"invalid object type: {_group_version_kind(version, name)}")
    if isinstance((applied.get("metadata") or {}).get("managedFields"), list):
        raise bad_request("metadata.managedFields must be nil")


def _group_version_kind(api_version: str, kind: str) -> str:
    group_version = api_version if "/" in api_version else f"/{api_version}"
    return f"{group_version}, Kind={kind}"


def _identify(obj: Object) -> str:
    metadata = obj.get("metadata") or {}
    gvk = _group_version_kind(obj.get("apiVersion", ""), obj.get("kind", ""))
    return f"{metadata.get('namespace', '')}/{metadata.get('name', '')}; {gvk}"


def _applied(
    live: Object, config: Object, managed: Managed, author: Manager, versions: Versions, *, force: bool
) -> tuple[Object, Managed]:
    managed = _reconciled(live, managed, versions)
    last = managed.get(author)
    claim = recursive_difference(claimed(config, versions.shape), versions.reset)
    managed = {
        **managed,
        author: Entry(ordered(claim), versions.api_version, last.time if last else None),
    }
    new = merge(live, config, versions.shape)
    if last is not None and (last.api_version != versions.api_version or difference(last.fields, claim)):
        new = without_abandoned(new, last, managed, versions)
    comparison = versions.compare(live, new, versions.api_version)
    assert comparison is not None
    if not force:
        reject_conflicts(managed, author, comparison, live, new, versions)
    managed = dict(_without(managed, comparison, live, new, versions, keep=author))
    if author in managed:
        fields = difference(managed[author].fields, _UNTRACKED)
        managed[author] = managed[author]._replace(fields=fields)
        if not fields:
            del managed[author]
    return new, managed


def _apply_as_kubectl(
    live: Object, config: Object, managed: Managed, author: Manager, versions: Versions, *, force: bool
) -> tuple[Object, Managed]:
    """Apply. kubectl may also take over the fields of its client-side apply, recorded in its annotation."""
    try:
        return _applied(live, config, managed, author, versions, force=force)
    except ApplyConflict as conflict:
        allowed = (
            allowed_fields(live, versions.api_version, versions.shape) if author.name == "kubectl" else None
        )
        if allowed is None:
            raise
        rest = [(manager, path) for manager, path in conflict.conflicts if not contains(allowed, path)]
        if rest:
            raise ApplyConflict(rest) from conflict
    return _applied(live, config, managed, author, versions, force=True)


# -- metadata.managedFields


def _entries(obj: Object) -> list[dict[str, Any]]:
    return (obj.get("metadata") or {}).get("managedFields") or []


def _with_managed_fields(obj: Object, entries: list[dict[str, Any]]) -> Object:
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        return {**obj, "metadata": {"managedFields": entries}} if entries else obj
    if not entries and "managedFields" not in metadata:
        return obj
    rest = {name: value for name, value in metadata.items() if name != "managedFields"}
    return {**obj, "metadata": {**rest, "managedFields": entries} if entries else rest}
