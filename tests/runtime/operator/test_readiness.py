"""Readiness: what only a person can mend makes an operator not ready, and the probe says what to do."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from kapsa.devcluster.faults import Answer, FaultPlan, FaultRule
from kapsa.runtime import (
    Client,
    Operator,
    WriteRefused,
)
from kapsa.runtime.testing import Harness
from tests.runtime.sample_app import App, Recorder, config_map
from tests.runtime.webhooks.webhook_server import AppValidator, webhooks

pytestmark = pytest.mark.virtual_time


async def test_a_lease_that_rbac_forbids_makes_the_operator_not_ready(
    harness: Harness, faults: FaultPlan
) -> None:
    await harness.install(App)
    faults.add(
        FaultRule(action=Answer(code=403, reason="Forbidden"), client="operator", resource="leases", times=0)
    )
    run = await harness.start(Operator(controllers=[Recorder()], leader_election="lock"))
    await harness.clock.sleep(30)
    ready, text = run.health.report(run.health.ready)
    assert not ready
    assert "leader election: cannot take the lease: " in text
    faults.clear()
    await harness.clock.sleep(30)
    assert run.health.report(run.health.ready)[0]


async def test_a_misspelt_built_in_kind_is_not_ready_and_gets_a_suggestion_instead_of_a_crd(
    harness: Harness,
) -> None:
    await harness.install(App)
    run = await harness.start(Operator(controllers=[Recorder(owns=["apps/v1/Deploymnet"])]))
    await harness.clock.sleep(30)
    ready, text = run.health.report(run.health.ready)
    assert not ready
    assert "check its spelling and version; did you mean Deployment?" in text
    assert "CustomResourceDefinition" not in text


async def test_a_kind_whose_crd_is_missing_is_degraded_and_ready(harness: Harness) -> None:
    run = await harness.start(Operator(controllers=[Recorder()]))
    await harness.clock.sleep(30)
    ready, text = run.health.report(run.health.ready)
    assert ready
    assert "install its CustomResourceDefinition" in text


async def test_a_clean_start_with_webhooks_and_a_lease_logs_no_warning(harness: Harness) -> None:
    from tests.runtime.webhooks.webhook_server import App as Reviewed
    from tests.runtime.webhooks.webhook_server import OldApp, OldAppConverter

    await harness.install(Reviewed, OldApp)
    operator = Operator(
        controllers=[Recorder()],
        name="shop",
        webhooks=webhooks(AppValidator(), converters=[OldAppConverter()]),
        leader_election="lock",
    )
    with capture_logs() as logs:
        await harness.start(operator)
        await harness.clock.sleep(60)
    assert [each for each in logs if each["log_level"] not in ("debug", "info")] == []


class RecordingCompanion:
    """A companion that keeps the client of each process it runs in."""

    def __init__(self) -> None:
        self.clients: list[Client] = []

    @contextlib.asynccontextmanager
    async def __call__(self, client: Client) -> AsyncIterator[None]:
        self.clients.append(client)
        yield


async def test_a_companion_writes_only_while_its_process_leads(harness: Harness) -> None:
    companion = RecordingCompanion()
    await harness.install(App)
    operator = Operator(controllers=[Recorder()], companions=[companion], leader_election="lock")
    await harness.start(operator, name="one")
    await harness.clock.sleep(5)
    await harness.start(operator, name="two")
    await harness.clock.sleep(5)
    await companion.clients[0].create(config_map("leader"), namespace="default")
    with pytest.raises(WriteRefused):
        await companion.clients[1].create(config_map("standby"), namespace="default")


async def test_a_companion_of_a_sharded_operator_writes_on_one_replica(harness: Harness) -> None:
    companion = RecordingCompanion()
    await harness.install(App)
    operator = Operator(controllers=[Recorder()], companions=[companion], sharding="apps")
    runs = [await harness.start(operator, name=name) for name in ("one", "two")]
    await harness.clock.sleep(60)
    assert all(run.shards is not None and run.shards.held for run in runs)
    written = 0
    for number, client in enumerate(companion.clients):
        with contextlib.suppress(WriteRefused):
            await client.create(config_map(f"child-{number}"), namespace="default")
            written += 1
    assert written == 1


async def test_adding_a_lease_later_does_not_rename_the_field_manager(harness: Harness) -> None:
    before = Operator(controllers=[Recorder()])
    after = Operator(controllers=[Recorder()], leader_election="a-lock")
    assert before.field_manager == after.field_manager == "app-operator"
    assert Operator(controllers=[Recorder()], leader_election="a-lock", name="mine").field_manager == "mine"
