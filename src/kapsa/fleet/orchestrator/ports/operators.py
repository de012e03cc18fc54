"""The repository of operators, their versions, archives and secrets."""

import uuid
from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from kapsa.fleet.domain.registry.operators import ManagedOperator, OperatorVersion
from kapsa.fleet.orchestrator.ports.charts import ChartCrd
from kapsa.fleet.orchestrator.ports.transactions import Connection
from kapsa.fleet.orchestrator.ports.vault import SealedSecret

__all__ = ["OperatorRepository", "StoredSecret"]


class StoredSecret(msgspec.Struct, frozen=True):
    """A sealed secret of an operator or a cluster, and the version that it is bound to."""

    purpose: str
    version: int
    sealed: SealedSecret


class OperatorRepository(Protocol):
    """Operators in the database. Each method works in the caller's transaction."""

    async def insert(self, connection: Connection, operator: ManagedOperator) -> bool:
        """Insert an operator. Return False if its name is taken."""
        ...

    async def update(self, connection: Connection, operator: ManagedOperator, *, expected: int) -> bool:
        """Write values and pause of an operator. Return False unless its stored version is `expected`."""
        ...

    async def delete(self, connection: Connection, operator_id: uuid.UUID) -> bool:
        """Delete an operator with its versions and secrets. Return False if something still refers to it."""
        ...

    async def get(self, connection: Connection, name: str) -> ManagedOperator | None:
        """Return an operator by its name."""
        ...

    async def by_id(self, connection: Connection, operator_id: uuid.UUID) -> ManagedOperator | None:
        """Return an operator by its id."""
        ...

    async def page(
        self, connection: Connection, *, after: str, limit: int, prefix: str
    ) -> list[ManagedOperator]:
        """Return operators in the order of their names, after a name, whose names start with a prefix."""
        ...

    async def missing_clusters(self, connection: Connection, names: Iterable[str]) -> list[str]:
        """Return the names that no cluster has. The others stay registered until the transaction ends."""
        ...

    async def insert_version(
        self, connection: Connection, version: OperatorVersion, content: bytes, crds: Sequence[ChartCrd]
    ) -> bool:
        """Insert a version with its archive and CRDs. Return False if the operator has the version already."""
        ...

    async def version(
        self, connection: Connection, operator_id: uuid.UUID, version: str
    ) -> OperatorVersion | None:
        """Return a version of an operator."""
        ...

    async def versions(
        self, connection: Connection, operator_id: uuid.UUID, *, before: str, limit: int
    ) -> list[OperatorVersion]:
        """Return versions, newest first, before the one with this order key."""
        ...

    async def crds(self, connection: Connection, operator_id: uuid.UUID, version: str) -> list[ChartCrd]:
        """Return the CRDs of a version, in the order of their names."""
        ...

    async def crds_of_chart(self, connection: Connection, digest: str) -> list[ChartCrd]:
        """Return the CRDs of all versions with this chart, in the order of their names, each once."""
        ...

    async def archive(self, connection: Connection, digest: str) -> bytes | None:
        """Return an archive by its digest."""
        ...

    async def put_secret(
        self, connection: Connection, operator_id: uuid.UUID, secret: StoredSecret | None, purpose: str
    ) -> None:
        """Store the secret for a purpose in place of the one before, or erase it."""
        ...

    async def secret(
        self, connection: Connection, operator_id: uuid.UUID, purpose: str
    ) -> StoredSecret | None:
        """Return the secret for a purpose."""
        ...

    async def secrets(
        self, connection: Connection, operator_ids: Sequence[uuid.UUID], purpose: str
    ) -> dict[uuid.UUID, StoredSecret]:
        """Return the secrets of operators for a purpose, by the operators' ids."""
        ...
