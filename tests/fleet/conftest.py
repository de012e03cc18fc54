"""One embedded PostgreSQL server for each worker of xdist, a database for each test, and a cluster that serves HTTPS."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import pytest_asyncio
from sqlalchemy.engine import URL

from kapsa.devcluster import DevCluster
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.embedded import EmbeddedServer
from kapsa.fleet.infrastructure.postgres.migration import migrate
from kapsa.runtime import Client
from kapsa.runtime.testing import background_loop
from tests.eventually import eventually

WITHOUT_DURABILITY = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "max_wal_size": "4GB",
}
"""Settings of a server whose data nobody needs after the test."""


class PostgresServer:
    """The server of a worker, and the databases that its tests have made."""

    def __init__(self, embedded: EmbeddedServer) -> None:
        self._embedded = embedded
        self._numbers = itertools.count(1)
        where = embedded.url().query
        self._administrator = psycopg.connect(
            host=where["host"], port=where["port"], user="kapsa", dbname="postgres", autocommit=True
        )

    def create_database(self) -> URL:
        """Return a new database with the newest schema."""
        name = f"test_{next(self._numbers)}"
        self._administrator.execute(f"CREATE DATABASE {name} TEMPLATE fleet STRATEGY file_copy")
        return self._embedded.url(name)

    def create_empty_database(self) -> URL:
        """Return a new database without the schema."""
        name = f"test_{next(self._numbers)}"
        self._administrator.execute(f"CREATE DATABASE {name}")
        return self._embedded.url(name)

    def drop_database(self, url: URL) -> None:
        self._administrator.execute(f"DROP DATABASE {url.database} WITH (FORCE)")

    def cut_off(self, url: URL) -> None:
        """End all connections to a database, and refuse new ones."""
        self._administrator.execute(f"ALTER DATABASE {url.database} ALLOW_CONNECTIONS false")
        self._administrator.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [url.database]
        )

    def let_in(self, url: URL) -> None:
        """Accept connections to a database again."""
        self._administrator.execute(f"ALTER DATABASE {url.database} ALLOW_CONNECTIONS true")

    def close(self) -> None:
        self._administrator.close()


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that `nobody` can enter, which runs PostgreSQL for root. The directories of pytest are closed."""
    directory = Path(tempfile.mkdtemp(prefix="kapsa-test-"))
    directory.chmod(0o711)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """The PostgreSQL server of this worker, with the migrated database `fleet` as the template."""
    directory = Path(tempfile.mkdtemp(prefix="kapsa-test-", dir=_memory()))
    directory.chmod(0o711)
    embedded = EmbeddedServer(directory / "data", settings=WITHOUT_DURABILITY)
    with background_loop() as wait:
        wait(embedded.start())
        try:
            wait(_migrate_template(embedded))
            server = PostgresServer(embedded)
            yield server
            server.close()
        finally:
            wait(embedded.stop())
            shutil.rmtree(directory)


def _memory() -> str | None:
    """Return a file system in memory with enough space, where a database costs a fifth; None for the usual one."""
    try:
        free = shutil.disk_usage("/dev/shm").free
    except OSError:
        return None
    return "/dev/shm" if free > 2_000_000_000 and os.access("/dev/shm", os.W_OK | os.X_OK) else None


async def _migrate_template(embedded: EmbeddedServer) -> None:
    template = Database(embedded.url())
    try:
        await migrate(template)
    finally:
        await template.close()


@pytest.fixture
def database_url(postgres: PostgresServer) -> Iterator[URL]:
    """The address of a new database with the newest schema."""
    url = postgres.create_database()
    yield url
    postgres.drop_database(url)


@pytest_asyncio.fixture
async def database(database_url: URL) -> AsyncIterator[Database]:
    """A new database with the newest schema."""
    database = Database(database_url)
    yield database
    await database.close()


@pytest_asyncio.fixture
async def replica(database_url: URL) -> AsyncIterator[Callable[[], Database]]:
    """Further connections to the test's database, as other replicas have: each with a pool and a clock of its own."""
    opened: list[Database] = []

    def connect() -> Database:
        opened.append(Database(database_url))
        return opened[-1]

    yield connect
    for each in opened:
        await each.close()


@pytest_asyncio.fixture
async def secure_cluster(engine: str, request: pytest.FixtureRequest) -> AsyncIterator[DevCluster]:
    """A cluster of the engine under test that serves HTTPS."""
    if engine == "real":
        shared: DevCluster = request.getfixturevalue("real_cluster")
        async with Client.connect(kubeconfig=shared.kubeconfig) as client:
            await eventually(
                lambda: _terminating(client), lambda names: not names, "no namespace of the last test"
            )
        yield shared
        return
    async with DevCluster(tls=True) as embedded:
        yield embedded


async def _terminating(client: Client) -> list[str]:
    namespaces = (await client.list("v1/Namespace")).items
    return [each["metadata"]["name"] for each in namespaces if each["metadata"].get("deletionTimestamp")]
