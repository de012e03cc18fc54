"""The tests of the operator run on either engine: on virtual time where the cluster is embedded."""

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
    """A test that asks for a stage runs on virtual time, unless that is a real one."""
    if "sandbox" in getattr(item, "fixturenames", ()) and config.getoption("--engine") == "embedded":
        return {"virtual": VirtualTimeLoop}
    return None


@pytest.fixture
def faults() -> FaultPlan:
    """What goes wrong on the embedded engine, and a record of every request."""
    return FaultPlan()


@pytest_asyncio.fixture
async def sandbox(request: pytest.FixtureRequest, engine: str, faults: FaultPlan) -> AsyncIterator[Sandbox]:
    """A cluster with the kinds, and a namespace of its own on it."""
    if engine == "real":
        async for made in _on(request.getfixturevalue("real_cluster")):
            yield made
        return
    async with DevCluster(clock=VirtualClock(), faults=faults, http=False, seed=1) as cluster:
        async for made in _on(cluster):
            yield made


@pytest_asyncio.fixture
async def tenant(sandbox: Sandbox) -> Tenant:
    """The operator at work for a team of its own."""
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
