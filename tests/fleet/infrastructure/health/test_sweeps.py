"""Sweeps in the background: shared by replicas, stored, and shown."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from kapsa.fleet.domain.health import CheckKind, Evidence
from kapsa.fleet.domain.rollout.plans import FieldConflict
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.health.health_store import PostgresHealth
from kapsa.fleet.infrastructure.postgres.registry.cluster_repository import PostgresClusters
from kapsa.fleet.orchestrator.health_sweeps import HealthSweeps
from kapsa.fleet.orchestrator.ports.clusters import ClusterUnreachable
from tests.fleet.examples import START, cluster_id
from tests.fleet.infrastructure.health.operator_fixture import CLUSTER, DIGEST, RELEASE, OperatorFixture
from tests.fleet.rollout_harness import OPERATOR_ID, managed_cluster

NAMES = ("dev-1", "dev-2", "dev-3", "dev-4", "dev-5")


class RecordingSweeper:
    """A sweeper that records what it sweeps. Clusters that are offline raise."""

    def __init__(self) -> None:
        self.swept: list[uuid.UUID] = []
        self.offline: set[uuid.UUID] = set()

    async def sweep(self, cluster_id: uuid.UUID) -> int:
        self.swept.append(cluster_id)
        await asyncio.sleep(0)
        if cluster_id in self.offline:
            raise ClusterUnreachable("no route to host")
        return 1


async def test_replicas_share_the_sweeps_and_each_cluster_has_one_in_30_seconds(
    database: Database, replica: Callable[[], Database]
) -> None:
    sweeper, databases = RecordingSweeper(), [database, replica(), replica()]
    async with database.transaction() as connection:
        for name in NAMES:
            await PostgresClusters().insert(connection, managed_cluster(name), name)
    sweeper.offline = {cluster_id("dev-2")}
    sweeps = [HealthSweeps(each, PostgresHealth(), sweeper, parallel=2) for each in databases]
    for seconds in (0, 10, 29, 30, 59, 61):
        for each in databases:
            each.set_clock(START.replace(minute=seconds // 60, second=seconds % 60))
        for _ in range(3):
            await asyncio.gather(*(each.run_due() for each in sweeps))
    assert sorted(sweeper.swept) == sorted(cluster_id(name) for name in NAMES for _ in range(3))


async def test_a_sweep_stores_a_reading_of_each_release_and_leaves_an_audit_entry(
    operator: OperatorFixture,
) -> None:
    assert await operator.observer.sweep(CLUSTER) == 0
    await operator.define()
    await operator.create_widgets(2)
    await operator.reconcile("w0")
    await operator.reconcile("w1", ready="False")
    await operator.install()
    await operator.record_installation()
    await operator.ready()
    assert await operator.observer.sweep(CLUSTER) == 1
    operator.pass_time(120)
    assert await operator.observer.sweep(CLUSTER) == 1
    async with operator.database.transaction() as connection:
        stored = await operator.store.reading(connection, CLUSTER, RELEASE)
    assert stored is not None
    assert (stored.health.revision, stored.health.controller_pods) == (2, 1)
    evidence = {check.kind: check.evidence for check in stored.health.checks}
    assert evidence == {CheckKind.PODS: Evidence.HEALTHY, CheckKind.RESOURCES: Evidence.FAILING}
    assert [entry.action for entry in operator.audit.entries] == ["cluster.sweep", "cluster.sweep"]


async def test_a_cluster_that_is_deleted_during_a_sweep_keeps_no_reading(operator: OperatorFixture) -> None:
    await operator.install()
    async with operator.database.transaction() as connection:
        await connection.exec_driver_sql("DELETE FROM fleet.deployment_cluster")
        await PostgresClusters().delete(connection, CLUSTER)
    health = await operator.observe()
    assert health.revision == 2
    async with operator.database.transaction() as connection:
        assert await operator.store.reading(connection, CLUSTER, RELEASE) is None


async def test_a_sweep_shows_what_somebody_changed_and_keeps_it_until_the_next_reading_of_drift(
    operator: OperatorFixture,
) -> None:
    await operator.define()
    await operator.install()
    await operator.record_installation()
    await operator.ready()
    changes = {"spec": {"replicas": 3}}
    kind = "apps/v1/Deployment"
    await operator.client.patch(
        kind, RELEASE.name, changes, namespace=RELEASE.namespace, field_manager="kubectl-edit"
    )

    async def drift() -> list[tuple[str, str, str]]:
        await operator.observer.sweep(CLUSTER)
        async with operator.database.transaction() as connection:
            stored = await operator.store.reading(connection, CLUSTER, RELEASE)
        assert stored is not None
        assert stored.health.drift is not None
        return [(each.object, each.field, each.manager) for each in stored.health.drift.fields]

    name = f"Deployment {RELEASE.namespace}/{RELEASE.name}"
    assert await drift() == [(name, ".spec.replicas", "kubectl-edit")]
    live = await operator.client.get(kind, RELEASE.name, namespace=RELEASE.namespace)
    assert live["spec"]["replicas"] == 3
    await operator.client.delete(kind, RELEASE.name, namespace=RELEASE.namespace)
    operator.pass_time(299)
    assert await drift() == [(name, ".spec.replicas", "kubectl-edit")]
    operator.pass_time(2)
    assert await drift() == [(name, "", "")]


async def test_pods_of_a_template_that_somebody_changed_pass_no_gate(operator: OperatorFixture) -> None:
    await operator.define()
    await operator.install()
    await operator.record_installation()
    await operator.ready()
    assert (await operator.observer.observe(CLUSTER, RELEASE)).evidence is Evidence.HEALTHY
    container = {"name": "manager", "image": "widget:patched"}
    changes = {"spec": {"replicas": 2, "template": {"spec": {"containers": [container]}}}}
    await operator.client.patch(
        "apps/v1/Deployment", RELEASE.name, changes, namespace=RELEASE.namespace, field_manager="kubectl-edit"
    )
    await operator.ready()
    health = await operator.observer.observe(CLUSTER, RELEASE)
    (drift,) = [each for each in health.checks if each.reason == "Drift"]
    assert (health.evidence, drift.evidence, drift.conclusive) == (Evidence.UNKNOWN, Evidence.UNKNOWN, False)
    assert drift.message.startswith(
        f'.spec.template.spec.containers[name="manager"].image of Deployment {RELEASE.namespace}/{RELEASE.name} '
        "was changed by kubectl-edit"
    )


@pytest.mark.parametrize(
    ("change", "field", "act"),
    [
        pytest.param(
            {"env": [{"name": "DEBUG", "value": "1"}]},
            '.env[name="DEBUG"].name',
            "changed by kubectl-set",
            id="a variable is added",
        ),
        pytest.param({"args": None}, ".args", "removed by another client", id="arguments are removed"),
    ],
)
async def test_pods_of_a_template_with_more_or_fewer_fields_than_approved_pass_no_gate(
    operator: OperatorFixture, change: dict[str, Any], field: str, act: str
) -> None:
    await operator.define()
    await operator.install(args=["--fast"])
    await operator.ready()
    assert (await operator.observe()).evidence is Evidence.HEALTHY
    await operator.change_container(change, field_manager="kubectl-set")
    await operator.restart()
    await operator.ready()
    (drift,) = [each for each in (await operator.observe()).checks if each.reason == "Drift"]
    assert drift.message.startswith(
        f'.spec.template.spec.containers[name="manager"]{field} of Deployment '
        f"{RELEASE.namespace}/{RELEASE.name} was {act}"
    )


async def test_a_restart_and_the_fields_that_a_plan_leaves_to_others_pass_a_gate(
    operator: OperatorFixture,
) -> None:
    await operator.define()
    await operator.install()
    await operator.change_container({"terminationMessagePath": "/tuned"}, field_manager="tuner")
    await operator.restart()
    await operator.ready()
    assert (await operator.observe()).evidence is Evidence.UNKNOWN
    field = '.spec.template.spec.containers[name="manager"].terminationMessagePath'
    left = (FieldConflict(f"Deployment {RELEASE.namespace}/{RELEASE.name}", field, "tuner"),)
    health = await operator.observer.observe(CLUSTER, RELEASE, left=left)
    assert health.evidence is Evidence.HEALTHY, health


async def test_a_release_that_cannot_be_read_hides_nothing_of_its_neighbours(
    operator: OperatorFixture,
) -> None:
    await operator.install()
    await operator.ready()
    await operator.renew_lease()
    await operator.record_installation()
    await operator.record_unreadable_release("torn")
    reasons = []
    for _ in range(4):
        with pytest.raises(ClusterUnreachable):
            await operator.observer.sweep(CLUSTER)
        operator.pass_time(30)
        async with operator.database.transaction() as connection:
            stored = await operator.store.reading(connection, CLUSTER, RELEASE)
        assert stored is not None
        reasons += [check.reason for check in stored.health.checks if check.kind is CheckKind.LEASE]
    assert reasons[2:] == ["LeaseNotRenewed"] * 2


ADDED = (
    FieldConflict(
        "Deployment operators/widget-operator", ".spec.template.metadata.annotations.wave/hash", "wave"
    ),
    FieldConflict(
        "Deployment operators/widget-operator",
        '.spec.template.spec.containers[name="manager"].terminationMessagePath',
        "tuner",
    ),
)


async def test_what_others_had_added_to_a_template_before_the_plan_passes_the_gate(
    operator: OperatorFixture,
) -> None:
    await operator.define()
    await operator.install()
    await operator.change_container({"terminationMessagePath": "/tuned"}, field_manager="tuner")
    await operator.annotate_template("wave/hash", field_manager="wave")
    await operator.ready()
    await operator.observer.record_baseline(CLUSTER, OPERATOR_ID, DIGEST, RELEASE, additions=ADDED)
    await operator.install(image="widget:3", revision=3)
    await operator.ready()
    assert (await operator.observe()).evidence is Evidence.HEALTHY
    await operator.annotate_template("cattle.io/timestamp", field_manager="rancher")
    await operator.ready()
    health = await operator.observe()
    (drift,) = [each for each in health.checks if each.reason == "Drift"]
    assert "cattle.io/timestamp" in drift.message
    assert "more" not in drift.message
    assert health.evidence is Evidence.UNKNOWN


async def test_what_others_have_added_to_a_template_since_the_plan_passes_no_gate(
    operator: OperatorFixture,
) -> None:
    await operator.define()
    await operator.install()
    await operator.annotate_template("wave/hash", field_manager="wave")
    await operator.change_container({"command": ["/other"]}, field_manager="kubectl-edit")
    await operator.ready()
    await operator.observer.record_baseline(CLUSTER, OPERATOR_ID, DIGEST, RELEASE, additions=ADDED)
    await operator.install(image="widget:3", revision=3)
    await operator.ready()
    health = await operator.observe()
    (drift,) = [each for each in health.checks if each.reason == "Drift"]
    assert ".command of Deployment" in drift.message
    assert "changed by kubectl-edit: take" in drift.message
    assert health.evidence is Evidence.UNKNOWN
