"""The pytest plugin, with a cluster and a harness: `pytest_plugins = ["kapsa.runtime.testing.plugin"]`.

Tests marked `@pytest.mark.virtual_time` run on virtual time: hours pass in milliseconds, and nothing listens
on a port.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import pytest_asyncio
import structlog

from kapsa.devcluster import DevCluster, FaultPlan, VirtualClock, VirtualTimeLoop
from kapsa.runtime.clock import SystemClock
from kapsa.runtime.telemetry.logs import configure
from kapsa.runtime.testing._harness import Harness

__all__ = ["faults", "harness", "plain_logs"]


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", "virtual_time: runs on a loop whose clock jumps to the next timer")


@pytest.hookimpl(trylast=True)
def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return the virtual-time loop for marked tests, asyncio's own for the others."""
    if item.get_closest_marker("virtual_time"):
        return {"virtual": VirtualTimeLoop}
    return {"asyncio": asyncio.new_event_loop}


@pytest.fixture(autouse=True, scope="session")
def plain_logs() -> None:
    """Write logs as plain lines, unless the project has configured structlog."""
    if not structlog.is_configured():
        configure(level="debug", format="text")


@pytest.fixture
def faults() -> FaultPlan:
    """The fault plan of the cluster, which also records every request. Empty at first: nothing fails."""
    return FaultPlan()


@pytest_asyncio.fixture
async def harness(request: pytest.FixtureRequest, faults: FaultPlan) -> AsyncIterator[Harness]:
    """A harness on an embedded cluster of its own."""
    virtual = request.node.get_closest_marker("virtual_time") is not None
    clock = VirtualClock() if virtual else SystemClock()
    async with DevCluster(clock=clock, faults=faults, http=not virtual, seed=1) as cluster:
        made = Harness(cluster, clock=clock)
        try:
            yield made
        finally:
            await made.close()
