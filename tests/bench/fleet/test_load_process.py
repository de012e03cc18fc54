"""The clients of the managers: they do all of the load, and count a deployment that goes wrong with its cause."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from bench.fleet.calls import CallFailed
from bench.fleet.load_process import (
    CANARY,
    ONE_CLUSTER,
    ROLLBACK,
    START_DEPLOYMENT,
    WIDE,
    Load,
    LoadOrder,
    LoadReport,
    clusters_of,
)
from bench.fleet.size import FleetSize

SIZE = FleetSize(clusters=12, operators=5, installed=5, deployments=5, clients=2)


class FakeCalls:
    """A manager that finishes each deployment at once."""

    def __init__(self, ends: str = "Completed", refuses: str = "", fails: str = "") -> None:
        self.ends = ends
        self.refuses = refuses
        self.fails = fails
        self.requested: dict[str, Any] = {}
        self.phases: dict[str, str] = {}

    async def timed(self, method: str, person: str, path: str, body: Any = None) -> tuple[Any, float]:
        if self.refuses and path.startswith(self.refuses):
            raise CallFailed(f"{method} {path} was refused")
        if path != "/deployments" or method == "GET":
            return {}, 0.01
        name = f"deployment-{len(self.requested)}"
        self.requested[name] = body
        self.phases[name] = "Failed" if body["operator"] == self.fails else self.ends
        return {"id": name}, 0.02

    async def post(self, person: str, path: str, body: Any) -> Any:
        self.phases[path.split("/")[2]] = "RolledBack"

    async def get(self, person: str, path: str) -> Any:
        name = path.rpartition("/")[2]
        body = self.requested[name]
        deployment = {
            "id": name,
            "operatorName": body["operator"],
            "version": body["version"],
            "phase": self.phases[name],
            "message": "",
            "waitsFor": "",
        }
        clusters = [
            {"cluster": each, "state": "Failed", "message": "crashes"} for each in body["targets"]["clusters"]
        ]
        return {"deployment": deployment, "clusters": clusters}


async def run(calls: FakeCalls, size: FleetSize = SIZE) -> LoadReport:
    order = LoadOrder(urls=[], data_directory="", size=size, version="1.1.0")
    return await Load(calls, order).run()  # type: ignore[arg-type]


async def test_all_deployments_and_rollbacks_are_timed() -> None:
    calls = FakeCalls()
    durations = (await run(calls)).durations
    assert durations is not None
    counts = {name: len(values) for name, values in durations.items() if not name.startswith("GET")}
    assert counts == {START_DEPLOYMENT: 8, WIDE: 1, CANARY: 1, ONE_CLUSTER: 6, ROLLBACK: 3}
    assert SIZE.expected_deployments == 8
    widths = Counter(len(body["targets"]["clusters"]) for body in calls.requested.values())
    assert widths == {10: 2, 1: 6}
    assert set(durations[START_DEPLOYMENT]) == {0.02}


async def test_no_operator_is_deployed_twice_to_a_cluster() -> None:
    calls = FakeCalls()
    await run(calls)
    pairs = [
        (body["operator"], cluster)
        for body in calls.requested.values()
        for cluster in body["targets"]["clusters"]
    ]
    assert len(pairs) == len(set(pairs))


def test_the_deployments_to_one_cluster_are_spread_over_all_clusters() -> None:
    size = FleetSize.of(100)
    clusters = Counter(each for number in range(size.deployments) for each in clusters_of(size, number))
    assert len(clusters) == size.deployments * size.repetitions


async def test_a_deployment_that_ends_otherwise_is_counted_with_its_cause_and_the_others_go_on() -> None:
    report = await run(FakeCalls(fails="operator-002"))
    assert report.durations is not None
    assert [len(report.durations[name]) for name in (WIDE, CANARY, ONE_CLUSTER, ROLLBACK)] == [1, 1, 4, 2]
    assert len(report.failed_deployments) == 2
    for reason in report.failed_deployments:
        assert re.match(r"operator-002 1.1.0 \(deployment .*\) is Failed, not Completed: .* crashes", reason)


async def test_a_kind_of_deployment_that_always_fails_has_no_durations() -> None:
    report = await run(FakeCalls(ends="Paused"))
    assert report.durations is not None
    assert not report.durations.keys() & {WIDE, CANARY, ONE_CLUSTER, ROLLBACK}
    assert len(report.failed_deployments) == SIZE.expected_deployments


async def test_a_deployment_that_does_not_end_in_time_is_counted() -> None:
    hurried = FleetSize(clusters=12, operators=5, installed=5, deployments=5, clients=2, limit_seconds=0.0)
    report = await run(FakeCalls(ends="Deploying"), hurried)
    assert len(report.failed_deployments) == 8
    assert "is Deploying, not Completed" in report.failed_deployments[0]


async def test_a_refused_deployment_is_counted() -> None:
    report = await run(FakeCalls(refuses="/deployments"))
    assert report.failed_deployments == ["POST /deployments was refused"] * SIZE.expected_deployments
