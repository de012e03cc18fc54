"""The observation of a manager: its start, its end, its connections and its memory."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from bench.fleet import managers as managers_module
from bench.fleet.calls import CallFailed
from bench.fleet.child_process import last_line
from bench.fleet.managers import Manager, ManagerFailed, Managers, Peaks, connections_to


def test_only_established_connections_to_the_ports_are_counted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert connections_to(os.getpid(), {port}) == 0
        with socket.create_connection(("127.0.0.1", port)):
            assert connections_to(os.getpid(), {port}) == 1
            assert connections_to(os.getpid(), {port + 1}) == 0


async def test_the_connections_of_another_process_are_not_counted() -> None:
    other = await asyncio.create_subprocess_exec("sleep", "1000")
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port)):
                assert connections_to(other.pid, {port}) == 0
    finally:
        other.kill()
        await other.wait()


def test_the_highest_numbers_are_kept() -> None:
    peaks = Peaks()
    peaks.record(memory=100.0, clusters=5, database=9)
    peaks.record(memory=90.0, clusters=7, database=8)
    assert (peaks.memory_mb, peaks.cluster_connections, peaks.database_connections) == (100.0, 7, 9)


async def test_a_manager_that_does_not_start_is_reported_with_the_last_line_of_its_log(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    log.write_text("starting\nthe database is away\n\n")
    process = await asyncio.create_subprocess_exec("false")
    await process.wait()
    with pytest.raises(ManagerFailed, match="ended with code 1: the database is away"):
        await Manager(process, log).until_ready()


def managers_in(directory: Path, *running: Manager) -> Managers:
    managers = Managers(make_url("postgresql+psycopg://kapsa@/fleet"), directory, directory, check_seconds=30)
    managers.running += running
    return managers


@pytest.fixture
def no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at once whether a manager has ended."""
    monkeypatch.setattr(managers_module, "_EXIT_SECONDS", 0.0)


@pytest.mark.usefixtures("no_delay")
async def test_a_call_that_fails_because_a_manager_ended_is_reported_as_that(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("out of memory\n")
    process = await asyncio.create_subprocess_exec("false")
    await process.wait()
    with pytest.raises(ManagerFailed, match="ended with code 1: out of memory"):
        async with managers_in(tmp_path, Manager(process, log)).blamed():
            raise CallFailed("GET /operators got no answer")


@pytest.mark.usefixtures("no_delay")
async def test_a_call_that_fails_for_another_reason_is_reported_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(CallFailed, match="was refused"):
        async with managers_in(tmp_path).blamed():
            raise CallFailed("GET /operators was refused")


async def test_the_address_of_a_manager_is_read_from_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        'not JSON: the fleet manager is starting\n{"message":"the fleet manager is ready","url":"http://127.0.0.1:9"}\n'
    )
    process = await asyncio.create_subprocess_exec("sleep", "1000")
    manager = Manager(process, log)
    try:
        await manager.until_ready()
        assert manager.url == "http://127.0.0.1:9"
    finally:
        await manager.stop()
    assert last_line(tmp_path / "log").startswith("{")
