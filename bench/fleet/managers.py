"""Managers as processes on one PostgreSQL: `kapsa fleet serve`, with what they use of CPU, memory and connections."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path

import msgspec
import psycopg
from psycopg.conninfo import make_conninfo
from sqlalchemy.engine import URL

from bench.fleet.calls import CallFailed
from bench.fleet.child_process import ChildFailed, last_line
from bench.processes import children_seconds, usage
from kapsa.fleet.infrastructure.postgres.embedded import EmbeddedServer
from kapsa.fleet.infrastructure.vault.encryption_keys import new_key_text
from kapsa.fleet.settings import DATABASE_VARIABLE, PREFIX

_READY = b"the fleet manager is ready"
_READY_SECONDS = 180.0
_STOP_SECONDS = 60.0
_EXIT_SECONDS = 0.5
_ESTABLISHED = "01"
_SAMPLE_SECONDS = 0.5


class ManagerFailed(RuntimeError):  # noqa: N818 - named as what happened
    """A manager did not start, or ended."""


class _LogLine(msgspec.Struct, frozen=True):
    url: str = ""


class Manager:
    """One replica."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process = process
        self.log = log
        self.url = ""

    @property
    def pid(self) -> int:
        return self.process.pid

    async def until_ready(self) -> None:
        """Wait until it serves its API. Raises ManagerFailed with the last line of its log if it does not."""
        deadline = time.monotonic() + _READY_SECONDS
        while not self.url:
            self.check()
            if time.monotonic() > deadline:
                raise ManagerFailed(
                    f"a manager is not ready after {_READY_SECONDS:.0f} s: {last_line(self.log)}"
                )
            await asyncio.sleep(0.05)
            self.url = _url(self.log)

    def check(self) -> None:
        """Raise ManagerFailed if it has ended."""
        if self.process.returncode is not None:
            raise ManagerFailed(f"a manager ended with code {self.process.returncode}: {last_line(self.log)}")

    async def stop(self) -> None:
        if self.process.returncode is None:
            self.process.terminate()
        try:
            await asyncio.wait_for(self.process.wait(), _STOP_SECONDS)
        except TimeoutError:
            self.process.kill()
            await self.process.wait()


def _url(log: Path) -> str:
    """Return the address that a manager has logged, empty if it has not yet."""
    for line in log.read_bytes().splitlines():
        if _READY in line:
            with contextlib.suppress(msgspec.DecodeError):
                return msgspec.json.decode(line, type=_LogLine).url
    return ""


class Managers:
    """The replicas, and the database that they share."""

    def __init__(self, database: URL, directory: Path, log_directory: Path, check_seconds: int) -> None:
        self.data_directory = directory / "data"
        self.running: list[Manager] = []
        self._database = database
        self._logs = log_directory
        self._environment = {
            **os.environ,
            DATABASE_VARIABLE: database.render_as_string(hide_password=False),
            f"{PREFIX}DATA_DIRECTORY": str(self.data_directory),
            f"{PREFIX}ENCRYPTION_KEYS": new_key_text(),
            f"{PREFIX}LISTEN_PORT": "0",
            f"{PREFIX}INTERNAL_ADDRESSES": "true",
            f"{PREFIX}PLAIN_HTTP_REPOSITORIES": "true",
            f"{PREFIX}HEALTH_CHECK_SECONDS": str(check_seconds),
        }

    @classmethod
    @contextlib.asynccontextmanager
    async def on_database(
        cls, directory: Path, log_directory: Path, check_seconds: int
    ) -> AsyncIterator[Managers]:
        """Start a PostgreSQL server with the settings of an embedded one, and stop it after all managers."""
        server = EmbeddedServer(directory / "database")
        await server.start()
        managers = cls(server.url(), directory, log_directory, check_seconds)
        try:
            yield managers
        finally:
            await asyncio.gather(*(each.stop() for each in managers.running))
            await server.stop()

    @property
    def urls(self) -> list[str]:
        return [each.url for each in self.running]

    async def start(self, count: int) -> None:
        """Start replicas until there are this many, one after the other: the first migrates the database."""
        while len(self.running) < count:
            log = self._logs / f"manager-{len(self.running) + 1}.log"
            with log.open("wb") as output:
                process = await asyncio.create_subprocess_exec(
                    *(str(Path(sys.executable).parent / "kapsa"), "fleet", "serve"),
                    env=self._environment,
                    stdout=output,
                    stderr=output,
                )
            manager = Manager(process, log)
            self.running.append(manager)
            await manager.until_ready()

    def check(self) -> None:
        """Raise ManagerFailed if one has ended."""
        for each in self.running:
            each.check()

    @contextlib.asynccontextmanager
    async def blamed(self) -> AsyncIterator[None]:
        """Raise ManagerFailed in place of the failure of a caller if that is because a manager has ended."""
        try:
            yield
        except (CallFailed, ChildFailed):
            await asyncio.sleep(_EXIT_SECONDS)  # a connection breaks a moment before the exit is reported
            self.check()
            raise

    def cpu_seconds(self) -> list[float]:
        """Return the CPU of each replica so far, without that of Helm."""
        return [usage(each.pid).cpu_seconds for each in self.running]

    def helm_seconds(self) -> float:
        """Return the CPU of the Helm processes of all replicas that have ended."""
        return sum(children_seconds(each.pid) for each in self.running)

    @contextlib.asynccontextmanager
    async def sampled(self, cluster_ports: Collection[int]) -> AsyncIterator[Peaks]:
        """Look at memory and connections twice a second until the block ends, and keep the highest numbers."""
        peaks = Peaks()
        with psycopg.connect(_connection_text(self._database), autocommit=True) as connection:
            task = asyncio.create_task(self._sample(peaks, frozenset(cluster_ports), connection))
            try:
                yield peaks
            finally:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def _sample(
        self, peaks: Peaks, ports: frozenset[int], connection: psycopg.Connection[tuple[int]]
    ) -> None:
        while True:
            self.check()
            with contextlib.suppress(
                OSError, KeyError
            ):  # a process that ends just now: the next check reports it
                pids = [each.pid for each in self.running]
                peaks.record(
                    memory=max(usage(pid).rss_mb for pid in pids),
                    clusters=max(connections_to(pid, ports) for pid in pids),
                    database=database_connections(connection),
                )
            await asyncio.sleep(_SAMPLE_SECONDS)


class Peaks:
    """The highest numbers of a time: memory and connections to clusters of one replica, and all of the database."""

    def __init__(self) -> None:
        self.memory_mb = 0.0
        self.cluster_connections = 0
        self.database_connections = 0

    def record(self, *, memory: float, clusters: int, database: int) -> None:
        self.memory_mb = max(self.memory_mb, memory)
        self.cluster_connections = max(self.cluster_connections, clusters)
        self.database_connections = max(self.database_connections, database)


def connections_to(pid: int, ports: Collection[int]) -> int:
    """Return how many connections a process has to any of these ports."""
    sockets = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            target = str(descriptor.readlink())
            if target.startswith("socket:["):
                sockets.add(target[len("socket:[") : -1])
    rows = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    return sum(1 for row in rows if _matches(row.split(), ports, sockets))


def _matches(fields: Sequence[str], ports: Collection[int], sockets: Collection[str]) -> bool:
    remote, state, inode = fields[2], fields[3], fields[9]
    return state == _ESTABLISHED and int(remote.rpartition(":")[2], 16) in ports and inode in sockets


def database_connections(connection: psycopg.Connection[tuple[int]]) -> int:
    """Return how many connections all managers have to the database."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'kapsa-fleet'"
    row = connection.execute(query).fetchone()
    assert row is not None
    return row[0]


def _connection_text(url: URL) -> str:
    host, port = str(url.query["host"]), str(url.query["port"])
    return make_conninfo(host=host, port=port, user=url.username, dbname=url.database)
