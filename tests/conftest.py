"""Which engine the tests run on, the cluster they get, and virtual time for those that ask for it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping

import pytest
import pytest_asyncio

from kapsa.devcluster import DevCluster, VirtualClock, VirtualTimeLoop
from kapsa.runtime.testing.background import background_loop
from tests.devcluster.conformance.report import ConformanceRecorder


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--engine",
        choices=("embedded", "real"),
        default=os.environ.get("KAPSA_TEST_ENGINE", "embedded"),
        help="the control plane the tests run on (default: embedded, or KAPSA_TEST_ENGINE)",
    )


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # the process that reports, not one that xdist started
        config.pluginmanager.register(ConformanceRecorder(), "conformance-recorder")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the engine under test cannot run: the real control plane has no virtual clock."""
    left_out = "virtual_time" if config.getoption("--engine") == "real" else "real"
    chosen = [item for item in items if item.get_closest_marker(left_out) is None]
    if len(chosen) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
        items[:] = chosen


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many crash points were run. xdist's workers cannot print it themselves."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "sweep":
                terminalreporter.write_line(str(value))


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    if item.get_closest_marker("virtual_time"):
        return {"virtual": VirtualTimeLoop}
    return {"asyncio": asyncio.new_event_loop}


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--engine"))


@pytest_asyncio.fixture
async def cluster(engine: str, request: pytest.FixtureRequest) -> AsyncIterator[DevCluster]:
    """A cluster of the engine under test: a fresh embedded one, or the session's real one."""
    if engine == "real":
        yield request.getfixturevalue("real_cluster")
        return
    virtual = request.node.get_closest_marker("virtual_time") is not None
    async with DevCluster(clock=VirtualClock() if virtual else None, http=not virtual) as embedded:
        yield embedded


@pytest.fixture(scope="session")
def real_cluster() -> Iterator[DevCluster]:
    """One real cluster for all tests of a process: starting it takes seconds."""
    with background_loop() as wait:
        real = DevCluster(engine="real")
        wait(real.start())
        try:
            yield real
        finally:
            wait(real.stop())
