"""The embedded server: PostgreSQL in a data directory, for a start with nothing configured.

It listens on a unix socket only, and admits this process's OS user only. A shell stands between us and the
server and reads a pipe of ours: when we end, even by SIGKILL, the pipe closes and the shell stops the server. It
repeats the signal, because a server that is just starting ignores it.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

import structlog
from sqlalchemy import text
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from kapsa.fleet.infrastructure.postgres.database import DatabaseError
from kapsa.fleet.infrastructure.postgres.programs import PostgresPrograms, choose_programs
from kapsa.fleet.infrastructure.postgres.server_files import ROLE, ServerFiles
from kapsa.fleet.infrastructure.postgres.unprivileged import server_user

__all__ = ["EmbeddedServer", "running_server"]

log = structlog.get_logger(__name__)

_DATABASE = "fleet"
_SUPERVISOR = """
exec 3<&0
"$@" </dev/null 3<&- &
server=$!
(read -r _ <&3; while kill -INT "$server" 2>/dev/null; do sleep 0.2; done) &
watcher=$!
exec 3<&-
wait "$server"
code=$?
kill "$watcher" 2>/dev/null
exit "$code"
"""
_SETTINGS = {
    "listen_addresses": "",
    "port": "5432",
    "max_connections": "100",
    "shared_buffers": "64MB",
    "log_min_messages": "warning",
    "unix_socket_permissions": "0700",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
_LARGEST_LOG = 10_000_000


class EmbeddedServer:
    """A PostgreSQL server of our own, which starts within a second and ends with this process."""

    def __init__(
        self,
        directory: Path,
        *,
        programs: PostgresPrograms | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._user = server_user()
        self._files = ServerFiles(directory, self._user)
        self._programs = programs
        self._settings = {**_SETTINGS, **(settings or {})}
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, *, timeout: float = 60.0) -> None:
        """Start the server, on new data if there is none.

        Raises DatabaseError if the directory is in use or out of reach, or if PostgreSQL is missing or fails.
        """
        self._files.prepare()
        try:
            programs = self._programs or choose_programs(self._files.major())
            self._user.check_program(programs.postgres)
            await self._end_leftover(timeout)
            if self._files.major() is None:
                durable = self._settings.get("fsync") != "off"
                await asyncio.to_thread(self._files.initialize, programs, durable=durable)
            self._files.write_rules()
            self._files.make_socket_directory()
            await self._launch(programs, timeout)
            await self._create_database()
        except BaseException:
            await self.stop()
            raise

    async def stop(self, *, timeout: float = 30.0) -> None:
        """Stop the server. Transactions under way are rolled back."""
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()
            try:
                await asyncio.wait_for(process.wait(), timeout)
            except TimeoutError:
                self._signal(signal.SIGQUIT)
                await process.wait()
        self._files.release()

    async def wait(self) -> int:
        """Wait until the server ends. Return its exit code."""
        assert self._process is not None
        return await self._process.wait()

    def last_words(self) -> str:
        """Return the last error in the log of the server."""
        return self._files.last_words()

    @property
    def pid(self) -> int | None:
        """The process id of the server, or None before its first start."""
        return self._files.server_pid()

    def url(self, database: str = _DATABASE) -> URL:
        """Return the address of a database on this server."""
        return _url(self._files.sockets, self._settings["port"], database)

    async def _launch(self, programs: PostgresPrograms, timeout: float) -> None:
        settings = [f"--{name}={value}" for name, value in self._settings.items()]
        server = [
            str(programs.postgres),
            "-D",
            str(self._files.data),
            "-k",
            str(self._files.sockets),
            *settings,
        ]
        stale = self._files.status()  # a server that was killed has left its own, which says that it is ready
        with self._open_log() as output:
            self._process = await asyncio.create_subprocess_exec(
                "/bin/sh", "-c", _SUPERVISOR, "kapsa-postgres", *server,
                stdin=asyncio.subprocess.PIPE, stdout=output, stderr=output, cwd="/",
                env=dict(self._files.environment()), start_new_session=True, **self._user.process_options(),
            )  # fmt: skip
        try:
            async with asyncio.timeout(timeout):
                while not self._files.is_ready(stale):
                    if self._process.returncode is not None:
                        raise DatabaseError(f"PostgreSQL did not start: {self._files.last_words()}")
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise DatabaseError(
                f"PostgreSQL was not ready after {timeout:g} seconds: {self._files.last_words()}"
            ) from None

    @contextlib.contextmanager
    def _open_log(self) -> Iterator[int]:
        path = self._files.log
        begin = os.O_TRUNC if path.exists() and path.stat().st_size > _LARGEST_LOG else os.O_APPEND
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | begin
        try:
            descriptor = os.open(path, flags, 0o600)
        except OSError as error:
            raise DatabaseError(f"the log {path} cannot be opened: {error.strerror}") from None
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    async def _create_database(self) -> None:
        engine = create_async_engine(self.url("postgres"), isolation_level="AUTOCOMMIT")
        try:
            async with engine.connect() as connection:
                existing = text("SELECT 1 FROM pg_database WHERE datname = :name")
                if (await connection.execute(existing, {"name": _DATABASE})).first() is None:
                    await connection.execute(text(f'CREATE DATABASE "{_DATABASE}"'))
        except DBAPIError as error:
            reason = str(error.orig).strip().splitlines()[0]
            raise DatabaseError(f"PostgreSQL in {self._files.directory} cannot be used: {reason}") from None
        finally:
            await engine.dispose()

    async def _end_leftover(self, timeout: float) -> None:
        """Stop a server that outlived the process that started it. We hold the lock, so no other process uses it."""
        if not self._signal(signal.SIGINT):
            return
        log.warning("stopping a PostgreSQL server that an earlier process left", pid=self.pid)
        try:
            async with asyncio.timeout(timeout):
                while self._signal(0):  # noqa: ASYNC110 - the process is not a child of ours
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise DatabaseError(
                f"PostgreSQL of an earlier run (process {self.pid}) does not end: stop it and start again"
            ) from None

    def _signal(self, number: int) -> bool:
        """Send a signal to the server that uses our data. Return False if there is none."""
        pid = self._files.server_pid()
        if pid is None or not _runs_in(pid, self._files.data):
            return False
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return False
        return True


def running_server(directory: Path) -> URL | None:
    """Return the database of a server that another process runs in this directory, or None."""
    files = ServerFiles(directory, server_user())
    listening = files.listening()
    if listening is None or not files.is_held():
        return None
    return _url(*listening, _DATABASE)


def _url(sockets: Path, port: str, database: str) -> URL:
    query = {"host": str(sockets), "port": port}
    return URL.create("postgresql+psycopg", username=ROLE, database=database, query=query)


def _runs_in(pid: int, data: Path) -> bool:
    """Return whether a process works in this directory, as a server does in its data: ids are used again."""
    try:
        return Path(f"/proc/{pid}/cwd").readlink() == data.resolve()
    except OSError:
        return False
