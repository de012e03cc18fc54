"""Operators as people see them and send them back: no secret in any form, and nothing lost on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import pytest

from kapsa.fleet.domain.errors import InvalidInput
from kapsa.fleet.domain.registry.clusters import ClusterEnvironment
from kapsa.fleet.domain.values import MASK
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.registry.cluster_repository import PostgresClusters
from kapsa.fleet.infrastructure.postgres.registry.operator_repository import PostgresOperators
from kapsa.fleet.infrastructure.vault.encryption_keys import FixedKeys, KeyRing, new_key_text
from kapsa.fleet.infrastructure.vault.local_vault import LocalVault
from kapsa.fleet.orchestrator.ports.vault import VaultUnavailable
from kapsa.fleet.orchestrator.registry.operators import Operators, UpdateOperator
from tests.fleet.audit_recorder import AuditRecorder
from tests.fleet.orchestrator.registry.operator_examples import (
    EDITOR,
    PASSWORD,
    VIEWER,
    FakeCharts,
    registration,
)
from tests.fleet.rollout_harness import managed_cluster


async def test_values_that_repeat_a_secret_are_hidden_from_readers_and_survive_an_update_of_what_was_read(
    quick: Operators, database: Database
) -> None:
    async with database.transaction() as connection:
        await PostgresClusters().insert(connection, managed_cluster("dev-1"), "dev-1")
    url = f"postgres://app:{PASSWORD}@db/app"
    layers = {
        "values": {"url": url, "level": "info", f"for-{PASSWORD}": {"on": True}},
        "environment_values": {ClusterEnvironment.DEV: {"env": [f"PASS={PASSWORD}"], "level": "debug"}},
        "cluster_values": {"dev-1": {"token": PASSWORD, "url": {"main": url}}},
    }
    registered = await quick.register(EDITOR, registration(secret_values={"token": PASSWORD}, **layers))
    shown = await quick.get(VIEWER, "widget")
    assert shown.values == {"url": MASK, "level": "info", MASK: MASK, "token": MASK}
    assert shown.environment_values == {"Dev": {"env": MASK, "level": "debug"}}
    assert shown.cluster_values == {"dev-1": {"token": MASK, "url": {"main": MASK}}}
    assert registered.operator == shown
    assert (await quick.page(VIEWER)).items == (shown,)
    sent = UpdateOperator(
        values={**shown.values, "level": "warn"},
        environment_values={ClusterEnvironment.DEV: shown.environment_values["Dev"]},
        cluster_values=shown.cluster_values,
    )
    updated = await quick.update(EDITOR, "widget", sent)
    assert updated.values == {**shown.values, "level": "warn"}
    async with database.transaction() as connection:
        stored = await PostgresOperators().get(connection, "widget")
    assert stored is not None
    assert stored.values == {**layers["values"], "level": "warn"}
    assert stored.environment_values == {"Dev": {"env": [f"PASS={PASSWORD}"], "level": "debug"}}
    assert stored.cluster_values == layers["cluster_values"]


async def test_an_operator_whose_secrets_cannot_be_opened_is_listed_without_any_value(
    quick: Operators, database: Database, audit: AuditRecorder
) -> None:
    await quick.register(EDITOR, registration("plain", values={"level": "info"}))
    secret = registration(values={"url": PASSWORD}, secret_values={"token": PASSWORD})
    await quick.register(EDITOR, secret)
    other = LocalVault(FixedKeys(KeyRing.parse(new_key_text(), "other")))
    keyless = Operators(database, PostgresOperators(), FakeCharts(), other, audit)
    plain, hidden = (await keyless.page(VIEWER)).items
    assert (plain.values, hidden.values) == ({"level": "info"}, {MASK: MASK, "token": MASK})
    updated = await keyless.update(
        EDITOR, "widget", UpdateOperator(values={**hidden.values, "level": "warn"})
    )
    assert updated.version == 2
    assert (await quick.get(VIEWER, "widget")).values == {"url": MASK, "level": "warn", "token": MASK}


class SlowVault:
    """A vault that opens secrets slowly, or not at all, and records how it is asked to."""

    def __init__(self, vault: LocalVault, database: Database) -> None:
        self._vault = vault
        self._database = database
        self.available = True
        self.asked = self.at_once = self.most_at_once = self.transactions = 0

    async def seal(self, *arguments: Any) -> Any:
        return await self._vault.seal(*arguments)

    async def open(self, *arguments: Any) -> bytes:
        self.asked += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(0)
            if not self.available:
                raise VaultUnavailable("Vault is sealed")
            return await self._vault.open(*arguments)
        finally:
            self.at_once -= 1

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        async with self._database.transaction() as connection:
            asked = self.asked
            yield connection
            self.transactions += self.asked - asked

    async def now(self) -> datetime:
        return await self._database.now()


async def test_a_list_opens_a_few_secrets_at_a_time_after_its_transaction_and_asks_no_vault_that_is_away(
    database: Database, vault: LocalVault, audit: AuditRecorder
) -> None:
    slow = SlowVault(vault, database)
    operators = Operators(slow, PostgresOperators(), FakeCharts(), slow, audit)
    for number in range(20):
        secret = {"token": f"{PASSWORD}-{number}"}
        await operators.register(EDITOR, registration(f"widget-{number}", secret_values=secret))
    assert len((await operators.page(VIEWER)).items) == 20
    await operators.get(VIEWER, "widget-1")
    assert (slow.asked, slow.most_at_once, slow.transactions) == (21, 8, 0)
    slow.available = False
    assert len((await operators.page(VIEWER)).items) == 20
    assert slow.asked <= 21 + 8


async def test_plain_values_next_to_a_secret_survive_an_update_of_what_was_read_without_the_key(
    quick: Operators, database: Database, audit: AuditRecorder
) -> None:
    values = {"db": {"host": "db.example.com", "port": 5432}, "replicas": 1}
    await quick.register(EDITOR, registration(values=values, secret_values={"db": {"password": PASSWORD}}))
    other = LocalVault(FixedKeys(KeyRing.parse(new_key_text(), "other")))
    keyless = Operators(database, PostgresOperators(), FakeCharts(), other, audit)
    hidden = (await keyless.get(VIEWER, "widget")).values
    assert hidden == {MASK: MASK, "db": {"password": MASK}}
    await keyless.update(EDITOR, "widget", UpdateOperator(values={**hidden, "level": "warn"}))
    async with database.transaction() as connection:
        stored = await PostgresOperators().get(connection, "widget")
    assert stored is not None
    assert stored.values == {**values, "level": "warn"}


@pytest.mark.parametrize("field", ["values", "secret_values", "cluster_values", "environment_values"])
async def test_a_mask_is_no_value_of_a_new_operator_or_of_another_key(quick: Operators, field: str) -> None:
    layer: dict[Any, Any] = {"dsn": MASK}
    if field in ("cluster_values", "environment_values"):
        layer = {ClusterEnvironment.DEV if field == "environment_values" else "dev-1": layer}
    refusal = r"dsn: •+ stands for nothing that is hidden here"
    with pytest.raises(InvalidInput, match=refusal):
        await quick.register(EDITOR, registration(**{field: layer}))
    await quick.register(EDITOR, registration(values={"level": "info"}))
    if field != "cluster_values":
        with pytest.raises(InvalidInput, match=refusal):
            await quick.update(EDITOR, "widget", UpdateOperator(**{field: layer}))
    assert (await quick.get(VIEWER, "widget")).values == {"level": "info"}
