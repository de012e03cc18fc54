"""The clients of the managers, in their own process: people who read, and people who deploy.

`python -m bench.fleet.load_process ORDER` (a file with a `LoadOrder`) prints lines of JSON, a `LoadReport` each: the
progress now and then, and at the end the durations of everything.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import msgspec

from bench.fleet.calls import CallFailed, FleetCalls
from bench.fleet.child_process import input_end, send
from bench.fleet.size import FleetSize, cluster_name, operator_name

LIST_OPERATORS = "GET /operators"
LIST_DEPLOYMENTS = "GET /deployments"
CLUSTER_HEALTH = "GET /clusters/{name}/health"
OPERATOR_HEALTH = "GET /operators/{name}/health"
START_DEPLOYMENT = "POST /deployments"
ONE_CLUSTER = "deployment to one cluster"
WIDE = "deployment to several clusters"
CANARY = "canary in three stages"
ROLLBACK = "rollback"

_THINK_SECONDS = 1.0
"""The pause of a client between two requests: four kinds of them in turn stay within the rate limits."""
_POLL_SECONDS = 0.5
_PROGRESS_SECONDS = 5.0
_ENDS = frozenset({"Completed", "RolledBack", "Failed", "Aborted", "Rejected", "Paused", "AwaitingApproval"})
"""Phases in which a deployment of this load goes on no more by itself."""


class LoadOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The work of the clients, and the managers that they call."""

    urls: list[str]
    data_directory: str
    size: FleetSize
    version: str


class LoadReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The progress, or in the last line the outcome."""

    progress: str = ""
    durations: dict[str, list[float]] | None = None
    """Seconds of requests and deployments by name. None until the end."""
    cpu_seconds: float = 0.0
    """The CPU of the clients themselves, in the last line: near a core, they would measure their own delays."""
    failed_requests: list[str] = []
    """Reads that a manager refused or did not answer."""
    failed_deployments: list[str] = []
    """The reasons of deployments and rollbacks that did not end as they should. They are not among the durations."""


class LoadFailed(RuntimeError):  # noqa: N818 - named as what happened
    """A deployment did not end as it should."""


class Load:
    """One run of all clients."""

    def __init__(self, calls: FleetCalls, order: LoadOrder) -> None:
        self._calls = calls
        self._size = order.size
        self._version = order.version
        self._seconds: dict[str, list[float]] = defaultdict(list)
        self._failed: list[str] = []
        self._failed_deployments: list[str] = []

    async def run(self) -> LoadReport:
        """Read until all deployments have ended. Those that end otherwise, or not in time, are only counted."""
        background = [asyncio.create_task(self._read(number)) for number in range(self._size.clients)]
        background.append(asyncio.create_task(self._report_progress()))
        try:
            async with asyncio.TaskGroup() as deployers:
                for number in range(self._size.deployments):
                    deployers.create_task(self._deploy(number))
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
        return LoadReport(
            durations={name: each for name, each in self._seconds.items() if each},
            cpu_seconds=time.process_time(),
            failed_requests=self._failed,
            failed_deployments=self._failed_deployments,
        )

    # -- people who read -----------------------------------------------------------------------------------------

    async def _read(self, number: int) -> None:
        await asyncio.sleep(_THINK_SECONDS * number / self._size.clients)  # not all in the same moment
        for turn in range(number, sys.maxsize):
            name, path = self._request(turn)
            try:
                _, seconds = await self._calls.timed("GET", f"reader-{number}", path)
                self._seconds[name].append(seconds)
            except CallFailed as error:
                self._failed.append(str(error))
            await asyncio.sleep(_THINK_SECONDS)

    def _request(self, turn: int) -> tuple[str, str]:
        kinds = (
            (LIST_OPERATORS, "/operators"),
            (CLUSTER_HEALTH, f"/clusters/{cluster_name(turn % self._size.clusters)}/health"),
            (OPERATOR_HEALTH, f"/operators/{operator_name(turn % self._size.installed)}/health"),
            (LIST_DEPLOYMENTS, "/deployments"),
        )
        return kinds[turn % len(kinds)]

    async def _report_progress(self) -> None:
        started = time.monotonic()
        while True:
            await asyncio.sleep(_PROGRESS_SECONDS)
            done = sum(len(self._seconds[each]) for each in (ONE_CLUSTER, WIDE, CANARY))
            reads = sum(len(values) for name, values in self._seconds.items() if name.startswith("GET"))
            send(
                LoadReport(
                    progress=f"{done} of {self._size.expected_deployments} deployments, "
                    f"{len(self._seconds[ROLLBACK])} rollbacks, {len(self._failed_deployments)} failed, "
                    f"{reads} reads in {time.monotonic() - started:.0f} s"
                )
            )

    # -- people who deploy ---------------------------------------------------------------------------------------

    async def _deploy(self, number: int) -> None:
        """Deploy an operator: to several clusters, as a canary, or to one cluster after another and back."""
        operator = operator_name(number)
        several = [cluster_name(each) for each in range(self._size.wide)]
        if number == 0:
            await self._counted(self._completed(WIDE, operator, several, {"strategy": "Direct"}))
        elif number == 1:
            canary = {
                "strategy": "Canary",
                "canaryConfig": {"percentages": [10, 30, 100], "evaluationPeriod": "PT1S"},
            }
            await self._counted(self._completed(CANARY, operator, several, canary))
        else:
            last = ""
            for cluster in clusters_of(self._size, number):
                deployment = self._completed(ONE_CLUSTER, operator, [cluster], {"strategy": "Direct"})
                last = await self._counted(deployment) or last
            if last:
                await self._counted(self._rolled_back(operator, last))

    async def _counted(self, deployment: Awaitable[str]) -> str:
        """Return the id of a deployment that ended as it should. Count another one, and return nothing."""
        try:
            return await deployment
        except (LoadFailed, CallFailed) as failure:
            self._failed_deployments.append(str(failure))
            return ""

    async def _completed(
        self, kind: str, operator: str, clusters: list[str], strategy: dict[str, Any]
    ) -> str:
        """Start a deployment, and return its id when it is completed."""
        body = {"operator": operator, "version": self._version, "targets": {"clusters": clusters}, **strategy}
        started = time.monotonic()
        answer, seconds = await self._calls.timed("POST", f"deployer-{operator}", "/deployments", body)
        self._seconds[START_DEPLOYMENT].append(seconds)
        await self._until(operator, answer["id"], "Completed")
        self._seconds[kind].append(time.monotonic() - started)
        return str(answer["id"])

    async def _rolled_back(self, operator: str, deployment: str) -> str:
        """Roll a deployment back, and return its id when it is."""
        started = time.monotonic()
        await self._calls.post(
            f"deployer-{operator}",
            f"/deployments/{deployment}/rollback",
            {"reason": "the benchmark rolls back"},
        )
        await self._until(operator, deployment, "RolledBack", leaving="Completed")
        self._seconds[ROLLBACK].append(time.monotonic() - started)
        return deployment

    async def _until(self, operator: str, deployment: str, phase: str, *, leaving: str = "") -> None:
        """Wait for a phase. Raises LoadFailed as soon as the deployment stays in another, except the one it leaves."""
        deadline = time.monotonic() + self._size.limit_seconds
        while True:
            details = await self._calls.get(f"deployer-{operator}", f"/deployments/{deployment}")
            present = details["deployment"]["phase"]
            if present == phase:
                return
            if (present in _ENDS and present != leaving) or time.monotonic() > deadline:
                raise LoadFailed(failure(details, phase))
            await asyncio.sleep(_POLL_SECONDS)


def clusters_of(size: FleetSize, number: int) -> list[str]:
    """Return the clusters that somebody deploys to, one after the other: those of all people are spread evenly."""
    first = number * size.clusters // size.deployments
    return [cluster_name((first + each) % size.clusters) for each in range(size.repetitions)]


def failure(details: Any, phase: str) -> str:
    """Return why a deployment is not in a phase."""
    deployment = details["deployment"]
    causes = [
        f"{each['cluster']} is {each['state']} {each['message']}".strip() for each in details["clusters"]
    ]
    why = deployment["message"] or deployment["waitsFor"] or "; ".join(causes[:5])
    what = f"{deployment['operatorName']} {deployment['version']} (deployment {deployment['id']})"
    return f"{what} is {deployment['phase']}, not {phase}: {why}"


async def main(order: LoadOrder) -> int:
    """Run the load, until the standard input ends at the latest.

    Return the exit code: 1 if it was stopped, which is the last line on the standard error.
    """
    async with FleetCalls.connected(order.urls, Path(order.data_directory)) as calls:
        load = asyncio.create_task(Load(calls, order).run())
        stop = asyncio.create_task(input_end())
        await asyncio.wait({load, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        load.cancel()
        try:
            report = await load
        except asyncio.CancelledError:
            print("the load was stopped", file=sys.stderr)
            return 1
        send(report)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=LoadOrder))))
