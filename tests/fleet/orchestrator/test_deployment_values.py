"""Values of deployments: what people see of them shows no secret, and the chart gets them all."""

from __future__ import annotations

import base64
from datetime import timedelta

import pytest

from kapsa.fleet.domain.errors import InvalidInput
from kapsa.fleet.domain.principals import Principal, Role
from kapsa.fleet.domain.rollout.strategies import CanaryStrategy
from kapsa.fleet.domain.values import MASK
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.registry.operator_repository import PostgresOperators
from kapsa.fleet.orchestrator.registry.operator_secrets import OperatorSecrets
from tests.fleet.database_text import database_text
from tests.fleet.rollout_harness import OPERATOR_ID, RolloutHarness

CANARY = CanaryStrategy(percentages=(50, 100), evaluation_period=timedelta(seconds=30))
VIEWER = Principal("vera", frozenset({Role.VIEWER}))
PLANTED = "hunter2-planted"


async def started(database: Database, *names: str) -> RolloutHarness:
    fleet = RolloutHarness(database, *names)
    await fleet.register()
    return fleet


async def test_a_plain_value_that_shows_a_secret_in_any_form_is_masked_and_reaches_helm(
    database: Database,
) -> None:
    fleet = await started(database, "dev-1")
    coded = base64.b64encode(f"app:{PLANTED}".encode()).decode()
    plain = {
        "user": "app",
        "dsn": f"postgres://app:{PLANTED}@db",
        "auth": {"header": coded},
        "list": ["a", coded],
    }
    made = await fleet.create(CANARY, values=plain, secret_values={"password": PLANTED})
    await fleet.run()
    shown = await fleet.deployments.plan(VIEWER, made.id)
    details = await fleet.deployments.get(VIEWER, made.id)
    hidden = {"user": "app", "dsn": MASK, "auth": {"header": MASK}, "list": MASK}
    assert details.deployment.values == made.values == hidden
    assert shown.plan.clusters[0].values == {**hidden, "password": MASK}
    content = await database_text(database)
    assert [text for text in (PLANTED, coded) if text in content] == []
    bundle = await fleet.bundle(made.id, shown.plan.clusters[0].cluster_id)
    assert bundle.values == {**plain, "password": PLANTED}


async def test_a_mask_is_no_value_of_a_deployment(database: Database) -> None:
    fleet = await started(database, "dev-1")
    for field, values in (("values", {"db": {"dsn": MASK}}), ("secret_values", {"keys": [MASK]})):
        with pytest.raises(
            InvalidInput, match=r"(db\.dsn|keys\.0): •+ stands for nothing that is hidden here"
        ):
            await fleet.create(CANARY, **{field: values})
    assert (await fleet.deployments.page(VIEWER)).items == ()


async def test_a_value_of_the_operator_that_shows_a_secret_of_the_deployment_is_masked_in_the_plan(
    database: Database,
) -> None:
    fleet = await started(database, "dev-1")
    fleet.sources.values = {"note": f"the password is {PLANTED}", "level": "info"}
    made = await fleet.create(CANARY, secret_values={"password": PLANTED})
    await fleet.run()
    plan = await fleet.deployments.plan(VIEWER, made.id)
    assert plan.plan.clusters[0].values == {"note": MASK, "level": "info", "password": MASK}


async def test_a_plain_value_that_shows_a_secret_of_the_operator_is_masked(database: Database) -> None:
    fleet = await started(database, "dev-1")
    secrets = OperatorSecrets(PostgresOperators(), fleet.vault)
    sealed = await secrets.seal_values(OPERATOR_ID, {"token": PLANTED})
    async with database.transaction() as connection:
        await secrets.put(connection, OPERATOR_ID, sealed)
    made = await fleet.create(CANARY, values={"url": f"https://db/{PLANTED}", "size": 3})
    assert made.values == {"url": MASK, "size": 3}
    page = await fleet.deployments.page(VIEWER)
    assert page.items[0].values == made.values
