"""Summaries: a list of findings of any length, grouped so that a person can read it and a status can hold it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from kapsa.fleet.domain.crds.findings import ChangeRule, ChangeSeverity, CrdFinding, worst

__all__ = ["MOST_BYTES", "FindingGroup", "FindingSummary", "summarize"]

MOST_BYTES = 32 * 1024
"""The size of a summary in JSON, at most."""
_MOST_TEXT = 160
_MOST_EXAMPLES = 5
_MOST_PREFIXES = 5


class FindingGroup(msgspec.Struct, frozen=True, rename="camel"):
    """Findings of one rule and one severity."""

    severity: ChangeSeverity
    rule: ChangeRule
    count: int
    examples: tuple[str, ...]
    """Paths of the first few, shortened."""
    under: dict[str, int]
    """The parents with the most findings, each with their number."""
    reason: str
    """The reason of the first one, shortened."""
    remedy: str


class FindingSummary(msgspec.Struct, frozen=True, rename="camel"):
    """Findings, grouped: the worst first."""

    severity: ChangeSeverity
    breaking: int
    warnings: int
    safe: int
    groups: tuple[FindingGroup, ...]


def summarize(findings: Sequence[CrdFinding], *, most_bytes: int = MOST_BYTES) -> FindingSummary:
    """Return the findings grouped by severity and rule, in at most `most_bytes` of JSON.

    Every group keeps its count; examples are dropped, the last group's first, until the summary fits.
    """
    counts = Counter(finding.severity for finding in findings)
    summary = FindingSummary(
        worst(findings),
        counts[ChangeSeverity.BREAKING],
        counts[ChangeSeverity.WARNING],
        counts[ChangeSeverity.SAFE],
        tuple(_groups(findings)),
    )
    groups = list(summary.groups)
    for index in reversed(range(len(groups))):
        if len(msgspec.json.encode(summary)) <= most_bytes:
            break
        groups[index] = msgspec.structs.replace(groups[index], examples=(), under={}, reason="", remedy="")
        summary = msgspec.structs.replace(summary, groups=tuple(groups))
    return summary


def _groups(findings: Iterable[CrdFinding]) -> list[FindingGroup]:
    by_rule: dict[tuple[ChangeSeverity, ChangeRule], list[CrdFinding]] = {}
    for finding in findings:
        by_rule.setdefault((finding.severity, finding.rule), []).append(finding)
    ordered = sorted(by_rule.items(), key=lambda item: (item[0][0].rank, -len(item[1]), item[0][1]))
    return [_group(severity, rule, members) for (severity, rule), members in ordered]


def _group(severity: ChangeSeverity, rule: ChangeRule, members: list[CrdFinding]) -> FindingGroup:
    parents = Counter(_short(_parent(finding)) for finding in members)
    return FindingGroup(
        severity,
        rule,
        len(members),
        tuple(_short(_where(finding)) for finding in members[:_MOST_EXAMPLES]),
        dict(parents.most_common(_MOST_PREFIXES)) if len(members) > _MOST_EXAMPLES else {},
        _short(members[0].reason),
        members[0].remedy,
    )


def _where(finding: CrdFinding) -> str:
    return f"{finding.version}: {finding.path}" if finding.version else finding.path


def _parent(finding: CrdFinding) -> str:
    """Return the path that a finding is grouped under: its parent, at most four fields deep."""
    parts = _where(finding).rsplit(".", 1)[0].split(".")
    return ".".join(parts[:4])


def _short(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 1]}…"
