"""Readings of an operator on a cluster, and what each bad version looks like."""

from __future__ import annotations

import pytest

from kapsa.devcluster.faults import Answer, FaultRule
from kapsa.fleet.domain.errors import UnknownObject
from kapsa.fleet.domain.health import CheckKind, Evidence, HealthCheck, OperatorHealth
from kapsa.fleet.domain.rollout.releases import DEPLOYMENT_LABEL
from kapsa.fleet.orchestrator.ports.cluster_operations import ClusterGone
from kapsa.fleet.orchestrator.ports.clusters import ClusterUnreachable
from kapsa.runtime import NoResponse
from tests.eventually import eventually
from tests.fleet.infrastructure.health.operator_fixture import (
    CLUSTER,
    DEPLOYMENT,
    DIGEST,
    KIND,
    NAMESPACE,
    RELEASE,
    OperatorFixture,
    controller,
    release_secret,
)
from tests.fleet.rollout_harness import OPERATOR_ID

H, F, U = Evidence.HEALTHY, Evidence.FAILING, Evidence.UNKNOWN
WIDGETS = tuple(f"w{number}" for number in range(20))


def check_of(health: OperatorHealth, kind: CheckKind) -> HealthCheck:
    return next(check for check in health.checks if check.kind is kind)


async def test_a_healthy_operator_is_healthy_by_each_check(operator: OperatorFixture) -> None:
    await operator.define()
    await operator.create_widgets(3)
    await operator.reconcile(*WIDGETS[:3])
    await operator.install()
    await operator.ready()
    await operator.renew_lease()
    health = await operator.observe()
    assert (health.revision, health.chart_digest, health.controller_pods) == (2, DIGEST, 1)
    assert {check.kind: check.evidence for check in health.checks} == {
        CheckKind.PODS: H,
        CheckKind.RESOURCES: H,
        CheckKind.LEASE: H,
    }


async def test_a_release_that_is_not_there_has_no_revision(operator: OperatorFixture) -> None:
    assert await operator.observe() == OperatorHealth(0, "", ())


async def test_a_release_as_large_as_a_plan_may_be_is_read(operator: OperatorFixture) -> None:
    await operator.define()
    await operator.install()
    many = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"settings-{number}"}}
        for number in range(1200)
    ]
    await operator.client.apply(
        release_secret(3, controller("widget:2"), *many, labels={DEPLOYMENT_LABEL: str(DEPLOYMENT)}),
        force=True,
    )
    await operator.ready()
    assert (await operator.observe()).revision == 3


async def test_a_cluster_that_does_not_answer_is_unreachable_and_a_deleted_one_gone(
    operator: OperatorFixture,
) -> None:
    operator.offline = NoResponse("no route to host")
    with pytest.raises(ClusterUnreachable, match="no route"):
        await operator.observe()
    operator.offline = UnknownObject("there is no cluster")
    with pytest.raises(ClusterGone):
        await operator.observe()


async def test_a_controller_that_crashes_fails_its_pods_check(operator: OperatorFixture) -> None:
    operator.cluster.workloads.crash("widget-operator-*")
    await operator.install()
    health = await eventually(operator.observe, lambda health: health.evidence is F, "a failing check")
    assert check_of(health, CheckKind.PODS).reason == "CrashLoopBackOff"


async def test_an_image_that_cannot_be_pulled_fails_at_once(operator: OperatorFixture) -> None:
    operator.cluster.workloads.fail_image("broken:*")
    await operator.install(image="broken:1")
    health = await eventually(
        operator.observe,
        lambda health: check_of(health, CheckKind.PODS).reason == "ImagePullBackOff",
        "ImagePullBackOff",
    )
    assert (health.evidence, check_of(health, CheckKind.PODS).conclusive) == (F, True)


async def test_a_controller_that_reconciles_nothing_fails_its_resources_check(
    operator: OperatorFixture,
) -> None:
    await operator.define()
    await operator.create_widgets(20)
    await operator.reconcile(*WIDGETS)
    await operator.install()
    assert (await operator.settle()).evidence is H
    for name in WIDGETS[:5]:
        await operator.client.patch(KIND, name, {"spec": {"size": 99}}, namespace="default")
    assert check_of(await operator.observe(), CheckKind.RESOURCES).reason == "ResourcesInProgress"
    operator.pass_time(120)
    check = check_of(await operator.observe(), CheckKind.RESOURCES)
    assert (check.evidence, check.reason) == (F, "NotReconciled")


async def test_a_controller_that_renews_its_lease_and_ignores_a_change_fails_its_resources_check(
    operator: OperatorFixture,
) -> None:
    await operator.define()
    await operator.create_widgets(20)
    await operator.reconcile(*WIDGETS)
    await operator.install()
    await operator.ready()
    await operator.renew_lease()
    healthy = check_of(await operator.observe(), CheckKind.RESOURCES)
    assert healthy.evidence is H
    assert "no status was written since the pods of this revision became ready" in healthy.message
    await operator.client.patch(KIND, WIDGETS[0], {"spec": {"size": 99}}, namespace="default")
    for _ in range(5):
        operator.pass_time(30)
        await operator.renew_lease()
        last = await operator.observe()
    assert {check.kind: (check.evidence, check.reason) for check in last.checks} == {
        CheckKind.PODS: (H, "Passed"),
        CheckKind.RESOURCES: (F, "NotReconciled"),
        CheckKind.LEASE: (H, "Passed"),
    }


async def test_a_controller_that_stops_renewing_its_lease_fails(operator: OperatorFixture) -> None:
    await operator.install()
    await operator.ready()
    await operator.renew_lease()
    assert check_of(await operator.observe(), CheckKind.LEASE).evidence is H
    for _ in range(2):
        operator.pass_time(30)
        last = check_of(await operator.observe(), CheckKind.LEASE)
    assert (last.evidence, last.reason) == (F, "LeaseNotRenewed")


@pytest.mark.parametrize("reader", ["gate", "sweep"])
async def test_an_outage_of_the_api_server_while_a_gate_observes_is_not_a_missing_lease(
    operator: OperatorFixture, reader: str
) -> None:
    await operator.install()
    await operator.ready()
    await operator.renew_lease()
    await operator.record_installation()
    assert check_of(await operator.observe(), CheckKind.LEASE).evidence is H
    operator.offline = NoResponse("connection refused")
    for _ in range(3):
        operator.pass_time(20)
        with pytest.raises(ClusterUnreachable):
            await (operator.observe() if reader == "gate" else operator.observer.sweep(CLUSTER))
    operator.offline = None
    operator.pass_time(20)
    check = check_of(await operator.observe(), CheckKind.LEASE)
    assert (check.evidence, check.reason) == (U, "LeaseNotProven")
    await operator.renew_lease()
    assert check_of(await operator.observe(), CheckKind.LEASE).evidence is H


async def test_a_new_version_that_never_takes_the_lease_fails_although_no_sweep_saw_it_held(
    operator: OperatorFixture,
) -> None:
    await operator.install()
    await operator.ready()
    await operator.renew_lease()
    await operator.observer.record_baseline(CLUSTER, OPERATOR_ID, DIGEST, RELEASE)
    await operator.renew_lease(holder="nobody")
    await operator.install(image="widget:3", revision=3)
    await operator.ready()
    for _ in range(3):
        last = check_of(await operator.observe(), CheckKind.LEASE)
        operator.pass_time(30)
    assert (last.evidence, last.reason) == (F, "LeaseNotRenewed")


@pytest.mark.parametrize("before", [True, False], ids=["one before", "none before"])
async def test_a_version_that_has_lost_its_controller_gives_no_evidence_to_a_gate(
    operator: OperatorFixture, before: bool
) -> None:
    await operator.install()
    empty = release_secret(3, labels={DEPLOYMENT_LABEL: str(DEPLOYMENT)})
    if not before:
        await operator.client.apply(empty, force=True, field_manager="helm")
    await operator.observer.record_baseline(CLUSTER, OPERATOR_ID, DIGEST, RELEASE)
    await operator.client.apply(empty, force=True, field_manager="helm")
    check = check_of(await operator.observe(), CheckKind.PODS)
    assert (check.evidence, check.reason) == ((U, "ControllersGone") if before else (H, "NoWorkloads"))


async def test_a_live_release_whose_controllers_cannot_be_read_gives_no_baseline(
    busy_operator: OperatorFixture,
) -> None:
    operator = busy_operator
    await operator.client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    empty = release_secret(2, labels={DEPLOYMENT_LABEL: str(DEPLOYMENT)})
    await operator.client.apply(empty, force=True, field_manager="helm")
    assert operator.cluster.faults is not None
    forbidden = Answer(code=403, reason="Forbidden", message="pods is forbidden")
    rule = operator.cluster.faults.add(FaultRule(resource="pods", action=forbidden, times=0))
    with pytest.raises(ClusterUnreachable, match=f"the controllers of {RELEASE} cannot be read: .*forbidden"):
        await operator.observer.record_baseline(CLUSTER, OPERATOR_ID, DIGEST, RELEASE)
    operator.cluster.faults.remove(rule)
    await operator.observer.record_baseline(CLUSTER, OPERATOR_ID, DIGEST, RELEASE)
    assert check_of(await operator.observe(), CheckKind.PODS).reason == "NoWorkloads"


async def test_a_tenth_of_the_resources_newly_broken_fails_and_what_was_broken_before_does_not(
    operator: OperatorFixture,
) -> None:
    await operator.define()
    await operator.create_widgets(20)
    await operator.reconcile(*WIDGETS[:15])
    await operator.reconcile(*WIDGETS[15:], ready="False")
    await operator.observer.record_baseline(CLUSTER, OPERATOR_ID, DIGEST, RELEASE)
    await operator.install()
    assert (await operator.settle()).evidence is H
    await operator.reconcile("w0", "w1", ready="False")
    operator.pass_time(30)
    assert (await operator.observe()).evidence is U
    operator.pass_time(120)
    check = check_of(await operator.observe(), CheckKind.RESOURCES)
    assert (check.evidence, check.reason) == (F, "ResourcesFailing")
    assert "2 of 20 Widget" in check.message


async def test_a_status_of_any_shape_neither_fails_a_reading_nor_gets_into_it_as_it_is(
    operator: OperatorFixture,
) -> None:
    await operator.define()
    await operator.create_widgets(6)
    shapes: list[object] = [
        {"conditions": "none"},
        {"conditions": [3]},
        {"observedGeneration": "new"},
        {"conditions": {"type": "Ready"}},
        {"conditions": [{"type": "Stalled", "status": "True", "message": "a\x00b\x1b[31m" + "x" * 5000}]},
    ]
    for number, status in enumerate(shapes):
        await operator.client.patch(
            KIND, f"w{number}", {"status": status}, namespace="default", subresource="status"
        )
    await operator.install()
    await operator.ready()
    check = check_of(await operator.observe(), CheckKind.RESOURCES)
    assert (check.evidence, check.reason) == (F, "ResourcesFailing")
    assert check.message.isprintable()
    assert len(check.message) <= 500


async def test_what_may_not_be_read_is_unknown_and_the_rest_is_judged(busy_operator: OperatorFixture) -> None:
    operator = busy_operator
    await operator.define()
    await operator.install()
    await operator.ready()
    assert operator.cluster.faults is not None
    forbidden = Answer(code=403, reason="Forbidden", message="widgets is forbidden")
    operator.cluster.faults.add(FaultRule(resource="widgets", action=forbidden, times=0))
    health = await operator.observe()
    assert {check.kind: (check.evidence, check.reason) for check in health.checks} == {
        CheckKind.PODS: (H, "Passed"),
        CheckKind.RESOURCES: (U, "Forbidden"),
    }


async def test_what_was_read_is_evidence_although_the_pod_template_cannot_be_read(
    busy_operator: OperatorFixture,
) -> None:
    operator = busy_operator
    await operator.install()
    await operator.ready()
    await operator.renew_lease()
    assert (await operator.observe()).evidence is H
    assert operator.cluster.faults is not None
    broken = Answer(code=400, reason="BadRequest", message="the aggregator is confused")
    operator.cluster.faults.add(FaultRule(verb="get", resource="deployments", action=broken, times=0))
    for _ in range(2):
        operator.pass_time(30)
        health = await operator.observe()
    assert check_of(health, CheckKind.LEASE).reason == "LeaseNotRenewed"
    template = check_of(health, CheckKind.TEMPLATE)
    assert (health.evidence, template.evidence, template.reason) == (F, U, "Unread")
    assert "the aggregator is confused" in template.message
