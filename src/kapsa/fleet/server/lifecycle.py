"""The lifecycle of the manager: database, migrations, probes, keys, services, background tasks, API; and back."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator

import structlog

from kapsa.fleet.api.application import create_application
from kapsa.fleet.infrastructure.local_keys import LocalKeys
from kapsa.fleet.infrastructure.postgres.database import Database, DatabaseError
from kapsa.fleet.infrastructure.postgres.embedded import EmbeddedServer, running_server
from kapsa.fleet.infrastructure.postgres.migration import migrate
from kapsa.fleet.server.api_parts import build_api_parts
from kapsa.fleet.server.background import BackgroundTask, BackgroundTasks
from kapsa.fleet.server.http_server import HttpServer
from kapsa.fleet.server.services import ManagerServices, build_services
from kapsa.fleet.server.starting_application import StartingApplication
from kapsa.fleet.settings import FleetSettings

__all__ = ["FleetServer", "migrated_database", "open_database", "serve"]

log = structlog.get_logger(__name__)


@contextlib.asynccontextmanager
async def open_database(
    settings: FleetSettings, *, join: bool = False
) -> AsyncIterator[tuple[Database, EmbeddedServer | None]]:
    """Open the configured database, or start the embedded server.

    With `join`, use the embedded server of a manager that runs on the same data directory.
    """
    async with contextlib.AsyncExitStack() as stack:
        embedded = None
        url = settings.database_url or (running_server(settings.directory) if join else None)
        if not url:
            embedded = EmbeddedServer(settings.directory)
            await embedded.start()
            stack.push_async_callback(embedded.stop)
            url = embedded.url()
        database = Database(url, connections=settings.database_connections)
        stack.push_async_callback(database.close)
        await database.check()
        yield database, embedded


@contextlib.asynccontextmanager
async def migrated_database(settings: FleetSettings) -> AsyncIterator[tuple[Database, EmbeddedServer | None]]:
    """Open the database and bring it to the schema of this program."""
    async with open_database(settings) as (database, embedded):
        if applied := await migrate(database):
            log.info("migrated the database", revisions=applied)
        yield database, embedded


async def serve(settings: FleetSettings) -> int:
    """Run a manager until SIGTERM, SIGINT or a failure that ends it. Return the exit code.

    A signal also ends a start, which may wait for Vault for hours.
    """
    stop = asyncio.Event()
    # Before the start: process 1 of a container ignores a signal without a handler.
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    server = FleetServer(settings)
    if not await _start(server, stop):
        log.info("the fleet manager stops on a signal, before it was ready")
        return 0
    try:
        return await server.run_until_stopped(stop)
    finally:
        await server.__aexit__()


async def _start(server: "FleetServer", stop: asyncio.Event) -> bool:
    """Start a server. Return False if `stop` was set before it was ready: what had been started has then stopped."""
    start = asyncio.create_task(server.__aenter__())
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((start, stopped), return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
        start.cancel()
        await asyncio.wait((start,))
    if start.cancelled():
        return False
    start.result()
    return True


class FleetServer:
    """A running manager. `async with FleetServer(settings) as server` starts and stops it."""

    def __init__(self, settings: FleetSettings) -> None:
        self._settings = settings
        self._stack = contextlib.AsyncExitStack()
        self.services: ManagerServices
        self.http: HttpServer
        self.tasks: BackgroundTasks

    async def __aenter__(self) -> "FleetServer":
        async with contextlib.AsyncExitStack() as stack:
            database, embedded = await stack.enter_async_context(migrated_database(self._settings))
            if not self._settings.jwt_issuer:
                LocalKeys(self._settings.directory).ensure_signing_key()
            application = StartingApplication()
            self.http = HttpServer(self._settings, application)
            await self.http.start()
            stack.push_async_callback(self.http.stop)
            self.services = await build_services(self._settings, database)
            stack.push_async_callback(self.services.close)
            watches = (*_watch(embedded), *_renewal(self.http))
            self.tasks = BackgroundTasks(
                (*self.services.background(), *watches),
                count_failure=self.services.telemetry.count_task_failure,
            )
            self.tasks.start()
            stack.push_async_callback(self.tasks.stop)
            application.hand_over(create_application(build_api_parts(self.services)))
            stack.push_async_callback(self.http.stop)  # before what it needs, unless the start fails
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def run_until_stopped(self, stop: asyncio.Event) -> int:
        """Wait for `stop`, or for a failure that ends the manager. Return the exit code."""
        log.info("the fleet manager is ready", url=self.http.url)
        self.tasks.failed.add_done_callback(lambda _: stop.set())
        await stop.wait()
        if self.tasks.failed.done():
            log.error("the fleet manager stops", reason=self.tasks.failed.result())
            return 1
        log.info("the fleet manager stops on a signal")
        return 0


def _watch(embedded: EmbeddedServer | None) -> tuple[BackgroundTask, ...]:
    """Return the task that ends the manager when its embedded database ends."""
    if embedded is None:
        return ()

    async def wait() -> None:
        code = await embedded.wait()
        raise DatabaseError(f"the embedded PostgreSQL ended with code {code}: {embedded.last_words()}")

    return (BackgroundTask("embedded-postgres", wait, essential=True, cancel=True),)


def _renewal(http: HttpServer) -> tuple[BackgroundTask, ...]:
    """Return the task that loads the certificate of the API again when its files change."""
    if http.certificate is None:
        return ()
    return (BackgroundTask("certificate", http.certificate.reload, every=10.0),)
