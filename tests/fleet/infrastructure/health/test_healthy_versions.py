"""A healthy version is not rolled back: slow pods, a cluster out of reach for a while, an API server that is busy."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from kapsa.devcluster.faults import Answer, FaultRule
from kapsa.fleet.domain.health import (
    CheckKind,
    Evidence,
    GateProgress,
    GateVerdict,
    judge_gate,
    record_check,
    record_unknown,
)
from kapsa.fleet.infrastructure.health import conversion_prober, webhook_prober
from kapsa.fleet.orchestrator.ports.clusters import ClusterUnreachable
from kapsa.runtime.testing import Sample
from tests.fleet.infrastructure.health.operator_fixture import CLUSTER, DIGEST, RELEASE, OperatorFixture
from tests.fleet.infrastructure.health.webhook_server import WebhookServer
from tests.fleet.rollout_harness import OPERATOR_ID

RUNS = 200
SAMPLED = 4
MOST_CHECKS = 40
WIDGETS = tuple(f"w{number}" for number in range(10))
WRITES = ("patch", "update")
BUSY = Answer(code=429, reason="TooManyRequests", message="busy", retry_after=0)


class Disturbance(msgspec.Struct, frozen=True):
    """The troubles of one run, all of which a healthy version survives."""

    start: float
    """Seconds until a pod is ready."""
    unreachable: frozenset[int]
    """The checks in which the cluster does not answer."""
    busy: tuple[tuple[int, int], ...]
    """Requests that get a 429: the first of each series, and its length."""
    slow_resources: int
    """Resources that need a while after the upgrade."""

    @classmethod
    def of(cls, run: int) -> Disturbance:
        chance = random.Random(run)
        return cls(
            start=chance.choice((0.0, 0.05, 0.2)),
            unreachable=frozenset(chance.sample(range(8), chance.randint(0, 3))),
            busy=tuple((chance.randint(1, 120), chance.randint(1, 4)) for _ in range(6)),
            slow_resources=chance.randint(0, len(WIDGETS)),
        )


async def test_the_delays_of_retries_do_not_make_a_webhook_slow(
    busy_operator: OperatorFixture, webhooks: WebhookServer
) -> None:
    await busy_operator.define()
    await busy_operator.create_widgets(1)
    await busy_operator.install(webhooks.configuration())
    await busy_operator.settle()
    assert busy_operator.cluster.faults is not None
    answer = msgspec.structs.replace(BUSY, retry_after=1)
    rule = FaultRule(verb="patch", resource="widgets", action=answer)
    busy_operator.cluster.faults.add(rule)
    health = await busy_operator.observe()
    check = next(each for each in health.checks if each.kind is CheckKind.WEBHOOKS)
    assert (check.evidence, rule.fired) == (Evidence.HEALTHY, 1)
    assert webhooks.calls >= 3


@pytest.mark.parametrize("status", [429, 503, 504])
async def test_an_api_server_that_stays_busy_proves_nothing_about_webhooks_and_conversions(
    busy_operator: OperatorFixture, webhooks: WebhookServer, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    for module in (webhook_prober, conversion_prober):
        monkeypatch.setattr(module, "_SECONDS", 0.5)
    await busy_operator.define(conversion=webhooks.conversion())
    await busy_operator.create_widgets(1)
    await busy_operator.install(webhooks.configuration())
    await busy_operator.settle()
    faults = busy_operator.cluster.faults
    assert faults is not None
    answer = Answer(code=status, reason="", message="busy", retry_after=1)
    rules = [faults.add(FaultRule(verb=verb, resource="widgets", action=answer, times=0)) for verb in WRITES]
    try:
        health = await busy_operator.observe()
    finally:
        for rule in rules:
            faults.remove(rule)
    checks = {each.kind: (each.evidence, each.reason) for each in health.checks}
    assert checks[CheckKind.WEBHOOKS] == (Evidence.UNKNOWN, "WebhookBlocked")
    assert checks[CheckKind.CONVERSION][0] is not Evidence.FAILING


@pytest.mark.sampled(4)
@pytest.mark.timeout(1200)  # 200 runs take two minutes and more
async def test_a_healthy_version_is_not_rolled_back_whatever_happens_around_it(
    busy_operator: OperatorFixture, webhooks: WebhookServer, sample: Sample | None, record_property: Any
) -> None:
    operator = busy_operator
    await operator.define(conversion=webhooks.conversion())
    await operator.create_widgets(len(WIDGETS))
    await operator.reconcile(*WIDGETS)
    runs = Sample(SAMPLED, seed=sample.seed).of(range(RUNS)) if sample else range(RUNS)
    doubts = 0
    for number, run in enumerate(runs):
        progress, verdict, unknown = await _roll_out(operator, webhooks, Disturbance.of(run), number + 2)
        assert verdict is GateVerdict.PASS, f"run {run}: {verdict}, {progress}"
        assert progress.failed_checks == 0, f"run {run}: {progress}"
        doubts += unknown
    assert doubts >= len(runs)  # the troubles were seen
    record_property("sweep", f"{len(runs)} of {RUNS} healthy versions in trouble: none was rolled back")


async def _roll_out(
    operator: OperatorFixture, webhooks: WebhookServer, trouble: Disturbance, revision: int
) -> tuple[GateProgress, GateVerdict, int]:
    """Upgrade the operator, and check it as the engine does until its gate decides.

    Return the checks so far, the decision, and the number of checks that gave no evidence.
    """
    faults = operator.cluster.faults
    assert faults is not None
    faults.clear()
    operator.cluster.workloads.delay(ready=trouble.start)
    await operator.observer.record_baseline(CLUSTER, OPERATOR_ID, DIGEST, RELEASE)
    await operator.install(webhooks.configuration(), image=f"widget:{revision}", revision=revision)
    await operator.reconcile(*WIDGETS[: trouble.slow_resources], ready="False")
    rules = [faults.add(FaultRule(action=BUSY, nth=nth, times=times)) for nth, times in trouble.busy]
    progress, verdict, unknown = GateProgress(), GateVerdict.WAIT, 0
    for number in range(MOST_CHECKS):
        progress = await _check(operator, trouble, number, progress, revision)
        unknown += progress.last is Evidence.UNKNOWN
        verdict = judge_gate(
            progress,
            soak=timedelta(minutes=2),
            success_threshold=0.95,
            patience=timedelta(minutes=15),
            now=operator.now,
        )
        if verdict is not GateVerdict.WAIT:
            break
        operator.pass_time(30)
        for rule in rules:
            faults.remove(rule)
        await _play_controller(operator, trouble, number)
        for rule in rules:
            faults.add(rule)
    faults.clear()
    return progress, verdict, unknown


async def _check(
    operator: OperatorFixture, trouble: Disturbance, number: int, progress: GateProgress, revision: int
) -> GateProgress:
    operator.offline = ClusterUnreachable("no route to host") if number in trouble.unreachable else None
    try:
        health = await operator.observe()
    except ClusterUnreachable as error:
        return record_unknown(progress, "Unreachable", str(error), operator.now)
    return record_check(progress, health, revision=revision, chart_digest=DIGEST, now=operator.now)


async def _play_controller(operator: OperatorFixture, trouble: Disturbance, number: int) -> None:
    """Do what a controller does within 30 seconds, once its pods run."""
    await operator.ready()
    await operator.renew_lease()
    if number == 1:
        await operator.reconcile(*WIDGETS[: trouble.slow_resources])
