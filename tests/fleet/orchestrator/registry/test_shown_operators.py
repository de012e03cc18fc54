"""Operators as people see them and send them back: no secret in any form, and nothing lost on the way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kapsa.fleet.domain.errors import InvalidInput, StateConflict, VersionMismatch
from kapsa.fleet.domain.registry.clusters import ClusterEnvironment
from kapsa.fleet.domain.values import MASK
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.registry.cluster_repository import PostgresClusters
from kapsa.fleet.infrastructure.postgres.registry.operator_repository import PostgresOperators
from kapsa.fleet.infrastructure.vault.encryption_keys import FixedKeys, KeyRing, new_key_text
from kapsa.fleet.infrastructure.vault.local_vault import LocalVault
from kapsa.fleet.orchestrator.registry.operator_secrets import OperatorSecrets
from kapsa.fleet.orchestrator.registry.operators import Operators, UpdateOperator
from tests.fleet.audit_recorder import AuditRecorder
from tests.fleet.key_outage import OutageVault, OutageWrapper, watch_transactions
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


async def secretive(database: Database, audit: AuditRecorder, count: int) -> tuple[Operators, OutageWrapper]:
    """Return the use cases with registered operators that each have a secret, and their keys."""
    vault = OutageVault()
    operators = Operators(database, PostgresOperators(), FakeCharts(), vault, audit)
    for number in range(count):
        await operators.register(
            EDITOR, registration(f"widget-{number}", values={"size": 3}, secret_values={"token": PASSWORD})
        )
    vault.keys.calls = 0
    return operators, vault.keys


async def test_a_list_opens_its_secrets_side_by_side_and_with_no_transaction_open(
    database: Database, audit: AuditRecorder
) -> None:
    operators, keys = await secretive(database, audit, 12)
    watch_transactions(database)
    keys.seconds = 0.01
    listed = (await operators.page(VIEWER)).items
    assert {each.name: each.values for each in listed} == {
        f"widget-{number}": {"size": 3, "token": MASK} for number in range(12)
    }
    await operators.get(VIEWER, "widget-1")
    assert keys.calls == 13
    assert keys.in_transactions == 0
    assert keys.at_once == 8
    keys.away = True
    assert {each.values[MASK] for each in (await operators.page(VIEWER)).items} == {MASK}
    assert keys.calls <= 13 + 8


async def test_an_operator_is_registered_and_changed_with_no_transaction_open_at_the_vault(
    database: Database, audit: AuditRecorder
) -> None:
    watch_transactions(database)
    vault = OutageVault()
    operators = Operators(database, PostgresOperators(), FakeCharts(), vault, audit)
    await operators.register(EDITOR, registration(secret_values={"token": PASSWORD}))
    changed = await operators.update(
        EDITOR, "widget", UpdateOperator(values={"size": 4}, secret_values={"token": "another-secret"})
    )
    assert changed.values == {"size": 4, "token": MASK}
    assert vault.keys.calls >= 3
    assert vault.keys.in_transactions == 0
    with pytest.raises(VersionMismatch):
        await operators.update(EDITOR, "widget", UpdateOperator(secret_values={}), expected=1)


async def test_of_two_changes_of_secrets_at_the_same_time_one_is_refused(
    database: Database, audit: AuditRecorder
) -> None:
    vault = OutageVault()
    operators = Operators(database, PostgresOperators(), FakeCharts(), vault, audit)
    await operators.register(EDITOR, registration(secret_values={"token": PASSWORD}))
    vault.keys.seconds = 0.05
    results = await asyncio.gather(
        *(
            operators.update(EDITOR, "widget", UpdateOperator(secret_values={"token": f"secret-{number}"}))
            for number in range(2)
        ),
        return_exceptions=True,
    )
    assert [type(each) for each in results if isinstance(each, Exception)] == [StateConflict]
    secrets = OperatorSecrets(PostgresOperators(), vault)
    async with database.transaction() as connection:
        operator = await PostgresOperators().get(connection, "widget")
        assert operator is not None
        stored = await secrets.stored_values(connection, operator.id)
    assert (await secrets.open_values(operator.id, stored))["token"].startswith("secret-")


async def test_a_list_does_not_wait_for_keys_that_are_slow(database: Database, audit: AuditRecorder) -> None:
    operators, _ = await secretive(database, audit, 2)
    listed = (await operators.page(VIEWER)).items
    slow = OutageVault()
    slow.keys.seconds = 3600.0
    secrets = OperatorSecrets(PostgresOperators(), slow, patience=0.01)
    async with database.transaction() as connection:
        stored = await secrets.stored_of(connection, listed)
    opened = await secrets.opened(listed, stored)
    assert opened == dict.fromkeys(each.id for each in listed)


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


OTHER = "correct-horse-battery"
URL = f"host=db user=app {PASSWORD}"


@pytest.mark.parametrize("secret_values", [None, {"token": OTHER}], ids=["erased", "replaced"])
@pytest.mark.parametrize(
    ("layers", "named"),
    [
        ({"values": {"db": {"url": URL}}}, r"values\.db\.url: has a hidden value"),
        ({"values": {"db": {f"for-{PASSWORD}": {"a": 1}}}}, r"values\.db: has a hidden value"),
        (
            {"environment_values": {ClusterEnvironment.DEV: {"urls": [URL]}}},
            r"environmentValues\.Dev\.urls: ",
        ),
    ],
    ids=["value", "key", "environment"],
)
async def test_a_change_of_secrets_that_would_show_what_repeats_them_is_refused(
    quick: Operators, layers: dict[str, Any], named: str, secret_values: dict[str, Any] | None
) -> None:
    await quick.register(EDITOR, registration(secret_values={"token": PASSWORD}, **layers))
    before = await quick.get(VIEWER, "widget")
    with pytest.raises(InvalidInput, match=named) as refusal:
        await quick.update(EDITOR, "widget", UpdateOperator(secret_values=secret_values))
    assert PASSWORD not in f"{refusal.value} {refusal.value.fields}"
    assert await quick.get(VIEWER, "widget") == before


async def test_secrets_change_together_with_the_values_that_repeat_them(quick: Operators) -> None:
    values = {"url": URL, "level": "info"}
    await quick.register(EDITOR, registration(values=values, secret_values={"token": PASSWORD}))
    url = URL.replace(PASSWORD, OTHER)
    sent = UpdateOperator(values={"url": url, "level": "warn"}, secret_values={"token": OTHER})
    updated = await quick.update(EDITOR, "widget", sent)
    assert updated.values == {"url": MASK, "level": "warn", "token": MASK}
    updated = await quick.update(EDITOR, "widget", UpdateOperator(values={}, secret_values=None))
    assert updated.values == {}


async def test_secrets_that_no_value_repeats_can_be_replaced_and_erased(quick: Operators) -> None:
    values = {"level": "info", "none": {}}
    await quick.register(EDITOR, registration(values=values, secret_values={"token": PASSWORD}))
    updated = await quick.update(EDITOR, "widget", UpdateOperator(secret_values={"db": {"password": OTHER}}))
    assert updated.values == {**values, "db": {"password": MASK}}
    assert (await quick.update(EDITOR, "widget", UpdateOperator(secret_values=None))).values == values
