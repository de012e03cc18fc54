"""Fixtures for tests of the operator on either engine, with virtual time on the embedded one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import pytest_asyncio

from kapsa.devcluster import DevCluster, FaultPlan, VirtualClock, VirtualTimeLoop
from kapsa.runtime import SystemClock
from kapsa.runtime.testing import Harness
from tests.environments.sandbox import Sandbox
from tests.environments.tenant import Tenant


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]] | None:
    """Run tests with a sandbox on virtual time, unless the engine is real."""
    if "sandbox" in getattr(item, "fixturenames", ()) and config.getoption("--engine") == "embedded":
        return {"virtual": VirtualTimeLoop}
    return None


@pytest.fixture
def faults() -> FaultPlan:
    """The faults of the embedded engine, and a record of every request."""
    return FaultPlan()


@pytest_asyncio.fixture
async def sandbox(request: pytest.FixtureRequest, engine: str, faults: FaultPlan) -> AsyncIterator[Sandbox]:
    """A namespace on a cluster with the kinds installed."""
    if engine == "real":
        async for made in _on(request.getfixturevalue("real_cluster")):
            yield made
        return
    async with DevCluster(clock=VirtualClock(), faults=faults, http=False, seed=1) as cluster:
        async for made in _on(cluster):
            yield made


@pytest_asyncio.fixture
async def tenant(sandbox: Sandbox) -> Tenant:
    """A tenant with a running operator."""
    made = Tenant(sandbox)
    await made.start()
    return made


async def _on(cluster: DevCluster) -> AsyncIterator[Sandbox]:
    clock = VirtualClock() if cluster.engine == "embedded" else SystemClock()
    harness = Harness(cluster, clock=clock)
    try:
        sandbox = Sandbox(harness)
        await sandbox.prepare()
        yield sandbox
    finally:
        await harness.close()
