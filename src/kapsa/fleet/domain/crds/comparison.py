"""The comparison of two CRDs, forward and back, and whether the step between them can be undone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from kapsa.fleet.domain.crds.definitions import ConversionSpec, CrdDefinition
from kapsa.fleet.domain.crds.findings import ChangeRule, ChangeSeverity, CrdFinding, worst
from kapsa.fleet.domain.crds.ratchet import on_cluster
from kapsa.fleet.domain.crds.schemas import compare_schemas
from kapsa.fleet.domain.crds.versions import compare_versions

__all__ = ["CrdComparison", "compare_crds"]

_BREAKING, _WARNING, _SAFE = ChangeSeverity.BREAKING, ChangeSeverity.WARNING, ChangeSeverity.SAFE


class CrdComparison(msgspec.Struct, frozen=True, rename="camel"):
    """The differences between the CRD that a cluster has and the one that it would get."""

    name: str
    findings: tuple[CrdFinding, ...]
    backward: tuple[CrdFinding, ...]
    """The findings of the way back: what the old CRD would do to objects written under the new one."""
    one_way_reasons: tuple[str, ...] = ()
    """One sentence each: why the step cannot be undone, even by a rollback that keeps added fields and versions."""

    @property
    def severity(self) -> ChangeSeverity:
        """The worst severity."""
        return worst(self.findings)

    @property
    def one_way(self) -> bool:
        """True if the step cannot be undone."""
        return bool(self.one_way_reasons)

    @property
    def blocked(self) -> bool:
        """True if the API server refuses the new CRD until something else is done."""
        return any(finding.blocked for finding in self.findings)

    def on_cluster(self, kubernetes_version: str) -> CrdComparison:
        """Return the comparison with the severities that it has on a cluster of this version."""
        return msgspec.structs.replace(
            self,
            findings=on_cluster(self.findings, kubernetes_version),
            backward=on_cluster(self.backward, kubernetes_version),
        )


def compare_crds(
    old: CrdDefinition, new: CrdDefinition, *, stored_versions: frozenset[str] | None = None
) -> CrdComparison:
    """Return the differences between two CRDs.

    `stored_versions` are those of the cluster; without them, those in the status of `old` count.
    """
    stored = old.stored_versions if stored_versions is None else stored_versions
    findings = _compare(old, new, stored)
    backward = _compare(new, old, frozenset())
    reasons = tuple(_one_way_reasons(old, new, findings))
    return CrdComparison(new.name, findings, backward, reasons)


def _compare(old: CrdDefinition, new: CrdDefinition, stored: frozenset[str]) -> tuple[CrdFinding, ...]:
    if old is new or (old.spec == new.spec and old.name == new.name):
        return ()
    findings = [*_identity(old, new), *_conversion(old, new), *compare_versions(old, new, stored)]
    if old.spec.preserve_unknown_fields and not new.spec.preserve_unknown_fields:
        text = "unknown fields are not preserved any more: their data is pruned from every object that is written"
        path = "spec.preserveUnknownFields"
        findings.append(CrdFinding(ChangeRule.UNKNOWN_FIELDS_PRUNED, path, _BREAKING, text, loses_data=True))
    return tuple(sorted(findings, key=lambda item: (item.severity.rank, item.version, item.path, item.rule)))


def _identity(old: CrdDefinition, new: CrdDefinition) -> Iterator[CrdFinding]:
    for path, before, after in (
        ("spec.group", old.spec.group, new.spec.group),
        ("spec.scope", old.spec.scope, new.spec.scope),
        ("spec.names.plural", old.spec.names.plural, new.spec.names.plural),
        ("spec.names.kind", old.spec.names.kind, new.spec.names.kind),
    ):
        if before != after:
            text = f"{before} became {after}: the API server refuses it, and deleting the CRD deletes every object"
            yield CrdFinding(
                ChangeRule.IDENTITY_CHANGED, path, _BREAKING, text, loses_data=True, blocked=True
            )
    for path, before, after in (
        ("spec.names.singular", old.spec.names.singular, new.spec.names.singular),
        ("spec.names.listKind", old.spec.names.list_kind, new.spec.names.list_kind),
    ):
        if before != after:
            text = f"{before or 'unset'} became {after or 'unset'}: clients that use the old name fail"
            yield CrdFinding(ChangeRule.NAMES_CHANGED, path, _WARNING, text)
    for path, listed, relisted in (
        ("spec.names.shortNames", old.spec.names.short_names, new.spec.names.short_names),
        ("spec.names.categories", old.spec.names.categories, new.spec.names.categories),
    ):
        if set(listed or ()) != set(relisted or ()):
            yield CrdFinding(ChangeRule.DISPLAY_CHANGED, path, _SAFE, "names for people changed")


def _conversion(old: CrdDefinition, new: CrdDefinition) -> Iterator[CrdFinding]:
    before, after = old.conversion, new.conversion
    path = "spec.conversion"
    if before.strategy != after.strategy:
        if after.strategy == "Webhook":
            text = "objects in other versions can be read only while the webhook answers"
            yield CrdFinding(ChangeRule.CONVERSION_CHANGED, path, _WARNING, text)
        elif _versions_differ(old) or _versions_differ(new):
            text = "objects are not converted any more: what the schema of another version lacks is pruned"
            yield CrdFinding(ChangeRule.CONVERSION_CHANGED, path, _BREAKING, text, loses_data=True)
        else:
            text = "objects are not converted any more, and the schemas of all versions are the same"
            yield CrdFinding(ChangeRule.CONVERSION_CHANGED, path, _WARNING, text)
    elif _webhook_address(before) != _webhook_address(after):
        text = "another webhook converts objects: they cannot be read in other versions until it answers"
        yield CrdFinding(ChangeRule.CONVERSION_CHANGED, f"{path}.webhook", _WARNING, text)


def _versions_differ(crd: CrdDefinition) -> bool:
    first = crd.spec.versions[0].root
    return any(version.root != first for version in crd.spec.versions)


def _webhook_address(conversion: ConversionSpec) -> Any:
    """Return what identifies a webhook. Its caBundle does not: certificates are injected and renewed."""
    webhook = conversion.webhook or {}
    client = webhook.get("clientConfig")
    if not isinstance(client, dict):
        return webhook
    service = client.get("service")
    if isinstance(service, dict):
        service = {"port": 443, **{key: value for key, value in service.items() if value is not None}}
    reviewed = webhook.get("conversionReviewVersions")
    return {
        "url": client.get("url"),
        "service": service,
        "reviews": sorted(reviewed, key=str) if isinstance(reviewed, list) else reviewed,
    }


def _one_way_reasons(
    old: CrdDefinition, new: CrdDefinition, findings: tuple[CrdFinding, ...]
) -> Iterator[str]:
    """Yield why the step cannot be undone by a rollback that keeps every added field, value and version."""
    lost = [finding for finding in findings if finding.loses_data]
    for finding in lost[:5]:
        yield f"{finding.path}: {finding.reason}"
    if len(lost) > 5:
        yield f"{len(lost) - 5} more changes lose data"
    if old.storage.name == new.storage.name:
        return
    name = new.storage.name
    if old.conversion.strategy == "Webhook" or new.conversion.strategy == "Webhook":
        if old.version(name) is None:
            yield f"objects are stored as {name}, which the conversion of the old version does not know"
    elif any(finding.loses_data for finding in compare_schemas(new.storage.root, old.storage.root)):
        yield f"objects are stored as {name}: read as {old.storage.name} again, their new fields are pruned"
