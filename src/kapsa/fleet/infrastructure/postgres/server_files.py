"""The files of the embedded server: its data, its access rules, its socket, and the lock of its directory."""

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from kapsa.adapters.process.file_lock import lock
from kapsa.fleet.infrastructure.postgres.database import DatabaseError
from kapsa.fleet.infrastructure.postgres.programs import ENVIRONMENT, PostgresPrograms
from kapsa.fleet.infrastructure.postgres.unprivileged import ServerUser, own_name

__all__ = ["ROLE", "ServerFiles"]

ROLE = "kapsa"
"""The role of the manager, which owns the server."""
_LONGEST_SOCKET = 103  # bytes on macOS; Linux has 107
_SOCKET_NAME = "/.s.PGSQL.5432"


class ServerFiles:
    """A directory with a server in it. Nothing outside it is changed."""

    def __init__(self, directory: Path, user: ServerUser) -> None:
        self.directory = directory.absolute()
        self.data = self.directory / "postgres"
        self.log = self.directory / "postgres.log"
        self.sockets = self.directory / "socket"
        self._user = user
        self._lock: int | None = None
        self._short_sockets: Path | None = None

    def prepare(self) -> None:
        """Create the directory if it is missing, and lock it. Raises DatabaseError, with the process that holds it."""
        try:
            self._create()
            self._user.check_reach(self.directory)
            self._hold()
        except OSError as error:
            raise DatabaseError(
                f"{self.directory} cannot be used for data: {error.strerror or error}. "
                "Choose another KAPSA_FLEET_DATA_DIRECTORY, or set KAPSA_DATABASE_URL"
            ) from None

    def release(self) -> None:
        """Remove the socket's directory, and release the lock."""
        if self._short_sockets is not None:
            shutil.rmtree(self._short_sockets, ignore_errors=True)
            self._short_sockets = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def major(self) -> int | None:
        """Return the major version of PostgreSQL that wrote the data, or None if there is none."""
        try:
            return int((self.data / "PG_VERSION").read_text())
        except FileNotFoundError:
            return None
        except ValueError:
            raise DatabaseError(
                f"{self.data}/PG_VERSION is damaged: restore {self.data} from a backup"
            ) from None

    def server_pid(self) -> int | None:
        """Return the process id that the server has written, whether or not it still runs."""
        try:
            return int(self.status().split("\n", 1)[0])
        except ValueError:
            return None

    def listening(self) -> tuple[Path, str] | None:
        """Return the directory and the port of the socket of the server that wrote its process id here."""
        lines = self.status().splitlines()
        return (Path(lines[4]), lines[3]) if len(lines) > 7 and lines[7].strip() == "ready" else None

    def is_held(self) -> bool:
        """Return whether another process holds the directory."""
        try:
            descriptor = os.open(self.directory / "holder", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            return not lock(descriptor)
        finally:
            os.close(descriptor)

    def status(self) -> str:
        """Return the status that the last server has written: its process, its start, whether it is ready."""
        try:
            return (self.data / "postmaster.pid").read_text()
        except OSError:
            return ""

    def is_ready(self, stale: str) -> bool:
        """Return whether the server accepts connections, by its own word; `stale` is the word of another one."""
        status = self.status()
        return status.rstrip().endswith("ready") and status != stale

    def last_words(self) -> str:
        """Return the last error in the server's log."""
        try:
            lines = self.log.read_text(errors="replace").splitlines()[-50:]
        except OSError:
            return "no log"
        fatal = [line for line in lines if "FATAL" in line or "PANIC" in line]
        return (fatal or lines or ["empty log"])[-1].strip()

    def initialize(self, programs: PostgresPrograms, *, durable: bool) -> None:
        """Create the data of a new server. A crash leaves none: it is made aside and renamed."""
        for unfinished in self.directory.glob("postgres.new-*"):
            shutil.rmtree(unfinished)
        fresh = self.directory / f"postgres.new-{secrets.token_hex(4)}"
        fresh.mkdir(mode=0o700)
        self._user.own(fresh)
        options = f"--username={ROLE} --auth=peer --encoding=UTF8 --locale=C --no-instructions".split()
        done = subprocess.run(  # noqa: S603 - a program of PostgreSQL
            [programs.initdb, f"--pgdata={fresh}", *options, "--data-checksums" if durable else "--no-sync"],
            cwd=fresh, env=self.environment(), capture_output=True, text=True, check=False,
            **self._user.process_options(),
        )  # fmt: skip
        if done.returncode:
            output = (
                done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"
            ).splitlines()
            raise DatabaseError(f"{programs.initdb} failed in {fresh}: {output[-1]}")
        fresh.rename(self.data)

    def write_rules(self) -> None:
        """Admit the role of the manager over the socket, for this process's OS user alone."""
        name = own_name().replace('"', '""')
        self._write("pg_hba.conf", "local all all peer map=kapsa\n")
        self._write("pg_ident.conf", f'kapsa "{name}" {ROLE}\n')

    def make_socket_directory(self) -> None:
        """Create the directory of the socket: in the directory, or in a temporary one if the path is too long."""
        path = self.directory / "socket"
        if len(os.fsencode(str(path) + _SOCKET_NAME)) > _LONGEST_SOCKET:
            path = self._short_sockets = Path(tempfile.mkdtemp(prefix="kapsa-"))
        path.mkdir(mode=0o700, exist_ok=True)
        self._user.own(path)
        self.sockets = path

    def environment(self) -> Mapping[str, str]:
        """Return the environment of PostgreSQL's programs in this directory."""
        return {**ENVIRONMENT, "TZ": "UTC", "HOME": str(self.directory)}

    def _create(self) -> None:
        if not self.directory.exists():
            self.directory.mkdir(parents=True)
            # The server's user must pass through; every file has its own mode.
            self.directory.chmod(0o711 if self._user.is_other else 0o700)

    def _hold(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self.directory / "holder", flags, 0o600)
        if not lock(descriptor):
            holder = os.read(descriptor, 200).decode(errors="replace").strip()
            os.close(descriptor)
            raise DatabaseError(f"{self.directory} is in use by {holder or 'another process'}: stop it first")
        os.ftruncate(descriptor, 0)
        started = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()} since {started}\n".encode())
        self._lock = descriptor

    def _write(self, name: str, content: str) -> None:
        """Replace a file of the server.

        The directory belongs to the server's user, which may have put links there: as root, none is followed.
        """
        fresh = self.data / f"{name}.{secrets.token_hex(8)}"
        descriptor = os.open(
            fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        with os.fdopen(descriptor, "w") as file:
            self._user.own(descriptor)
            file.write(content)
        fresh.rename(self.data / name)
