"""Operators, their versions, archives and secrets in PostgreSQL."""

import uuid
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from sqlalchemy import Row, delete, select, update
from sqlalchemy.dialects.postgresql import distinct_on, insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from kapsa.fleet.domain.registry.operators import ChartFacts, ChartSource, ManagedOperator, OperatorVersion
from kapsa.fleet.domain.versions import version_order
from kapsa.fleet.infrastructure.postgres.tables.registry import (
    chart_archive,
    cluster,
    operator,
    operator_secret,
    operator_version,
    operator_version_crd,
)
from kapsa.fleet.orchestrator.ports.charts import ChartCrd
from kapsa.fleet.orchestrator.ports.operators import StoredSecret

__all__ = ["PostgresOperators"]


class PostgresOperators:
    """Operators in PostgreSQL. Each method works in the caller's transaction."""

    async def insert(self, connection: AsyncConnection, registered: ManagedOperator) -> bool:
        """Insert an operator. Return False if its name is taken."""
        query = (
            insert(operator).values(_columns(registered)).on_conflict_do_nothing().returning(operator.c.id)
        )
        return (await connection.execute(query)).first() is not None

    async def update(self, connection: AsyncConnection, changed: ManagedOperator, *, expected: int) -> bool:
        """Write values and pause of an operator. Return False unless its stored version is `expected`."""
        query = (
            update(operator)
            .where(operator.c.id == changed.id, operator.c.version == expected)
            .values(_columns(changed))
            .returning(operator.c.id)
        )
        return (await connection.execute(query)).first() is not None

    async def delete(self, connection: AsyncConnection, operator_id: uuid.UUID) -> bool:
        """Delete an operator with its versions and secrets. Return False if something still refers to it."""
        digests = select(operator_version.c.chart_digest).where(operator_version.c.operator_id == operator_id)
        archives = list((await connection.execute(digests)).scalars())
        try:
            async with connection.begin_nested():
                await connection.execute(delete(operator).where(operator.c.id == operator_id))
        except IntegrityError:
            return False
        in_use = select(operator_version.c.chart_digest)
        unused = delete(chart_archive).where(
            chart_archive.c.digest.in_(archives), chart_archive.c.digest.not_in(in_use)
        )
        await connection.execute(unused)
        return True

    async def get(self, connection: AsyncConnection, name: str) -> ManagedOperator | None:
        """Return an operator by its name."""
        row = (await connection.execute(select(operator).where(operator.c.name == name))).first()
        return _operator(row) if row is not None else None

    async def by_id(self, connection: AsyncConnection, operator_id: uuid.UUID) -> ManagedOperator | None:
        """Return an operator by its id."""
        row = (await connection.execute(select(operator).where(operator.c.id == operator_id))).first()
        return _operator(row) if row is not None else None

    async def page(
        self, connection: AsyncConnection, *, after: str, limit: int, prefix: str
    ) -> list[ManagedOperator]:
        """Return operators in the order of their names, after a name, whose names start with a prefix."""
        query = select(operator).where(operator.c.name > after).order_by(operator.c.name).limit(limit)
        if prefix:
            query = query.where(operator.c.name.startswith(prefix, autoescape=True))
        return [_operator(row) for row in await connection.execute(query)]

    async def missing_clusters(self, connection: AsyncConnection, names: Iterable[str]) -> list[str]:
        """Return the names that no cluster has. The others stay registered until the transaction ends."""
        chosen = sorted(names)
        query = (
            select(cluster.c.name)
            .where(cluster.c.name.in_(chosen))
            .order_by(cluster.c.name)
            .with_for_update(read=True, key_share=True)
        )
        registered = set((await connection.execute(query)).scalars()) if chosen else set()
        return [name for name in chosen if name not in registered]

    async def insert_version(
        self, connection: AsyncConnection, version: OperatorVersion, content: bytes, crds: Sequence[ChartCrd]
    ) -> bool:
        """Insert a version with its archive and CRDs. Return False if the operator has the version already."""
        archive = {"digest": version.chart_digest, "content": content}
        await connection.execute(insert(chart_archive).values(archive).on_conflict_do_nothing())
        columns = msgspec.structs.asdict(version) | {
            "facts": msgspec.to_builtins(version.facts),
            "version_order": version_order(version.version),
        }
        query = (
            insert(operator_version)
            .values(columns)
            .on_conflict_do_nothing()
            .returning(operator_version.c.version)
        )
        if (await connection.execute(query)).first() is None:
            return False
        rows = [
            {
                "operator_id": version.operator_id,
                "version": version.version,
                "name": crd.name,
                "location": crd.location,
                "definition": crd.definition,
            }
            for crd in crds
        ]
        if rows:
            await connection.execute(insert(operator_version_crd), rows)
        return True

    async def version(
        self, connection: AsyncConnection, operator_id: uuid.UUID, version: str
    ) -> OperatorVersion | None:
        """Return a version of an operator."""
        query = select(operator_version).where(
            operator_version.c.operator_id == operator_id, operator_version.c.version == version
        )
        row = (await connection.execute(query)).first()
        return _version(row) if row is not None else None

    async def versions(
        self, connection: AsyncConnection, operator_id: uuid.UUID, *, before: str, limit: int
    ) -> list[OperatorVersion]:
        """Return versions, newest first, before the one with this order key."""
        query = (
            select(operator_version)
            .where(operator_version.c.operator_id == operator_id)
            .order_by(operator_version.c.version_order.desc())
            .limit(limit)
        )
        if before:
            query = query.where(operator_version.c.version_order < before)
        return [_version(row) for row in await connection.execute(query)]

    async def crds(self, connection: AsyncConnection, operator_id: uuid.UUID, version: str) -> list[ChartCrd]:
        """Return the CRDs of a version, in the order of their names."""
        table = operator_version_crd
        query = (
            select(table.c.name, table.c.location, table.c.definition)
            .where(table.c.operator_id == operator_id, table.c.version == version)
            .order_by(table.c.name)
        )
        return [ChartCrd(row.name, row.location, row.definition) for row in await connection.execute(query)]

    async def crds_of_chart(self, connection: AsyncConnection, digest: str) -> list[ChartCrd]:
        """Return the CRDs of all versions with this chart, in the order of their names, each once."""
        table = operator_version_crd
        same = (table.c.operator_id == operator_version.c.operator_id) & (
            table.c.version == operator_version.c.version
        )
        query = (
            select(table.c.name, table.c.location, table.c.definition)
            .ext(distinct_on(table.c.name))
            .join(operator_version, same)
            .where(operator_version.c.chart_digest == digest)
            .order_by(table.c.name, operator_version.c.created_at)
        )
        return [ChartCrd(row.name, row.location, row.definition) for row in await connection.execute(query)]

    async def archive(self, connection: AsyncConnection, digest: str) -> bytes | None:
        """Return an archive by its digest."""
        query = select(chart_archive.c.content).where(chart_archive.c.digest == digest)
        content = (await connection.execute(query)).scalar()
        return bytes(content) if content is not None else None

    async def put_secret(
        self, connection: AsyncConnection, operator_id: uuid.UUID, secret: StoredSecret | None, purpose: str
    ) -> None:
        """Store the secret for a purpose in place of the one before, or erase it."""
        same = (operator_secret.c.operator_id == operator_id, operator_secret.c.purpose == purpose)
        await connection.execute(delete(operator_secret).where(*same))
        if secret is not None:
            columns = msgspec.structs.asdict(secret) | {"operator_id": operator_id}
            await connection.execute(insert(operator_secret).values(columns))

    async def secret(
        self, connection: AsyncConnection, operator_id: uuid.UUID, purpose: str
    ) -> StoredSecret | None:
        """Return the secret for a purpose."""
        return (await self.secrets(connection, (operator_id,), purpose)).get(operator_id)

    async def secrets(
        self, connection: AsyncConnection, operator_ids: Sequence[uuid.UUID], purpose: str
    ) -> dict[uuid.UUID, StoredSecret]:
        """Return the secrets of operators for a purpose, by the operators' ids."""
        query = select(operator_secret).where(
            operator_secret.c.operator_id.in_(operator_ids), operator_secret.c.purpose == purpose
        )
        rows = (await connection.execute(query)).all()
        return {row.operator_id: StoredSecret(row.purpose, row.version, row.sealed) for row in rows}


def _columns(registered: ManagedOperator) -> dict[str, Any]:
    return msgspec.structs.asdict(registered) | {
        "source": msgspec.to_builtins(registered.source),
        "secret_paths": msgspec.to_builtins(registered.secret_paths),
    }


def _operator(row: Row[Any]) -> ManagedOperator:
    columns = row._asdict() | {
        "source": msgspec.convert(row.source, ChartSource),
        "secret_paths": tuple(tuple(path) for path in row.secret_paths),
    }
    return ManagedOperator(**columns)


def _version(row: Row[Any]) -> OperatorVersion:
    columns = row._asdict() | {"facts": msgspec.convert(row.facts, ChartFacts)}
    del columns["version_order"]
    return OperatorVersion(**columns)
