"""Operators: registered from real chart repositories, in a real database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import text

from kapsa.adapters.testing.chart_server import ChartServer
from kapsa.fleet.domain.errors import (
    InvalidInput,
    NotAllowed,
    StateConflict,
    UnknownObject,
    VersionMismatch,
)
from kapsa.fleet.domain.principals import Principal, Role
from kapsa.fleet.domain.registry.clusters import ClusterEnvironment
from kapsa.fleet.domain.registry.operators import HttpChart, UploadedChart
from kapsa.fleet.domain.values import MASK, merge_values
from kapsa.fleet.infrastructure.charts.published_charts import PublishedCharts
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.registry.cluster_repository import PostgresClusters
from kapsa.fleet.infrastructure.postgres.registry.operator_repository import PostgresOperators
from kapsa.fleet.infrastructure.vault.local_vault import LocalVault
from kapsa.fleet.orchestrator.operator_values import RegisteredValues
from kapsa.fleet.orchestrator.ports.charts import ChartCrd, RepositoryLogin
from kapsa.fleet.orchestrator.registry.operator_secrets import OperatorSecrets
from kapsa.fleet.orchestrator.registry.operators import AddVersion, Operators, UpdateOperator
from tests.fleet.audit_recorder import AuditRecorder
from tests.fleet.charts import crd, operator_chart
from tests.fleet.orchestrator.registry.operator_examples import (
    EDITOR,
    PASSWORD,
    VIEWER,
    registration,
)
from tests.fleet.rollout_harness import managed_cluster


class NoAdoptions:
    """A fleet in which no release was adopted."""

    async def stored(self, *_: Any) -> None:
        return None

    async def open_values(self, adoption: None) -> dict[str, Any]:
        return {}


@pytest.fixture
def server() -> Iterator[ChartServer]:
    with ChartServer() as running:
        running.add(operator_chart("1.0.0"))
        yield running


@pytest.fixture
def operators(
    database: Database, audit: AuditRecorder, vault: LocalVault, charts: PublishedCharts
) -> Operators:
    return Operators(database, PostgresOperators(), charts, vault, audit)


async def test_an_operator_is_registered_with_its_first_version_crds_and_archive(
    operators: Operators, server: ChartServer, database: Database, audit: AuditRecorder
) -> None:
    result = await operators.register(
        EDITOR, registration(source=HttpChart(server.url, "widget"), values={"replicas": 2})
    )
    assert result.version is not None
    assert (result.operator.name, result.version.version) == ("widget", "1.0.0")
    assert await operators.get(VIEWER, "widget") == result.operator
    assert (await operators.versions(VIEWER, "widget")).items == (result.version,)
    async with database.transaction() as connection:
        repository = PostgresOperators()
        assert await repository.archive(connection, result.version.chart_digest) == operator_chart("1.0.0")
        assert await repository.crds(connection, result.operator.id, "1.0.0") == [
            ChartCrd("widgets.example.com", "crds", crd())
        ]
    (entry,) = audit.entries
    assert (entry.actor, entry.action, entry.object_id) == (
        "maria",
        "operator.register",
        str(result.operator.id),
    )


async def test_an_upload_is_registered_with_or_without_its_first_archive(operators: Operators) -> None:
    source = UploadedChart("widget")
    empty = await operators.register(EDITOR, registration(source=source))
    assert empty.version is None
    added = await operators.add_version(
        EDITOR, "widget", AddVersion(archive=operator_chart("1.1.0"), migration_guide="Read this.")
    )
    assert added.version is not None
    assert (added.version.version, added.version.migration_guide) == ("1.1.0", "Read this.")
    with pytest.raises(InvalidInput, match="archive is missing"):
        await operators.add_version(EDITOR, "widget", AddVersion(version="1.2.0"))


async def test_a_version_is_registered_once_and_never_changes(
    operators: Operators, audit: AuditRecorder
) -> None:
    first = await operators.register(
        EDITOR, registration(source=UploadedChart("widget"), archive=operator_chart("1.0.0"))
    )
    again = await operators.add_version(EDITOR, "widget", AddVersion(archive=operator_chart("1.0.0")))
    assert again.version == first.version
    with pytest.raises(StateConflict, match="another archive"):
        await operators.add_version(
            EDITOR, "widget", AddVersion(archive=operator_chart("1.0.0", {"values.yaml": "replicas: 3\n"}))
        )
    assert "operator.addVersion" in audit.actions()


async def test_versions_are_paged_from_the_newest_by_their_precedence(quick: Operators) -> None:
    await quick.register(EDITOR, registration(version="1.9.0"))
    for version in ("1.10.0", "2.0.0-rc.2", "2.0.0-rc.10", "2.0.0", "0.1.0", "2.0.0+b", "2.0.0+a"):
        await quick.add_version(EDITOR, "widget", AddVersion(version=version))
    seen: list[str] = []
    cursor = ""
    while True:
        page = await quick.versions(VIEWER, "widget", cursor=cursor, limit=3)
        seen += [each.version for each in page.items]
        cursor = page.next_cursor
        if not cursor:
            break
    assert seen == ["2.0.0+b", "2.0.0+a", "2.0.0", "2.0.0-rc.10", "2.0.0-rc.2", "1.10.0", "1.9.0", "0.1.0"]


async def test_operators_are_paged_by_name_and_filtered_by_prefix(quick: Operators) -> None:
    for name in ("c", "a", "b-1", "b-2"):
        await quick.register(EDITOR, registration(name))
    first = await quick.page(VIEWER, limit=3)
    second = await quick.page(VIEWER, limit=3, cursor=first.next_cursor)
    assert [each.name for each in first.items + second.items] == ["a", "b-1", "b-2", "c"]
    assert second.next_cursor == ""
    assert [each.name for each in (await quick.page(VIEWER, prefix="b-")).items] == ["b-1", "b-2"]
    for options in ({"cursor": "nonsense"}, {"cursor": "WyJhIiwiYiJd"}, {"limit": 0}, {"limit": 201}):
        with pytest.raises(InvalidInput):
            await quick.page(VIEWER, **options)  # type: ignore[arg-type]


async def test_secret_values_and_credentials_are_sealed_masked_and_opened_for_a_pull(
    quick: Operators, database: Database, vault: LocalVault, audit: AuditRecorder
) -> None:
    result = await quick.register(
        EDITOR,
        registration(
            values={"admin": {"user": "root"}},
            secret_values={"admin": {"password": PASSWORD}, "token": PASSWORD},
            credentials=RepositoryLogin("reader", PASSWORD),
        ),
    )
    assert result.operator.values == {"admin": {"user": "root", "password": MASK}, "token": MASK}
    assert result.operator.has_credentials
    secrets = OperatorSecrets(PostgresOperators(), vault)
    async with database.transaction() as connection:
        values = await secrets.stored_values(connection, result.operator.id)
        assert await secrets.open_values(result.operator.id, values) == {
            "admin": {"password": PASSWORD},
            "token": PASSWORD,
        }
        stored = await secrets.stored_login(connection, result.operator.id)
        login = await secrets.open_login(result.operator.id, stored)
        assert login is not None
        assert (login.username, login.password) == ("reader", PASSWORD)
        for table in ("operator", "operator_secret", "operator_version"):
            rows = (await connection.execute(text(f'SELECT t::text FROM fleet."{table}" t'))).scalars().all()
            assert rows
            assert all(PASSWORD not in row and PASSWORD.encode().hex() not in row for row in rows)
    request = registration(secret_values={"token": PASSWORD}, credentials=RepositoryLogin("reader", PASSWORD))
    update = UpdateOperator(secret_values={"token": PASSWORD})
    assert PASSWORD not in repr(audit.entries) + repr(result) + repr(request) + repr(update)


async def test_values_of_a_cluster_win_over_its_environment_and_go_with_the_cluster(
    quick: Operators, database: Database, vault: LocalVault
) -> None:
    async with database.transaction() as connection:
        for name in ("dev-1", "dev-2"):
            await PostgresClusters().insert(connection, managed_cluster(name), name)
    own = {"dev-1": {"level": "debug"}, "dev-2": {"level": "trace"}}
    request = registration(
        values={"level": "info", "replicas": 1},
        environment_values={ClusterEnvironment.DEV: {"level": "warn", "replicas": 2}},
        cluster_values=own,
    )
    await quick.register(EDITOR, request)
    source = RegisteredValues(database, OperatorSecrets(PostgresOperators(), vault), NoAdoptions())  # type: ignore[arg-type]

    async def merged(name: str) -> dict[str, Any]:
        operator = await quick.get(VIEWER, "widget")
        return merge_values(*(await source.layers(operator, managed_cluster(name))).layers)

    assert await merged("dev-1") == {"level": "debug", "replicas": 2}
    assert await merged("dev-3") == {"level": "warn", "replicas": 2}
    async with database.transaction() as connection:
        assert await PostgresClusters().delete(connection, managed_cluster("dev-1").id)
    after = await quick.get(VIEWER, "widget")
    assert (after.cluster_values, after.version) == ({"dev-2": {"level": "trace"}}, 2)
    # Another cluster of that name begins without them.
    async with database.transaction() as connection:
        await PostgresClusters().insert(connection, managed_cluster("dev-1"), "another")
    assert await merged("dev-1") == {"level": "warn", "replicas": 2}
    kept = await quick.update(EDITOR, "widget", UpdateOperator(values={}))
    assert kept.cluster_values == {"dev-2": {"level": "trace"}}
    assert (await quick.update(EDITOR, "widget", UpdateOperator(cluster_values={}))).cluster_values == {}


async def test_values_of_a_cluster_that_is_not_registered_are_refused_by_its_name(quick: Operators) -> None:
    with pytest.raises(InvalidInput, match="there is no cluster 'prod/eu'") as refused:
        await quick.register(EDITOR, registration(cluster_values={"prod/eu": {}}))
    assert [each.path for each in refused.value.fields] == ["/clusterValues/prod~1eu"]
    await quick.register(EDITOR, registration())
    with pytest.raises(InvalidInput, match="register it first, or leave its values out"):
        await quick.update(EDITOR, "widget", UpdateOperator(cluster_values={"dev-9": {"level": "x"}}))
    with pytest.raises(InvalidInput, match="clusterValues is 600 KB"):
        await quick.update(EDITOR, "widget", UpdateOperator(cluster_values={"dev-9": {"x": "y" * 614400}}))


async def test_an_update_keeps_what_it_leaves_out_and_ignores_masks(
    quick: Operators, database: Database, vault: LocalVault
) -> None:
    await quick.register(
        EDITOR,
        registration(secret_values={"token": PASSWORD}, credentials=RepositoryLogin("reader", PASSWORD)),
    )
    shown = await quick.get(VIEWER, "widget")
    values = {**shown.values, "replicas": 3}
    after = await quick.update(
        EDITOR,
        "widget",
        UpdateOperator(values=values, environment_values={ClusterEnvironment.DEV: {"debug": True}}),
        expected=1,
    )
    assert after.values == {"token": MASK, "replicas": 3}
    assert (after.environment_values, after.version, after.has_credentials) == (
        {"Dev": {"debug": True}},
        2,
        True,
    )
    async with database.transaction() as connection:
        operator = await PostgresOperators().get(connection, "widget")
        assert operator is not None
        assert operator.values == {"replicas": 3}
        secrets = OperatorSecrets(PostgresOperators(), vault)
        stored = await secrets.stored_values(connection, operator.id)
    assert await secrets.open_values(operator.id, stored) == {"token": PASSWORD}
    with pytest.raises(VersionMismatch, match="has version 2, not 1"):
        await quick.update(EDITOR, "widget", UpdateOperator(values={}), expected=1)
    erased = await quick.update(EDITOR, "widget", UpdateOperator(secret_values=None, credentials=None))
    assert (erased.values, erased.has_credentials) == ({"replicas": 3}, False)
    async with database.transaction() as connection:
        assert (await connection.execute(text("SELECT count(*) FROM fleet.operator_secret"))).scalar() == 0


async def test_a_deleted_operator_leaves_no_version_secret_or_archive(
    quick: Operators, database: Database
) -> None:
    await quick.register(EDITOR, registration(secret_values={"token": PASSWORD}))
    await quick.register(EDITOR, registration("other", version="2.0.0"))
    await quick.delete(EDITOR, "widget")
    with pytest.raises(UnknownObject, match="no operator 'widget'"):
        await quick.get(VIEWER, "widget")
    async with database.transaction() as connection:
        counts = [
            (await connection.execute(text(f"SELECT count(*) FROM fleet.{table}"))).scalar()
            for table in ("operator_version", "operator_secret", "chart_archive")
        ]
    assert counts == [1, 0, 1]


async def test_names_namespaces_versions_and_sizes_are_checked(quick: Operators) -> None:
    for fields, field in (
        ({"name": "Widget"}, "/name"),
        ({"name": "a" * 54}, "/name"),
        ({"name": "../a"}, "/name"),
        ({"namespace": "kube system"}, "/namespace"),
        ({"version": "1.0"}, "/version"),
        ({"values": {"a": "b" * 600_000}}, "/values"),
        ({"archive": b"x"}, "/archive"),
        ({"archive": b"x" * (17 * 1024 * 1024), "source": UploadedChart("widget")}, "/archive"),
    ):
        with pytest.raises(InvalidInput) as error:
            await quick.register(EDITOR, registration(**fields))  # type: ignore[arg-type]
        assert [each.path for each in error.value.fields] == [field]
    await quick.register(EDITOR, registration())
    with pytest.raises(StateConflict, match="exists already"):
        await quick.register(EDITOR, registration())


async def test_only_operators_and_admins_write(quick: Operators, audit: AuditRecorder) -> None:
    owner = Principal("olga", frozenset({Role.ENVIRONMENT_OWNER}), frozenset(ClusterEnvironment))
    for principal in (VIEWER, owner, Principal("nobody", frozenset())):
        for attempt in (
            quick.register(principal, registration()),
            quick.update(principal, "widget", UpdateOperator()),
            quick.add_version(principal, "widget", AddVersion()),
            quick.delete(principal, "widget"),
        ):
            with pytest.raises(NotAllowed):
                await attempt
    with pytest.raises(NotAllowed):
        await quick.page(Principal("nobody", frozenset()))
    assert audit.entries == []
