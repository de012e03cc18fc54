"""The versions of a CRD: served, stored, removed, and what each offers apart from its schema."""

from collections.abc import Iterator

from kapsa.fleet.domain.crds.definitions import CrdDefinition, CrdVersionSpec, SubresourceSpec
from kapsa.fleet.domain.crds.findings import ChangeRule, ChangeSeverity, CrdFinding
from kapsa.fleet.domain.crds.schemas import compare_schemas

__all__ = ["compare_versions"]

_BREAKING, _WARNING, _SAFE = ChangeSeverity.BREAKING, ChangeSeverity.WARNING, ChangeSeverity.SAFE
_NO_SUBRESOURCES = SubresourceSpec()


def compare_versions(
    old: CrdDefinition, new: CrdDefinition, stored_versions: frozenset[str]
) -> Iterator[CrdFinding]:
    """Yield the differences between the versions of two CRDs, their schemas included."""
    for before in old.spec.versions:
        after = new.version(before.name)
        if after is None:
            yield _removed(before, stored_versions)
        else:
            yield from compare_schemas(before.root, after.root, before.name)
            yield from _compare_version(before, after)
    for after in new.spec.versions:
        if old.version(after.name) is None:
            yield _finding(ChangeRule.VERSION_ADDED, after.name, "", _SAFE, "a new version")
            yield from _losses(old, new, after)
    yield from _storage(old, new)


def _finding(
    rule: ChangeRule, version: str, part: str, severity: ChangeSeverity, reason: str, *, blocked: bool = False
) -> CrdFinding:
    path = f"spec.versions[{version}]{'.' if part else ''}{part}"
    return CrdFinding(rule, path, severity, reason, blocked=blocked)


def _removed(version: CrdVersionSpec, stored_versions: frozenset[str]) -> CrdFinding:
    name = version.name
    if name in stored_versions:
        text = f"objects may be stored as {name}: the API server refuses to drop it until they are migrated"
        return _finding(ChangeRule.STORED_VERSION_REMOVED, name, "", _BREAKING, text, blocked=True)
    if version.served:
        text = f"requests for {name} fail with 404 Not Found"
        return _finding(ChangeRule.VERSION_REMOVED, name, "", _BREAKING, text)
    return _finding(
        ChangeRule.VERSION_REMOVED, name, "", _SAFE, f"{name} was not served, and nothing is stored as it"
    )


def _compare_version(old: CrdVersionSpec, new: CrdVersionSpec) -> Iterator[CrdFinding]:
    name = old.name
    if old.served and not new.served:
        text = f"requests for {name} fail with 404 Not Found"
        yield _finding(ChangeRule.VERSION_UNSERVED, name, "served", _BREAKING, text)
    elif new.served and not old.served:
        yield _finding(ChangeRule.VERSION_SERVED, name, "served", _SAFE, f"{name} is served again")
    if new.deprecated and not old.deprecated:
        text = f"every request for {name} is answered with a warning"
        yield _finding(ChangeRule.VERSION_DEPRECATED, name, "deprecated", _WARNING, text)
    elif old.deprecated != new.deprecated or old.deprecation_warning != new.deprecation_warning:
        text = "the deprecation warning changed"
        yield _finding(ChangeRule.DISPLAY_CHANGED, name, "deprecationWarning", _SAFE, text)
    yield from _subresources(name, old.subresources or _NO_SUBRESOURCES, new.subresources or _NO_SUBRESOURCES)
    yield from _selectable_fields(old, new)
    if (old.additional_printer_columns or []) != (new.additional_printer_columns or []):
        text = "the columns of kubectl get changed"
        yield _finding(ChangeRule.DISPLAY_CHANGED, name, "additionalPrinterColumns", _SAFE, text)


def _subresources(name: str, old: SubresourceSpec, new: SubresourceSpec) -> Iterator[CrdFinding]:
    part = "subresources.status"
    if old.status is not None and new.status is None:
        text = "requests for /status fail with 404 Not Found, and anybody who may write the object may write its status"
        yield _finding(ChangeRule.SUBRESOURCE_REMOVED, name, part, _BREAKING, text)
    elif new.status is not None and old.status is None:
        text = "status is ignored in writes of the object, and written through /status alone"
        yield _finding(ChangeRule.SUBRESOURCE_ADDED, name, part, _WARNING, text)
    part = "subresources.scale"
    if old.scale is not None and new.scale is None:
        text = "requests for /scale fail with 404 Not Found: kubectl scale and autoscalers stop working"
        yield _finding(ChangeRule.SUBRESOURCE_REMOVED, name, part, _BREAKING, text)
    elif new.scale is not None and old.scale is None:
        yield _finding(ChangeRule.SUBRESOURCE_ADDED, name, part, _SAFE, "the object can be scaled now")
    elif old.scale != new.scale:
        text = "autoscalers read and write other fields now"
        yield _finding(ChangeRule.SUBRESOURCE_CHANGED, name, part, _WARNING, text)


def _selectable_fields(old: CrdVersionSpec, new: CrdVersionSpec) -> Iterator[CrdFinding]:
    before = {field.json_path for field in old.selectable_fields or ()}
    after = {field.json_path for field in new.selectable_fields or ()}
    for path in sorted(before - after):
        text = f"field selectors with {path} are refused"
        yield _finding(ChangeRule.SELECTABLE_FIELD_REMOVED, old.name, "selectableFields", _WARNING, text)
    for path in sorted(after - before):
        text = f"{path} can be selected now"
        yield _finding(ChangeRule.SELECTABLE_FIELD_ADDED, old.name, "selectableFields", _SAFE, text)


def _storage(old: CrdDefinition, new: CrdDefinition) -> Iterator[CrdFinding]:
    """Yield the findings of a moved storage flag: stored objects are read through the schema of another version."""
    before, after = old.storage, new.storage
    if before.name == after.name:
        return
    text = f"objects are stored as {after.name} from their next write on, not as {before.name}"
    yield _finding(ChangeRule.STORAGE_MOVED, after.name, "storage", _WARNING, text)
    if new.conversion.strategy == "Webhook":
        return
    # Without a webhook only the apiVersion changes: what the schema of the new version lacks is pruned.
    for finding in compare_schemas(before.root, after.root, f"{before.name}→{after.name}"):
        if finding.severity is not _SAFE:
            yield finding


def _losses(old: CrdDefinition, new: CrdDefinition, version: CrdVersionSpec) -> Iterator[CrdFinding]:
    """Yield a finding if a new version, without a conversion webhook, cannot hold what objects have."""
    if new.conversion.strategy == "Webhook" or not version.served or version.storage:
        return
    findings = compare_schemas(old.storage.root, version.root, version.name)
    lost = [finding.path for finding in findings if finding.loses_data]
    if lost:
        shown = ", ".join(lost[:3]) + (f" and {len(lost) - 3} more" if len(lost) > 3 else "")
        text = f"a client that reads and writes {version.name} drops {shown}: nothing converts it"
        yield _finding(ChangeRule.VERSION_LOSSY, version.name, "", _WARNING, text)
