"""One operator works in many clusters, which come and go, and trouble in one does not reach the others."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import structlog

from kapsa.devcluster.faults import Drop, FaultRule
from kapsa.runtime import (
    Clock,
    Context,
    KubeconfigDirectory,
    MemberCluster,
    Operator,
    StaticClusters,
    Webhooks,
)
from kapsa.runtime.testing import Harness
from tests.runtime.operator.member_clusters import Announced, Member, members
from tests.runtime.sample_app import App, Recorder, app, config_map

pytestmark = pytest.mark.virtual_time


async def one_config_map(resource: App, ctx: Context[App]) -> None:
    await ctx.apply(config_map(resource.name, data={"cluster": ctx.cluster}))


def recorder() -> Recorder:
    return Recorder(one_config_map, owns=("v1/ConfigMap",))


async def config(member: Member, name: str = "web") -> str | None:
    """Return the cluster that the child names; None without a child."""
    child = await member.harness.get("v1/ConfigMap", name)
    return None if child is None else str(child["data"]["cluster"])


async def test_the_same_name_in_two_clusters_is_two_resources(harness: Harness) -> None:
    async with members(harness, "eu", "us") as clusters:
        provider = StaticClusters({name: member.cluster() for name, member in clusters.items()})
        controller = recorder()
        await harness.start(Operator(controllers=[controller], clusters=provider))
        for member in clusters.values():
            await member.harness.apply(app())
        await harness.settle()
        assert [await config(clusters["eu"]), await config(clusters["us"])] == ["eu", "us"]
        await clusters["eu"].harness.client.delete("v1/ConfigMap", "web", namespace="default")
        before = len(controller.runs)
        await harness.settle()
        assert await config(clusters["eu"]) == "eu"
        assert len(controller.runs) == before + 1  # the other cluster's resource did not run
        harness.assert_no_failures()


async def test_an_outage_of_one_cluster_does_not_stop_the_others(harness: Harness) -> None:
    async with members(harness, "eu", "us") as clusters:
        provider = StaticClusters({name: member.cluster() for name, member in clusters.items()})
        await harness.start(Operator(controllers=[recorder()], clusters=provider, leader_election="lock"))
        await harness.settle()
        rule = clusters["eu"].cut()
        for member in clusters.values():
            await member.harness.apply(app())
        await harness.clock.sleep(400)  # past max_staleness
        assert [await config(clusters["eu"]), await config(clusters["us"])] == [None, "us"]
        ready, report = harness.running["operator"].health.report(harness.running["operator"].health.ready)
        assert ready
        assert "[~] cluster eu: " in report
        assert "[+] cluster us: working" in report
        clusters["eu"].faults.remove(rule)
        await harness.clock.sleep(400)
        assert await config(clusters["eu"]) == "eu"


async def test_a_cluster_that_cannot_be_reached_at_the_start_joins_later(harness: Harness) -> None:
    async with members(harness, "eu", "us") as clusters:
        rule = clusters["eu"].cut()
        provider = StaticClusters({name: member.cluster() for name, member in clusters.items()})
        await harness.start(Operator(controllers=[recorder()], clusters=provider))
        for member in clusters.values():
            await member.harness.apply(app())
        await harness.clock.sleep(60)
        assert [await config(clusters["eu"]), await config(clusters["us"])] == [None, "us"]
        clusters["eu"].faults.remove(rule)
        await harness.clock.sleep(300)
        assert await config(clusters["eu"]) == "eu"


async def test_clusters_come_and_go_while_the_operator_runs(harness: Harness) -> None:
    async with members(harness, "eu", "us") as clusters:
        eu, us = clusters["eu"], clusters["us"]
        provider = Announced({"eu": eu.cluster()})
        running = await harness.start(Operator(controllers=[recorder()], clusters=provider))
        await eu.harness.apply(app())
        await us.harness.apply(app())
        await harness.settle()
        assert [await config(eu), await config(us)] == ["eu", None]
        provider.announce({"us": us.cluster()})
        await harness.settle()
        assert await config(us) == "us"
        assert list(running.clusters) == ["us"]
        await eu.harness.apply(app("late"))
        await harness.settle()
        assert await config(eu, "late") is None
        metrics = running.metrics.render().decode()
        assert 'cluster="us"' in metrics
        assert 'cluster="eu"' not in metrics
        assert "cluster eu" not in running.health.ready
        provider.announce({"us": us.cluster(), "eu": eu.cluster()})
        await harness.settle()
        assert await config(eu, "late") == "eu"


async def test_new_credentials_replace_the_connection(harness: Harness) -> None:
    async with members(harness, "eu") as clusters:
        eu = clusters["eu"]
        provider = Announced({"eu": eu.cluster("1", name="old")})
        running = await harness.start(Operator(controllers=[recorder()], clusters=provider))
        await harness.settle()
        first = running.clusters["eu"]
        provider.announce({"eu": eu.cluster("1", name="new")})  # the same revision: nothing happens
        await harness.settle()
        assert running.clusters["eu"] is first
        provider.announce({"eu": eu.cluster("2", name="new")})
        await harness.settle()
        eu.faults.add(FaultRule(action=Drop(), client="old", times=0))
        await eu.harness.apply(app())
        await harness.settle()
        assert await config(eu) == "eu"


async def test_a_cluster_that_comes_back_waits_for_the_runs_of_its_first_stay(harness: Harness) -> None:
    present: list[int] = []
    most: list[int] = []

    async def slow(resource: App, ctx: Context[App]) -> None:
        present.append(1)
        most.append(len(present))
        try:
            await ctx.client.clock.sleep(20)
        finally:
            present.pop()

    async with members(harness, "eu") as clusters:
        target = clusters["eu"].cluster()
        provider = Announced({"eu": target})
        await clusters["eu"].harness.apply(app())
        await harness.start(Operator(controllers=[Recorder(slow)], clusters=provider))
        await harness.clock.sleep(5)
        provider.announce({})
        await harness.clock.sleep(1)
        provider.announce({"eu": target})
        await harness.clock.sleep(60)
        assert len(most) == 2
        assert max(most) == 1


@pytest.mark.parametrize(
    ("failure", "reported"),
    [
        (OSError("the inventory is not reachable"), "OSError: the inventory is not reachable"),
        (asyncio.CancelledError(), "RuntimeError: something it awaited was cancelled"),
    ],
    ids=["an error", "a cancelled call"],
)
async def test_a_provider_that_fails_keeps_its_clusters_and_is_started_again(
    harness: Harness, failure: BaseException, reported: str
) -> None:
    async with members(harness, "eu", "us") as clusters:
        eu, us = clusters["eu"], clusters["us"]
        provider = Announced({"eu": eu.cluster()})
        running = await harness.start(Operator(controllers=[recorder()], clusters=provider))
        await harness.settle()
        provider.fail(failure)
        await eu.harness.apply(app())
        await harness.clock.sleep(0.5)
        ready, report = running.health.report(running.health.ready)
        assert ready
        assert f"[~] clusters: the provider of clusters failed, 1 clusters are kept: {reported}" in report
        await harness.settle()
        assert await config(eu) == "eu"
        provider.announce({"us": us.cluster()})
        await us.harness.apply(app())
        await harness.settle()
        assert list(running.clusters) == ["us"]
        assert await config(us) == "us"


async def test_a_cluster_whose_connection_cannot_be_made_is_reported_and_tried_again(
    harness: Harness,
) -> None:
    async with members(harness, "eu", "us") as clusters:
        attempts: list[int] = []

        def connect(clock: Clock) -> object:
            attempts.append(1)
            if len(attempts) < 4:
                raise ValueError("the certificate is not readable")
            return clusters["eu"].harness.connect("operator", clock=clock)

        provider = StaticClusters({"eu": MemberCluster(connect), "us": clusters["us"].cluster()})  # type: ignore[arg-type]
        running = await harness.start(Operator(controllers=[recorder()], clusters=provider))
        await harness.clock.sleep(2)
        ready, report = running.health.report(running.health.ready)
        assert ready
        assert "[~] cluster eu: ValueError: the certificate is not readable" in report
        for member in clusters.values():
            await member.harness.apply(app())
        await harness.clock.sleep(60)
        assert [await config(clusters["eu"]), await config(clusters["us"])] == ["eu", "us"]


async def test_a_name_that_cannot_be_a_label_is_skipped(harness: Harness) -> None:
    async with members(harness, "eu") as clusters:
        target = clusters["eu"].cluster()
        provider = Announced({"../etc": target, "": target, "x" * 64: target, "eu": target})
        with structlog.testing.capture_logs() as logs:
            running = await harness.start(Operator(controllers=[recorder()], clusters=provider))
            await harness.settle()
        assert list(running.clusters) == ["eu"]
        assert [line["name"] for line in logs if line["event"].startswith("cluster skipped")] == [
            "../etc",
            "",
            "x" * 64,
        ]


async def test_metrics_and_log_lines_name_the_cluster(
    harness: Harness, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fails(resource: App, ctx: Context[App]) -> None:
        ctx.log.warning("about to fail")
        raise ValueError("no")

    async with members(harness, "eu", "us") as clusters:
        provider = StaticClusters({name: member.cluster() for name, member in clusters.items()})
        running = await harness.start(
            Operator(controllers=[Recorder(fails)], clusters=provider, leader_election="lock")
        )
        await clusters["eu"].harness.apply(app())
        await harness.clock.sleep(20)
        metrics = running.metrics.render().decode()
        lines = metrics.splitlines()
        failed = 'controller_reconciliations_total{cluster="%s",controller="app",result="error"}'
        (eu,) = (line for line in lines if line.startswith(failed % "eu"))
        assert float(eu.split()[-1]) > 0
        assert f"{failed % 'us'} 0.0" in lines
        assert 'workqueue_depth{cluster="us",controller="app"} 0.0' in lines
        assert 'leader_election_master_status{name="lock"} 1.0' in lines
        assert len(lines) == len(set(lines))
        assert "event_loop_lag_seconds{" not in metrics
        assert sum(line.startswith("# TYPE workqueue_depth ") for line in lines) == 1
        with pytest.raises(AssertionError, match=r"app: .* error"):
            harness.assert_no_failures()
    logged = capsys.readouterr().err
    assert all("cluster=eu" in line for line in logged.splitlines() if "about to fail" in line)
    assert all("cluster=eu" in line for line in logged.splitlines() if "reconcile failed" in line)


async def test_a_standby_takes_over_in_all_clusters_and_never_writes_before(harness: Harness) -> None:
    async with members(harness, "eu", "us") as clusters:

        def replica(name: str) -> Operator:
            provider = StaticClusters({each: m.cluster(name=name) for each, m in clusters.items()})
            return Operator(controllers=[recorder()], clusters=provider, leader_election="lock")

        await harness.start(replica("one"), name="one")
        await harness.clock.sleep(5)
        await harness.start(replica("two"), name="two")
        for member in clusters.values():
            await member.harness.apply(app())
        await harness.clock.sleep(30)
        for member in clusters.values():
            assert member.faults.count(client="one", verb="patch", resource="configmaps") == 1
            assert not list(member.faults.writes("two"))
        await harness.kill("one")
        for member in clusters.values():
            await member.harness.apply(app("second"))
        await harness.clock.sleep(60)
        assert [await config(member, "second") for member in clusters.values()] == ["eu", "us"]


async def test_an_operator_stops_in_all_clusters_and_then_releases_its_lease(harness: Harness) -> None:
    released_while_running: list[bool] = []

    async def slow(resource: App, ctx: Context[App]) -> None:
        await ctx.client.clock.sleep(10)
        lease = await harness.get("coordination.k8s.io/v1/Lease", "lock")
        released_while_running.append(not lease["spec"].get("holderIdentity"))

    async with members(harness, "eu", "us") as clusters:
        provider = StaticClusters({name: member.cluster() for name, member in clusters.items()})
        running = await harness.start(
            Operator(controllers=[Recorder(slow)], clusters=provider, leader_election="lock")
        )
        for member in clusters.values():
            await member.harness.apply(app())
        await harness.clock.sleep(5)
        await harness.stop()
        assert released_while_running == [False, False]
        assert running.stuck == []
        lease = await harness.get("coordination.k8s.io/v1/Lease", "lock")
        assert not lease["spec"].get("holderIdentity")


async def test_kubeconfigs_of_a_directory_come_change_and_go(tmp_path: Path) -> None:
    class Instant:
        """A clock whose pauses change the directory."""

        def __init__(self) -> None:
            self.steps = iter((add, nothing, change, remove, vanish))

        async def sleep(self, seconds: float) -> None:
            assert seconds == 10.0
            next(self.steps)()

    folder = tmp_path / "clusters"
    folder.mkdir()

    def add() -> None:
        (folder / "eu.kubeconfig").write_text("one")
        (folder / "README.md").write_text("not a cluster")
        (folder / ".hidden.kubeconfig").write_text("not a cluster")
        (folder / "folder.kubeconfig").mkdir()

    def nothing() -> None:
        pass

    def change() -> None:
        (folder / "eu.kubeconfig").write_text("other")

    def remove() -> None:
        (folder / "eu.kubeconfig").unlink()

    def vanish() -> None:
        (folder / "folder.kubeconfig").rmdir()
        for each in folder.iterdir():
            each.unlink()
        folder.rmdir()

    provider = KubeconfigDirectory(folder).clusters(Instant())  # type: ignore[arg-type]
    seen = [{name: each.revision for name, each in (await anext(provider)).items()} for _ in range(4)]
    with pytest.raises(FileNotFoundError):
        await anext(provider)
    assert [sorted(each) for each in seen] == [[], ["eu"], ["eu"], []]
    assert seen[1] != seen[2]


async def test_an_update_of_a_mounted_secret_changes_only_the_clusters_whose_kubeconfig_differs(
    tmp_path: Path,
) -> None:
    """The kubelet writes all files of a Secret into a new directory and moves a link to it."""

    class Updates:
        """A clock whose pause updates the Secret."""

        async def sleep(self, seconds: float) -> None:
            write("second", eu="one", us="rotated")

    def write(version: str, **files: str) -> None:
        directory = tmp_path / f"..{version}"
        directory.mkdir()
        for name, text in files.items():
            (directory / f"{name}.kubeconfig").write_text(text)
            link = tmp_path / f"{name}.kubeconfig"
            link.unlink(missing_ok=True)
            link.symlink_to(directory / link.name)

    write("first", eu="one", us="two")
    provider = KubeconfigDirectory(tmp_path).clusters(Updates())  # type: ignore[arg-type]
    before, after = await anext(provider), await anext(provider)
    assert before["eu"].revision == after["eu"].revision
    assert before["us"].revision != after["us"].revision


def test_an_operator_of_many_clusters_has_no_webhooks() -> None:
    with pytest.raises(ValueError, match="webhooks are served to one cluster"):
        Operator(controllers=[recorder()], clusters=StaticClusters({}), webhooks=Webhooks())


def test_the_rights_of_a_member_are_not_those_of_the_operators_own_cluster() -> None:
    operator = Operator(controllers=[recorder()], clusters=StaticClusters({}), leader_election="lock")
    member, home = operator.rights(), operator.home_rights()
    assert (member.lease, len(member.controllers), member.events) == ("", 1, True)
    assert (home.lease, len(home.controllers), home.events) == ("lock", 0, False)
