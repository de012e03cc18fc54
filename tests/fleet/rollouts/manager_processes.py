"""Managers as processes: `kapsa fleet serve` on one database, killed in the middle of a transition or of a write."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from kapsa.adapters.variables import variable_text
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.settings import DATABASE_VARIABLE, PREFIX, FleetSettings
from tests.eventually import eventually

__all__ = [
    "PATIENCE",
    "ClaimOfMessage",
    "ManagerProcess",
    "ManagerProcesses",
    "StoredTransition",
    "manager_processes",
]

PATIENCE = 600
"""Seconds to wait for what a busy machine does late. A test that passes does not wait for them."""
_LOCK = 4711
_SERVE = "from kapsa.cli import main; main()"
_HOLD = f"""
    CREATE OR REPLACE FUNCTION fleet.hold_transition() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_advisory_xact_lock({_LOCK}); RETURN NEW; END $$
"""


class StoredTransition(msgspec.Struct, frozen=True):
    """A transition of a deployment or of one of its clusters, as the database stores it."""

    table: str
    field: str
    after: str

    def __str__(self) -> str:
        return f"SIGKILL before the commit of {self.field} {self.after}"

    @property
    def trigger(self) -> str:
        """The statement that holds the transaction of this transition."""
        return (
            f"CREATE TRIGGER hold_transition BEFORE UPDATE ON fleet.{self.table} FOR EACH ROW WHEN ("
            f"OLD.document ->> '{self.field}' <> '{self.after}' AND NEW.document ->> '{self.field}' = '{self.after}') "
            "EXECUTE FUNCTION fleet.hold_transition()"
        )


class ClaimOfMessage(msgspec.Struct, frozen=True):
    """The moment at which a replica takes a committed message out of the outbox, to send it."""

    table: str = "outbox"

    @property
    def trigger(self) -> str:
        """The statement that holds the claim."""
        return (
            f"CREATE TRIGGER hold_transition BEFORE UPDATE ON fleet.{self.table} FOR EACH ROW "
            "EXECUTE FUNCTION fleet.hold_transition()"
        )


class ManagerProcess:
    """One replica."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process = process
        self.log = log
        self.owner = f"{socket.gethostname()}-{process.pid}"
        """The name under which it holds leases."""

    async def ready(self) -> None:
        async def printed() -> str:
            assert self.process.returncode is None, self.log.read_text()
            return self.log.read_text()

        await eventually(
            printed, lambda log: "the fleet manager is ready" in log, "a start", seconds=PATIENCE
        )

    async def kill(self) -> None:
        """Kill it, and every helm that it has started with its process group."""
        running = self.helm()
        self.process.kill()
        for pid in running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        await self.process.wait()

    def helm(self) -> list[int]:
        """Return the helm processes that it has started and that run."""
        return _helm_of(self.process.pid)

    async def terminate(self) -> int:
        """Ask it to stop, and return its exit code."""
        self.process.terminate()
        return await asyncio.wait_for(self.process.wait(), PATIENCE)


def _helm_of(pid: int) -> list[int]:
    """Return the helm that a process has started. Each leads a process group of its own."""
    children: list[int] = []
    for each in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            children += [int(child) for child in each.read_text().split()]
    return [child for child in children if _name(child) == "helm"]


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


class ManagerProcesses:
    """The replicas on one database."""

    def __init__(self, settings: FleetSettings, database: Database, directory: Path) -> None:
        self.database = database
        self._settings = settings
        self._directory = directory
        self._running: dict[str, ManagerProcess] = {}
        self._started = 0

    @property
    def running(self) -> list[ManagerProcess]:
        """The replicas that run."""
        return list(self._running.values())

    async def start(self, count: int = 1) -> None:
        """Start replicas, and wait until they are ready."""
        started = [await self._start() for _ in range(count)]
        await asyncio.gather(*(each.ready() for each in started))

    async def _start(self) -> ManagerProcess:
        self._started += 1
        path = self._directory / f"manager-{self._started}.log"
        with path.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", _SERVE, "fleet", "serve"),
                env={**os.environ, **_variables(self._settings)},
                stdout=log,
                stderr=log,
            )
        made = ManagerProcess(process, path)
        self._running[made.owner] = made
        return made

    async def close(self) -> None:
        for each in list(self._running.values()):
            await self.kill(each)

    async def kill(self, manager: ManagerProcess) -> None:
        await manager.kill()
        del self._running[manager.owner]

    async def terminate(self, manager: ManagerProcess) -> int:
        code = await manager.terminate()
        del self._running[manager.owner]
        return code

    async def holder(self, deployment: str, table: str = "") -> ManagerProcess:
        """Return the replica that works on a deployment: on its cluster, or else on the whole of it.

        `table` chooses one of the two.
        """

        async def owners() -> list[str]:
            listed = await self._owners(deployment, table)
            return [owner for owner in listed if owner in self._running]

        (first, *_) = await eventually(owners, bool, "a replica with a lease", seconds=PATIENCE)
        return self._running[first]

    async def _owners(self, deployment: str, table: str) -> list[str]:
        query = text("""
            SELECT lease_owner FROM (
                SELECT 'deployment_cluster' AS held, lease_owner FROM fleet.deployment_cluster
                WHERE deployment_id = :id
                UNION ALL SELECT 'deployment', lease_owner FROM fleet.deployment WHERE id = :id
            ) AS leases WHERE lease_owner <> '' AND held LIKE :table ORDER BY held DESC
        """)
        named = {"id": deployment, "table": table or "%"}
        async with self.database.transaction() as connection:
            return list((await connection.execute(query, named)).scalars())

    async def leases_of(self, manager: ManagerProcess) -> int:
        """Return how many leases a replica holds, or has left behind."""
        query = text("""
            SELECT (SELECT count(*) FROM fleet.deployment_cluster WHERE lease_owner = :owner)
                 + (SELECT count(*) FROM fleet.deployment WHERE lease_owner = :owner)
        """)
        async with self.database.transaction() as connection:
            return int((await connection.execute(query, {"owner": manager.owner})).scalar_one())

    async def let_leases_lapse(self, manager: ManagerProcess) -> None:
        """End the leases of a dead replica now, as the others would take them after a minute."""
        assert manager.process.returncode is not None
        async with self.database.transaction() as connection:
            for table in ("deployment", "deployment_cluster"):
                change = f"UPDATE fleet.{table} SET lease_owner = '', lease_until = NULL WHERE lease_owner = :owner"
                await connection.execute(text(change), {"owner": manager.owner})

    @asynccontextmanager
    async def hold(self, transition: StoredTransition | ClaimOfMessage) -> AsyncIterator[None]:
        """Let the transaction of a transition or of a claim wait, uncommitted, until the block ends."""
        async with self.database.engine.connect() as plain:
            connection = await plain.execution_options(isolation_level="AUTOCOMMIT")
            await connection.execute(text(_HOLD))
            await connection.execute(text(f"SELECT pg_advisory_lock({_LOCK})"))
            await connection.execute(text(transition.trigger))
            try:
                yield
            finally:
                await connection.execute(text(f"SELECT pg_advisory_unlock({_LOCK})"))
                await _drop(connection, transition)

    async def held(self) -> bool:
        """Return whether a transaction waits."""
        query = (
            f"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = {_LOCK} AND NOT granted"
        )
        async with self.database.transaction() as connection:
            return bool((await connection.execute(text(query))).scalar_one())


async def _drop(connection: AsyncConnection, transition: StoredTransition | ClaimOfMessage) -> None:
    await connection.execute(text(f"DROP TRIGGER hold_transition ON fleet.{transition.table}"))


def _variables(settings: FleetSettings) -> dict[str, str]:
    changed = {
        f"{PREFIX}{field.name.upper()}": variable_text(getattr(settings, field.name))
        for field in msgspec.structs.fields(settings)
        if field.name != "database_url" and getattr(settings, field.name) != field.default
    }
    return {**changed, DATABASE_VARIABLE: settings.database_url}


@asynccontextmanager
async def manager_processes(
    settings: FleetSettings, directory: Path, count: int = 2
) -> AsyncIterator[ManagerProcesses]:
    """Start replicas, and kill those that are left at the end."""
    database = Database(settings.database_url)
    managers = ManagerProcesses(settings, database, directory)
    try:
        await managers.start(count)
        yield managers
    finally:
        await managers.close()
        await database.close()
