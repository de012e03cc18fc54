"""The engine under test, the cluster fixtures, and virtual time for the tests that are marked for it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator, Mapping
from typing import Any

import pytest
import pytest_asyncio
import uvloop
from hypothesis import HealthCheck, settings

from kapsa.devcluster import DevCluster, VirtualClock, VirtualTimeLoop
from kapsa.runtime.client.client import Client
from kapsa.runtime.testing import Sample, background_loop
from tests.behaviour.conformance.report import ConformanceRecorder
from tests.leftovers import remove_kinds, remove_objects
from tests.sampling import quick_run

# The duration of an example depends on the load of the machine more than on the code. Each run has the same examples,
# so that a change is blamed for what it broke; --hypothesis-profile=search draws new and more of them.
_SLOW = [HealthCheck.too_slow]
settings.register_profile("kapsa", deadline=None, derandomize=True, suppress_health_check=_SLOW)
settings.register_profile("search", deadline=None, max_examples=2000, suppress_health_check=_SLOW)
settings.load_profile("kapsa")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in a script's background: children would inherit the ignored signal, and some tests send it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--engine",
        choices=("embedded", "real"),
        default=os.environ.get("KAPSA_TEST_ENGINE", "embedded"),
        help="the engine of the devcluster under test (default: embedded, or KAPSA_TEST_ENGINE)",
    )

    parser.addoption(
        "--record",
        action="store_true",
        help="record the answers of kubectl sessions again, with --engine real, instead of comparing them",
    )
    parser.addoption("--full", action="store_true", help="run every point of the long sweeps, not a sample")
    parser.addoption("--sweep-seed", type=int, default=0, help="the seed of the sweeps' samples (default: 0)")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # the process that reports, not one that xdist started
        config.pluginmanager.register(ConformanceRecorder(), "conformance-recorder")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that the engine under test cannot run, or for which it makes no difference.

    A quick run leaves out long tests, and draws a sample of the cases of others.
    """
    real = config.getoption("--engine") == "real"
    runs = _runs_on_real if real else _runs_on_embedded
    chosen = [item for item in items if runs(item)]
    if not real and not config.getoption("--full"):
        chosen = quick_run(chosen, config.getoption("--sweep-seed"))
    kept = set(chosen)
    deselected = [item for item in items if item not in kept]
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = chosen


def _runs_on_embedded(item: pytest.Item) -> bool:
    return item.get_closest_marker("real") is None


def _runs_on_real(item: pytest.Item) -> bool:
    """Return whether a test uses the engine under test, and no virtual clock, which the real one lacks."""
    uses_engine = item.get_closest_marker("real") is not None or "engine" in getattr(item, "fixturenames", ())
    return uses_engine and item.get_closest_marker("virtual_time") is None


CAPTURED = 4000
"""Characters of a failed test's output that its report shows."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep the end of what a test printed: the log of a minute would bury the failure."""
    report = yield
    report.sections = [
        (name, text if len(text) <= CAPTURED else f"[...]\n{text[-CAPTURED:]}")
        for name, text in report.sections
    ]
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the points that each sweep ran. The workers of xdist cannot print them."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "sweep":
                terminalreporter.write_line(str(value))


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    if item.get_closest_marker("virtual_time"):
        return {"virtual": VirtualTimeLoop}
    if item.get_closest_marker("each_loop"):
        return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}


SAMPLE_SIZE = 5
"""Points of a sampled sweep. Enough for each moment of a crash and several kinds of objects."""


@pytest.fixture(scope="session")
def sample(request: pytest.FixtureRequest) -> Sample | None:
    """The points that a long sweep runs: a seeded sample, or all of them under `--full`."""
    if request.config.getoption("--full"):
        return None
    return Sample(SAMPLE_SIZE, seed=request.config.getoption("--sweep-seed"))


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--engine"))


@pytest_asyncio.fixture
async def cluster(engine: str, request: pytest.FixtureRequest) -> AsyncIterator[DevCluster]:
    """A cluster of the engine under test: a new embedded one, or this process's real one."""
    if engine == "real":
        yield request.getfixturevalue("real_cluster")
        return
    virtual = request.node.get_closest_marker("virtual_time") is not None
    async with DevCluster(clock=VirtualClock() if virtual else None, http=not virtual) as embedded:
        yield embedded


@pytest.fixture
def real_cluster(real_cluster_of_module: RealCluster) -> Iterator[DevCluster]:
    """The real cluster of this process, cleared afterwards of objects that could affect the next test."""
    yield real_cluster_of_module.cluster
    real_cluster_of_module.run(remove_objects)


@pytest.fixture(scope="module")
def real_cluster_of_module(real_cluster_of_process: RealCluster) -> Iterator[RealCluster]:
    """The real cluster of this process, without the custom kinds of other modules, which may share a name."""
    yield real_cluster_of_process
    real_cluster_of_process.run(remove_kinds)


@pytest.fixture(scope="session")
def real_cluster_of_process() -> Iterator[RealCluster]:
    """One real cluster for all tests of a process, because a start takes seconds."""
    with background_loop() as wait:
        real = DevCluster(engine="real")
        wait(real.start())
        try:
            yield RealCluster(real, wait)
        finally:
            wait(real.stop())


class RealCluster:
    """A real cluster that the tests share, on a loop that outlives theirs."""

    def __init__(self, cluster: DevCluster, wait: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self.cluster = cluster
        self._wait = wait

    def run(self, work: Callable[[Client], Awaitable[None]]) -> None:
        """Run `work` with a client of the administrator."""

        async def connected() -> None:
            async with Client.connect(kubeconfig=self.cluster.kubeconfig) as client:
                await work(client)

        self._wait(connected())
