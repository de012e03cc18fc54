"""An API server that was restored from a backup: its versions have gone back, and watches cannot be resumed."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from kapsa.devcluster import DevCluster
from kapsa.devcluster.faults import Cut, FaultPlan
from kapsa.runtime import Client
from kapsa.runtime.cache.informer import SILENCE_SECONDS
from kapsa.runtime.testing import Harness, InProcessTransport
from tests.runtime.cache.informer_fixture import InformerFixture
from tests.runtime.sample_app import config_map

pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def fixture(harness: Harness) -> AsyncIterator[InformerFixture]:
    """An informer whose server has the objects `a`, `b` and `lost`."""
    made = InformerFixture(harness)
    await made.make("a", "b", "lost")
    await made.start()
    yield made
    await made.informer.stop()


@pytest.fixture
async def backup(harness: Harness) -> AsyncIterator[DevCluster]:
    """A cluster with the state of a backup: `a` alone."""
    async with DevCluster(clock=harness.clock, http=False) as cluster:
        await make(cluster, "a")
        yield cluster


async def make(cluster: DevCluster, name: str) -> None:
    made = config_map(name, labels={"test": "1"}, namespace="default")
    await Client(InProcessTransport(cluster)).create(made)


async def test_a_watch_that_is_silent_after_a_restore_lists_again(
    fixture: InformerFixture, backup: DevCluster, faults: FaultPlan
) -> None:
    assert backup.revision < int(fixture.informer.resource_version)
    fixture.transport.restore(backup, newest=backup.revision)
    faults.order(Cut(), client="informer")
    await fixture.wait(5)
    assert "resourceVersion" in fixture.transport.watches[-1], "the watch was resumed"
    await make(backup, "new")
    await fixture.wait(SILENCE_SECONDS)
    assert fixture.names == ["a", "new"]
    assert sorted(fixture.delivered[-3:]) == ["Added new", "Deleted b", "Deleted lost"]
    await make(backup, "later")
    await fixture.wait()
    assert fixture.names == ["a", "later", "new"]
    assert fixture.informer.restarts == 1


async def test_a_watch_whose_bookmark_has_an_older_version_lists_again(
    fixture: InformerFixture, backup: DevCluster, faults: FaultPlan
) -> None:
    fixture.transport.restore(backup)
    faults.order(Cut(), client="informer")
    await make(backup, "new")
    await fixture.wait(70)
    assert fixture.names == ["a", "new"]
    assert fixture.informer.relists == 1
    await fixture.wait(600)
    assert fixture.informer.relists == 1
