"""Findings in a form that a person can read, and that a status can hold."""

from __future__ import annotations

import msgspec

from kapsa.fleet.domain.crds import ChangeRule, ChangeSeverity, CrdFinding, summarize
from tests.fleet.domain.crds.resources import compare, field_of, object_of


def findings(count: int, path: str = "spec.template.field{}") -> list[CrdFinding]:
    return [
        CrdFinding(ChangeRule.FIELD_REMOVED, path.format(index), ChangeSeverity.BREAKING, "gone", "v1")
        for index in range(count)
    ]


def test_a_thousand_findings_are_one_group_with_a_count_and_a_few_examples() -> None:
    summary = summarize(findings(1_000))
    assert (summary.breaking, summary.warnings, summary.safe) == (1_000, 0, 0)
    (group,) = summary.groups
    assert group.count == 1_000
    assert group.examples[0] == "v1: spec.template.field0"
    assert group.under == {"v1: spec.template": 1_000}
    assert group.remedy


def test_the_worst_group_is_first() -> None:
    text = {"type": "string"}
    old = field_of(object_of({"a": text, "b": text, "c": text}))
    new = field_of(
        object_of({"a": {**text, "maxLength": 3}, "b": {**text, "default": "x"}, "c": text, "d": text})
    )
    summary = summarize(compare(old, new))
    assert [group.severity.value for group in summary.groups] == ["breaking", "warning", "safe"]
    assert summary.severity is ChangeSeverity.BREAKING


def test_a_summary_of_hostile_paths_stays_below_32_kib() -> None:
    every = [
        CrdFinding(rule, "é" * 10_000 + str(index), severity, "reason " * 1_000, "v1")
        for rule in ChangeRule
        for severity in ChangeSeverity
        for index in range(20)
    ]
    summary = summarize(every)
    assert len(msgspec.json.encode(summary)) <= 32 * 1024
    assert sum(group.count for group in summary.groups) == len(every)


def test_a_summary_of_nothing_is_safe() -> None:
    assert summarize([]).severity is ChangeSeverity.SAFE
