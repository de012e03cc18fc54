"""Judgement: the facts of one reading, what the readings before left, and the health that they show."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from kapsa.fleet.domain.health.certificates import CertificateFacts
from kapsa.fleet.domain.health.leases import (
    LeaseFacts,
    count_held,
    judge_leases,
    remember_leases,
    without_abandoned,
)
from kapsa.fleet.domain.health.memory import HealthLimits, HealthMemory, ResourceBaseline, recall, without_gap
from kapsa.fleet.domain.health.resources import (
    KindFacts,
    judge_resources,
    remember_resources,
    remember_writes,
)
from kapsa.fleet.domain.health.verdicts import CheckKind, Evidence, HealthCheck, OperatorHealth
from kapsa.fleet.domain.health.webhooks import ProbeFacts, judge_probes
from kapsa.fleet.domain.health.workloads import WorkloadFacts, count_ready, judge_workloads, remember_pods

__all__ = ["OperatorFacts", "judge_operator"]


class OperatorFacts(msgspec.Struct, frozen=True):
    """All facts about one operator on one cluster, read in one sweep."""

    revision: int
    chart_digest: str
    workloads: tuple[WorkloadFacts, ...] = ()
    kinds: tuple[KindFacts, ...] = ()
    probes: tuple[ProbeFacts, ...] = ()
    leases: tuple[LeaseFacts, ...] = ()
    certificates: tuple[CertificateFacts, ...] | None = None
    """None if they were not read this time."""
    unread: tuple[HealthCheck, ...] = ()
    """Unknown checks: the parts that could not be read, with the reason."""


def judge_operator(
    facts: OperatorFacts,
    memory: HealthMemory,
    baseline: ResourceBaseline | None,
    limits: HealthLimits,
    now: datetime,
) -> tuple[OperatorHealth, HealthMemory]:
    """Return the health of an operator, and the memory for the next reading."""
    unread = {check.kind for check in facts.unread}
    memory = without_gap(recall(memory, facts.revision), unread, limits, now)
    pods = remember_pods(facts.workloads, memory, limits, now)
    waiting = remember_resources(facts.kinds, memory, now)
    expected = baseline is not None and baseline.controllers
    first = judge_workloads(facts.workloads, pods, limits, expected=expected)
    ready = first.evidence is Evidence.HEALTHY and CheckKind.PODS not in unread
    ready_since = (memory.ready_since or now) if ready else None
    written = remember_writes(facts.kinds, memory) if ready_since is not None else {}
    settled = ready_since is not None and now - ready_since >= limits.settle
    leases = without_abandoned(facts.leases, memory)
    checks = (
        first,
        judge_probes(CheckKind.WEBHOOKS, facts.probes, limits, settled=settled),
        judge_probes(CheckKind.CONVERSION, facts.probes, limits, settled=settled),
        judge_resources(facts.kinds, baseline, waiting, limits, now, written=written)
        if facts.kinds
        else None,
        judge_leases(leases, memory, limits, now),
    )
    # A part that could not be read is remembered as it was.
    next_memory = HealthMemory(
        revision=facts.revision,
        ready_since=memory.ready_since if CheckKind.PODS in unread else ready_since,
        pods=memory.pods if CheckKind.PODS in unread else pods,
        waiting=memory.waiting if CheckKind.RESOURCES in unread else waiting,
        writes=memory.writes if CheckKind.PODS in unread else written,
        leases=memory.leases if CheckKind.PODS in unread else remember_leases(leases, memory, now),
        held=max(memory.held, count_held(leases)),
        pods_read=memory.pods_read.after(now, read=CheckKind.PODS not in unread),
        resources_read=memory.resources_read.after(now, read=CheckKind.RESOURCES not in unread),
    )
    return _health(facts, checks), next_memory


def _health(facts: OperatorFacts, checks: Sequence[HealthCheck | None]) -> OperatorHealth:
    unread = {check.kind for check in facts.unread}
    read = [check for check in checks if check is not None and check.kind not in unread]
    return OperatorHealth(
        revision=facts.revision,
        chart_digest=facts.chart_digest,
        checks=(*read, *facts.unread),
        controller_pods=count_ready(facts.workloads),
    )
