"""Server-side apply, and field ownership of every other write.

`apply` merges a configuration into the live object; `track_update` records who changed what in an object that was
made by a create, an update or a patch. Both return a new object whose metadata.managedFields is right; they leave
their arguments alone, and the result shares the parts that did not change.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from . import managedfields
from .comparison import Comparison, compare, equal
from .errors import ApiError, bad_request
from .field_errors import quote
from .fieldset import (
    Fields,
    contains,
    difference,
    from_paths,
    intersection,
    ordered,
    path_text,
    paths,
    recursive_difference,
    union,
)
from .managedfields import Entry, Managed, Manager
from .merging import merge, remove
from .ownership import claimed, reconciled, with_named_fields
from .schema import Schema
from .shape import Shape, TypedError, shape_of
from .typecheck import check
from .written_form import zero_object

__all__ = ["ApplyConflict", "Convert", "apply", "check_request", "failed", "track_update"]

Object = dict[str, Any]
Convert = Callable[[Object, str], tuple[Object, Schema | None] | None]
"""The object in another API version, with that version's schema; None if the version is not served any more."""

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_ANNOTATIONS_LIMIT = 256 * 1024
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
"""What identifies an object, or is the server's own, belongs to no manager."""


class ApplyConflict(ApiError):  # noqa: N818 - the word Kubernetes uses
    """Fields that other managers own and this configuration would change: 409 unless it is forced."""

    def __init__(self, conflicts: Iterable[tuple[Manager, tuple[str, ...]]]) -> None:
        self.conflicts = list(conflicts)
        causes = [
            {
                "reason": "FieldManagerConflict",
                "message": f"conflict with {_describe(manager)}",
                "field": path_text(path),
            }
            for manager, path in self.conflicts
        ]
        super().__init__(409, "Conflict", _conflict_message(self.conflicts), details={"causes": causes})


def _conflict_message(conflicts: list[tuple[Manager, tuple[str, ...]]]) -> str:
    if len(conflicts) == 1:
        manager, path = conflicts[0]
        return f"Apply failed with 1 conflict: conflict with {_describe(manager)}: {path_text(path)}"
    lines: list[str] = []
    for manager in dict.fromkeys(manager for manager, _ in conflicts):
        lines.append(f"conflicts with {_describe(manager)}:")
        lines.extend(f"- {path_text(path)}" for owner, path in conflicts if owner == manager)
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)


def _describe(manager: Manager) -> str:
    text = quote(manager.name)
    if manager.subresource:
        text += f" with subresource {quote(manager.subresource)}"
    return f"{text} using {manager.api_version}" if manager.operation == "Update" else text


def failed(message: str) -> ApiError:
    """An error the real server does not classify: 500 without a reason."""
    return ApiError(500, "", message)


class _Versions(NamedTuple):
    """The object's shape here, and how it looks to managers that wrote it in another version."""

    api_version: str
    schema: Schema | None
    reset: Fields
    convert: Convert | None

    @property
    def shape(self) -> Shape:
        return shape_of(self.schema)

    def at(self, obj: Object, api_version: str) -> tuple[Object, Shape] | None:
        if api_version == self.api_version or self.convert is None:
            return obj, self.shape
        converted = self.convert(obj, api_version)
        return None if converted is None else (converted[0], shape_of(converted[1]))

    def compare(self, old: Object, new: Object, api_version: str) -> Comparison | None:
        """The comparison in one version, without the fields this endpoint resets anyway."""
        before, after = self.at(old, api_version), self.at(new, api_version)
        if before is None or after is None:
            return None
        skip = frozenset(key[2:] for key, node in self.reset.items() if not node)
        comparison = compare(before[0], after[0], before[1], skip=skip)
        if len(skip) == len(self.reset):
            return comparison
        return Comparison(*(recursive_difference(fields, self.reset) for fields in comparison))


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
    """`new` with its managedFields maintained: `manager` owns what it changed, others lose it.

    `old` is None for a create. `reset` are fields that this endpoint takes from the old object whatever the request
    says (`status`, seen from the main resource), so nobody comes to own them here.
    """
    live = old if old is not None else zero_object(schema, api_version, new.get("kind", ""))
    managed, trusted = _managed_of_write(live, new, subresource)
    # An object that lost its managedFields is not tracked again before somebody applies to it.
    if not managed and old is not None:
        return _with_managed_fields(new, [])
    versions = _Versions(api_version, schema, reset or {}, convert)
    author = Manager(manager or "unknown", "Update", api_version, subresource)
    bare = _with_managed_fields(new, [])
    try:
        after = _updated(_with_managed_fields(live, []), bare, managed, author, versions, now)
    except TypedError:
        # What does not fit the schema cannot be owned; validation decides whether the object stands.
        return bare
    if after is managed and trusted:
        return _with_managed_fields(new, _entries(live))
    return _with_managed_fields(new, managedfields.encode(managedfields.capped(after)))


def _managed_of_write(live: Object, new: Object, subresource: str) -> tuple[Managed, bool]:
    """The entries a write starts from, and whether they are the live object's own list, unchanged.

    A request may replace the list, through the main resource only; one that leaves it out means no harm.
    """
    before = _entries(live)
    entries = (new.get("metadata") or {}).get("managedFields")
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
    live: Object, new: Object, managed: Managed, author: Manager, versions: _Versions, now: str
) -> Managed:
    """The entries after `author` turned `live` into `new`; the same dict if nothing changed hands."""
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
    """A Scale's entries are translated from and to its object's, and a new time gets lost on the way."""
    return author.subresource == "scale"


def _reconciled(live: Object, managed: Managed, versions: _Versions) -> Managed:
    """The entries after a change of schema, without those of versions that are gone."""
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
    versions: _Versions,
    *,
    keep: Manager | None = None,
) -> Managed:
    """The entries without what changed or went, except those of `keep`; whoever is left with nothing disappears."""
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
    """The live object with `applied` merged in, and without what `manager` applied before and now leaves out.

    `live` is None when the object does not exist. Raises ApplyConflict, or another ApiError for a configuration
    that cannot be applied. Defaults are the caller's: they belong to nobody.
    """
    check_request(applied, api_version, kind)
    versions = _Versions(api_version, schema, reset or {}, convert)
    base = live if live is not None else {"apiVersion": api_version, "kind": applied.get("kind", kind)}
    managed = managedfields.decode(_entries(base), trusted=True)
    bare = _with_managed_fields(base, [])
    try:
        check(applied, versions.shape)
    except TypedError as error:
        raise failed(f"failed to create typed patch object ({_identify(applied)}): {error}") from error
    try:
        if not managed and live is not None:
            empty = zero_object(schema, api_version, base.get("kind", kind))
            first = Manager("before-first-apply", "Update", api_version, subresource)
            managed = _updated(empty, bare, {}, first, versions, now)
        author = Manager(manager, "Apply", subresource=subresource)
        new, managed = _apply_as_kubectl(bare, applied, managed, author, versions, force=force)
    except TypedError as error:
        raise failed(f"failed to merge config: {error}") from error
    if not equal(bare, new) and author in managed and not _loses_time(author):
        managed[author] = managed[author]._replace(time=now)
    if manager == "kubectl":
        new = _with_last_applied(new, applied)
    return _with_managed_fields(new, managedfields.encode(managed))


def check_request(applied: Object, api_version: str, kind: str) -> None:
    """Refuse a configuration of another type (if `kind` says which it must be), or one that names managers."""
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
    live: Object, config: Object, managed: Managed, author: Manager, versions: _Versions, *, force: bool
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
        new = _pruned(new, last, managed, versions)
    comparison = versions.compare(live, new, versions.api_version)
    assert comparison is not None
    if not force:
        _refuse_conflicts(managed, comparison, author, live, new, versions)
    managed = dict(_without(managed, comparison, live, new, versions, keep=author))
    if author in managed:
        fields = difference(managed[author].fields, _UNTRACKED)
        managed[author] = managed[author]._replace(fields=fields)
        if not fields:
            del managed[author]
    return new, managed


def _refuse_conflicts(
    managed: Managed, comparison: Comparison, author: Manager, live: Object, new: Object, versions: _Versions
) -> None:
    changed: dict[str, Fields] = {versions.api_version: comparison.changed}
    conflicts: list[tuple[Manager, tuple[str, ...]]] = []
    for manager in sorted(managed, key=lambda one: one.sort_text):
        version = managed[manager].api_version
        if manager == author:
            continue
        if version not in changed:
            there = versions.compare(live, new, version)
            changed[version] = there.changed if there else {}
        conflicts += (
            (manager, path) for path in paths(intersection(managed[manager].fields, changed[version]))
        )
    if conflicts:
        raise ApplyConflict(conflicts)


def _pruned(merged: Object, last: Entry, managed: Managed, versions: _Versions) -> Object:
    """`merged` without what the author applied last time, does not apply now, and nobody else owns."""
    there = versions.at(merged, last.api_version)
    if there is None:
        return merged
    whole, shape = there
    former = with_named_fields(last.fields, shape)
    kept = remove(whole, former, shape)
    for version, owned in _owned_by_version(managed, last.api_version):
        kept = _restore_owned(whole, kept, version, owned, last.api_version, versions)
    # What the author never owned stays, even where nobody owns it.
    present = with_named_fields(claimed(whole, shape), shape)
    left = with_named_fields(claimed(kept, shape), shape)
    result = remove(whole, intersection(difference(present, left), former), shape)
    if last.api_version == versions.api_version or versions.convert is None:
        return result
    back = versions.convert(result, versions.api_version)
    return merged if back is None else back[0]


def _owned_by_version(managed: Managed, first: str) -> list[tuple[str, Fields]]:
    """What all managers own together, by the version they said it in, `first` ahead of the others."""
    owned: dict[str, Fields] = {}
    for entry in managed.values():
        owned[entry.api_version] = union(owned.get(entry.api_version, {}), entry.fields)
    return sorted(owned.items(), key=lambda item: item[0] != first)


def _restore_owned(
    whole: Object, kept: Object, version: str, owned: Fields, home: str, versions: _Versions
) -> Object:
    """`kept` plus the parts of `whole` that somebody owns in `version`; both objects are at version `home`."""
    if version != home and versions.convert is not None:
        there = versions.convert(whole, version)
        kept_there = versions.convert(kept, version)
        if there is None or kept_there is None:
            return kept
        restored = _restore_owned(there[0], kept_there[0], version, owned, version, versions)
        back = versions.convert(restored, home)
        return kept if back is None else back[0]
    found = versions.at(whole, version)
    assert found is not None
    shape = found[1]
    present, left, ours = (
        with_named_fields(fields, shape) for fields in (claimed(whole, shape), claimed(kept, shape), owned)
    )
    return remove(whole, difference(present, union(left, ours)), shape)


# -- kubectl: from client-side to server-side apply


def _apply_as_kubectl(
    live: Object, config: Object, managed: Managed, author: Manager, versions: _Versions, *, force: bool
) -> tuple[Object, Managed]:
    """Apply; kubectl may also take fields that its own client-side apply set, as its annotation records."""
    try:
        return _applied(live, config, managed, author, versions, force=force)
    except ApplyConflict as conflict:
        allowed = _allowed_by_last_applied(live, versions) if author.name == "kubectl" else None
        if allowed is None:
            raise
        rest = [(manager, path) for manager, path in conflict.conflicts if not contains(allowed, path)]
        if rest:
            raise ApplyConflict(rest) from conflict
    return _applied(live, config, managed, author, versions, force=True)


def _allowed_by_last_applied(live: Object, versions: _Versions) -> Fields | None:
    """The fields of the last-applied annotation that the live object still has as they were."""
    text = ((live.get("metadata") or {}).get("annotations") or {}).get(_LAST_APPLIED)
    if not text:
        return None
    try:
        config = msgspec.json.decode(text)
        if not isinstance(config, dict) or config.get("apiVersion") != versions.api_version:
            return None
        check(config, versions.shape)
        comparison = compare(config, live, versions.shape, skip=frozenset())
        fields = claimed(config, versions.shape)
    except (msgspec.DecodeError, TypedError):
        return None
    return difference(fields, union(comparison.changed, comparison.removed))


def _with_last_applied(obj: Object, applied: Object) -> Object:
    """Keep the annotation of an object that moved from client-side apply, so that moving back works."""
    metadata = obj.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    if not annotations.get(_LAST_APPLIED):
        return obj
    config = applied
    own = (applied.get("metadata") or {}).get("annotations")
    if own and _LAST_APPLIED in own:
        rest = {name: value for name, value in own.items() if name != _LAST_APPLIED}
        config = {**applied, "metadata": {**applied["metadata"], "annotations": rest}}
    annotations = {**annotations, _LAST_APPLIED: _go_json(config) + "\n"}
    if (
        sum(len(name.encode()) + len(value.encode()) for name, value in annotations.items())
        > _ANNOTATIONS_LIMIT
    ):
        del annotations[_LAST_APPLIED]
    return {**obj, "metadata": {**metadata, "annotations": annotations}}


def _go_json(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


# -- the object's own list


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
