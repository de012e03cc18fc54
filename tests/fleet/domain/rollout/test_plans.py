"""Digests of plans: what voids an approval, and what does not."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from kapsa.fleet.domain.registry.clusters import ClusterEnvironment
from kapsa.fleet.domain.rollout.deployments import ConflictPolicy, OfflinePolicy
from kapsa.fleet.domain.rollout.plans import (
    CrdChange,
    FieldConflict,
    LiveVerdict,
    PreflightProblem,
    RejectedShare,
    plan_digest,
)
from kapsa.fleet.domain.rollout.releases import ReleaseRef
from kapsa.fleet.domain.rollout.strategies import CanaryStrategy
from tests.fleet.examples import cluster_plan, rollout_plan

CHANGE = CrdChange("certs.example.com", "warning", ("warning EnumAdded spec.a",), one_way=False)
VERDICT = LiveVerdict("certs.example.com", checked=412, rejected=3)
PLAN = rollout_plan(
    cluster_plan("dev-1", crds=(CHANGE,), verdicts=(VERDICT,)), cluster_plan("prod-1", stage=2)
)
DIGEST = plan_digest(PLAN)


def with_cluster(**changes: Any) -> str:
    first, *rest = PLAN.clusters
    changed = msgspec.structs.replace(first, **changes)
    return plan_digest(msgspec.structs.replace(PLAN, clusters=(changed, *rest)))


def with_plan(**changes: Any) -> str:
    return plan_digest(msgspec.structs.replace(PLAN, **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"values_digest": "sha256:other"},
        {"manifest_digest": "sha256:other"},
        {"present_revision": 2},
        {"stage": 2},
        {"environment": ClusterEnvironment.PRODUCTION},
        {"next": ReleaseRef("cert-manager", "elsewhere")},
        {"crds": ()},
        {"crds": (msgspec.structs.replace(CHANGE, one_way=True),)},
        {"crds": (msgspec.structs.replace(CHANGE, findings=("breaking FieldRemoved spec.a",)),)},
        {"verdicts": (LiveVerdict("certs.example.com", 412, 0),)},
        {"verdicts": (LiveVerdict("certs.example.com", 412, 412),)},
        {"conflicts": (FieldConflict("Deployment/x", "spec.replicas", "kubectl"),)},
        {"additions": (FieldConflict("Deployment/x", ".spec.template.spec.priority", "kubectl"),)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_decides_the_outcome_on_a_cluster_voids_an_approval(changes: dict[str, Any]) -> None:
    assert with_cluster(**changes) != DIGEST


@pytest.mark.parametrize(
    "changes",
    [
        {"verdicts": (LiveVerdict("certs.example.com", 10_000, 4, ("a/b: bad",)),)},
        {"diff": "+++"},
        {"values": {"shown": "masked"}},
        {"present_version": "1.0.1"},
        {"problems": (PreflightProblem("Rights", "no"),)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_counts_and_what_is_only_shown_do_not(changes: dict[str, Any]) -> None:
    assert with_cluster(**changes) == DIGEST


@pytest.mark.parametrize(
    "changes",
    [
        {"version": "2.0.1"},
        {"chart_digest": "sha256:other"},
        {"strategy": CanaryStrategy(evaluation_period=timedelta(seconds=1))},
        {"on_conflict": ConflictPolicy.TAKE},
        {"on_offline": OfflinePolicy.SKIP},
        {"stages": ()},
        {"skipped": ("prod-2",)},
        {"force_reason": "incident 7"},
        {"window_override_reason": "incident 7"},
        {"clusters": PLAN.clusters[:1]},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_decides_the_outcome_of_the_whole_voids_an_approval(changes: dict[str, Any]) -> None:
    assert with_plan(**changes) != DIGEST


def test_the_order_of_clusters_and_findings_does_not_matter() -> None:
    assert with_plan(clusters=tuple(reversed(PLAN.clusters))) == DIGEST
    two = (*CHANGE.findings, "safe Described spec.b")
    forth, back = (msgspec.structs.replace(CHANGE, findings=each) for each in (two, two[::-1]))
    assert with_cluster(crds=(forth,)) == with_cluster(crds=(back,))


@pytest.mark.parametrize(
    ("checked", "rejected", "partial", "share"),
    [
        (0, 0, "", RejectedShare.NONE),
        (9, 0, "", RejectedShare.NONE),
        (9, 1, "", RejectedShare.SOME),
        (9, 9, "", RejectedShare.ALL),
        (9, 0, "timeout", RejectedShare.UNKNOWN),
        (9, 1, "timeout", RejectedShare.SOME),
    ],
)
def test_a_verdict_has_a_class(checked, rejected, partial, share) -> None:
    assert LiveVerdict("x", checked, rejected, partial_reason=partial).share is share


def test_a_plan_names_the_cluster_of_each_problem() -> None:
    plan = rollout_plan(cluster_plan("dev-1", problems=(PreflightProblem("Rights", "may not create Roles"),)))
    assert plan.problems == ("dev-1: may not create Roles",)
