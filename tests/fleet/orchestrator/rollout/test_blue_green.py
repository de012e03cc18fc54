"""Blue-green in virtual time: one controller at a time, there and back, and the end of blue."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from kapsa.adapters.helm.chart_archive import read_archive
from kapsa.fleet.domain.errors import StateConflict
from kapsa.fleet.domain.registry.operators import ChartFacts, OperatorVersion
from kapsa.fleet.domain.rollout.deployments import DeploymentPhase
from kapsa.fleet.domain.rollout.releases import HelmStatus, ReleaseRef
from kapsa.fleet.domain.rollout.targets import TargetStep
from kapsa.fleet.infrastructure.charts.release_renderer import StoredChartRenderer
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.registry.operator_repository import PostgresOperators
from kapsa.fleet.orchestrator.ports.clusters import ClusterUnreachable
from kapsa.fleet.orchestrator.ports.plan_sources import ChartRenderRequest
from tests.fleet.charts import operator_chart
from tests.fleet.examples import ADMIN, DEPLOYER, START, cluster_id
from tests.fleet.helm_double import FakeClusters
from tests.fleet.orchestrator.rollout.rollouts import BLUE_GREEN, GREEN, started
from tests.fleet.rollout_harness import NEW, OPERATOR_ID, RELEASE, FakePlanSources, RolloutHarness

pytestmark = pytest.mark.sampled(7, of="module")

REPEATS_A_KEY = """
apiVersion: v1
kind: ConfigMap
metadata: {name: log}
data:
  level: info
{{ if .Values.debug }}  level: debug{{ end }}
"""


class StoredCharts(FakePlanSources):
    """Plan sources whose charts are rendered by Helm."""

    def __init__(self, database: Database, *names: str) -> None:
        super().__init__(FakeClusters(*names, identify=cluster_id))
        self.renderer = StoredChartRenderer(database, PostgresOperators())

    async def render(self, request: ChartRenderRequest) -> bytes:
        return await self.renderer.render(request)


async def test_blue_green_runs_one_controller_at_a_time_and_removes_blue_after_a_day(
    database: Database,
) -> None:
    fleet = await started(database, "dev-1")
    fleet.clusters.slow_to_stop = {RELEASE: 2}
    made = await fleet.create(BLUE_GREEN)
    await fleet.pass_time(timedelta(hours=23))
    cluster = fleet.clusters["dev-1"]
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED
    assert (cluster.replicas, cluster.webhooks) == ({RELEASE: 0, GREEN: 1}, GREEN)
    assert cluster.history(RELEASE)
    await fleet.run()
    assert not cluster.history(RELEASE)
    assert not cluster.two_controllers
    target = (await fleet.targets(made.id))["dev-1"]
    assert (target.step, target.gap_seconds) == (TargetStep.DONE, 60.0)


async def test_blue_green_switches_back_while_blue_is_kept(database: Database) -> None:
    fleet = await started(database, "dev-1")
    made = await fleet.create(BLUE_GREEN)
    await fleet.pass_time(timedelta(hours=20))
    await fleet.deployments.rollback(ADMIN, made.id, reason="green leaks memory")
    await fleet.run()
    cluster = fleet.clusters["dev-1"]
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.ROLLED_BACK
    assert (cluster.replicas, cluster.webhooks) == ({RELEASE: 1, GREEN: 0}, RELEASE)
    assert cluster.completed == [f"upgrade {GREEN} 1", f"uninstall {GREEN}"]


async def test_blue_green_cannot_switch_back_once_blue_is_gone(database: Database) -> None:
    fleet = await started(database, "dev-1")
    made = await fleet.create(BLUE_GREEN)
    await fleet.run()
    with pytest.raises(StateConflict, match="has been removed: deploy version"):
        await fleet.deployments.rollback(ADMIN, made.id, reason="too late")


@pytest.mark.parametrize("call", ["dev-1 history", "dev-1 uninstall"])
async def test_blue_is_removed_when_its_cluster_was_away_at_the_end_of_the_retention(
    database: Database, call: str
) -> None:
    fleet = await started(database, "dev-1")
    made = await fleet.create(BLUE_GREEN)
    await fleet.pass_time(timedelta(hours=23))
    back = fleet.now + timedelta(hours=6)

    async def be_away(seen: str) -> None:
        if seen == call and fleet.now < back:
            raise ClusterUnreachable("dev-1: no route to host")

    fleet.clusters.on_call = be_away
    await fleet.pass_time(timedelta(hours=4))
    waiting = (await fleet.targets(made.id))["dev-1"]
    assert (waiting.stalled, waiting.waits_for) == ("", "dev-1: no route to host")
    await fleet.run()
    assert not fleet.clusters["dev-1"].history(RELEASE)
    assert (await fleet.targets(made.id))["dev-1"].step is TargetStep.DONE
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED


async def test_a_rollback_that_arrives_as_the_retention_ends_switches_back(database: Database) -> None:
    fleet = await started(database, "dev-1")
    made = await fleet.create(BLUE_GREEN)
    await fleet.pass_time(timedelta(hours=23))

    async def roll_back(call: str) -> None:
        fleet.clusters.on_call = None
        await fleet.deployments.rollback(ADMIN, made.id, reason="green leaks memory")
        await fleet.replica("manager-2").run_due()

    fleet.clusters.on_call = roll_back  # in the step that ends the retention
    await fleet.run()
    cluster = fleet.clusters["dev-1"]
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.ROLLED_BACK
    assert (cluster.replicas, cluster.webhooks) == ({RELEASE: 1, GREEN: 0}, RELEASE)
    assert cluster.completed == [f"upgrade {GREEN} 1", f"uninstall {GREEN}"]


@pytest.mark.parametrize("returns", [True, False])
async def test_a_rollback_that_arrives_after_the_removal_of_blue_began_fails_and_ends(
    database: Database, returns: bool
) -> None:
    fleet = await started(database, "dev-1")
    made = await fleet.create(BLUE_GREEN)
    await fleet.pass_time(timedelta(hours=23))
    cluster = fleet.clusters["dev-1"]

    async def interrupt(call: str) -> None:
        if call == "dev-1 history" and not (await fleet.deployment(made.id)).rollback_started_at:
            await fleet.deployments.rollback(ADMIN, made.id, reason="green leaks memory")
        if call == "dev-1 uninstall":
            fleet.clusters.on_call, cluster.offline = None, not returns
            cluster.put(RELEASE, 1, HelmStatus.UNINSTALLING)
            raise ClusterUnreachable("dev-1: no route to host")

    fleet.clusters.on_call = interrupt
    await fleet.run()
    deployment = await fleet.deployment(made.id)
    assert deployment.phase is DeploymentPhase.FAILED
    cause = f"revision 1 of {RELEASE} no longer exists" if returns else "no route to host"
    assert cause in deployment.message
    assert (cluster.replicas[GREEN], cluster.webhooks) == (1, GREEN)
    assert bool(cluster.history(RELEASE)) is not returns


async def test_blue_green_waits_for_a_person_to_switch(database: Database) -> None:
    fleet = await started(database, "dev-1")
    made = await fleet.create(msgspec.structs.replace(BLUE_GREEN, auto_switch=False))
    await fleet.run()
    (cluster,) = (await fleet.deployments.get(DEPLOYER, made.id)).clusters
    assert cluster.waits_for == "a person to switch to the new release"
    assert fleet.clusters["dev-1"].replicas == {RELEASE: 1, GREEN: 0}
    await fleet.deployments.switch(DEPLOYER, made.id)
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED


async def test_the_next_blue_green_goes_the_other_way(database: Database) -> None:
    fleet = await started(database, "dev-1")
    await fleet.create(BLUE_GREEN)
    await fleet.pass_time(timedelta(hours=1))
    made = await fleet.create(BLUE_GREEN, version="3.0.0")
    await fleet.run(horizon=timedelta(days=5))
    blue = ReleaseRef("cert-manager-blue", "blue")
    cluster = fleet.clusters["dev-1"]
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED
    assert cluster.replicas == {RELEASE: 0, GREEN: 0, blue: 1}
    assert not cluster.history(GREEN)
    assert not cluster.two_controllers


async def test_a_controller_that_does_not_stop_turns_blue_green_back(database: Database) -> None:
    fleet = await started(database, "dev-1")
    fleet.clusters.slow_to_stop = {RELEASE: 6}
    made = await fleet.create(BLUE_GREEN)
    await fleet.run()
    deployment = await fleet.deployment(made.id)
    assert deployment.phase is DeploymentPhase.ROLLED_BACK
    assert "still run" in deployment.message
    assert fleet.clusters["dev-1"].replicas[RELEASE] == 1


async def test_the_way_back_converts_resources_before_the_controller_that_can_convert_them_stops(
    database: Database,
) -> None:
    fleet = await started(database, "dev-1")
    fleet.clusters.unhealthy = {("dev-1", NEW)}
    made = await fleet.create(BLUE_GREEN)
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.ROLLED_BACK
    acts = [call.removeprefix("dev-1 ") for call in fleet.clusters.calls]
    back = acts[acts.index("return_storage") :]
    assert acts.count("return_storage") == 1
    assert back.index("scale_down") < back.index("switch_webhooks") < back.index("revert_crds")


async def test_a_chart_that_cannot_be_renamed_is_refused_with_the_reason(database: Database) -> None:
    fleet = await started(database, "dev-1")
    fleet.sources.unrenderable = "BlueGreen cannot be used: StorageClass fast is shared by both releases"
    made = await fleet.create(BLUE_GREEN)
    await fleet.run()
    deployment = await fleet.deployment(made.id)
    assert (deployment.phase, deployment.message) == (DeploymentPhase.FAILED, fleet.sources.unrenderable)


async def test_names_that_do_not_follow_the_release_are_no_reason_to_refuse_blue_green(
    database: Database,
) -> None:
    fleet = await started(database, "dev-1", names_follow_release=False)
    made = await fleet.create(BLUE_GREEN)
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shared, namespace: kube-system}\n",
            "BlueGreen cannot be used: ConfigMap shared is shared by both releases",
        ),
        (
            REPEATS_A_KEY,
            "the key 'level' is duplicated",
        ),
    ],
    ids=["cannot be renamed", "repeats a key"],
)
async def test_a_chart_that_can_have_no_second_release_fails_the_deployment_with_the_reason(
    database: Database, template: str, reason: str
) -> None:
    fleet = RolloutHarness(database, sources=StoredCharts(database, "dev-1"))
    await fleet.register()
    chart = operator_chart("4.0.0", {"templates/more.yaml": template})
    version = OperatorVersion(OPERATOR_ID, "4.0.0", read_archive(chart).digest, ChartFacts(), START, "dora")
    async with database.transaction() as connection:
        await PostgresOperators().insert_version(connection, version, chart, ())
    fleet.sources.values = {"debug": True}
    made = await fleet.create(BLUE_GREEN, version="4.0.0")
    await fleet.settle()
    deployment = await fleet.deployment(made.id)
    assert deployment.phase is DeploymentPhase.FAILED
    assert reason in deployment.message
    assert fleet.clusters["dev-1"].completed == []
