"""A manager's real API over a socket, on a database of this worker, and people who are logged in to it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog

from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.server.http_server import HttpServer
from kapsa.fleet.settings import FleetSettings
from kapsa.runtime.testing import background_loop
from tests.cli.fleet.terminal import Terminal
from tests.fleet.api.harness import NoLimits, application, token
from tests.fleet.conftest import PostgresServer, postgres

__all__ = ["postgres"]


@pytest.fixture(scope="module")
def quiet() -> Iterator[None]:
    """No log of the manager, which runs in this process and would print between the lines of the commands."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)


@pytest.fixture(scope="module")
def manager_database(postgres: PostgresServer) -> Iterator[str]:
    """The address of the manager's database."""
    url = postgres.create_database()
    yield url
    postgres.drop_database(url)


@pytest.fixture(scope="module")
def manager(manager_database: str, quiet: None) -> Iterator[str]:
    """The address of the API. Nothing carries its deployments out."""
    with background_loop() as wait:

        async def start() -> tuple[Database, HttpServer]:
            database = Database(manager_database)
            server = HttpServer(FleetSettings(listen_port=0), application(database, rate_limits=NoLimits()))
            await server.start()
            return database, server

        async def stop() -> None:
            await server.stop()
            await database.close()

        database, server = wait(start())
        try:
            yield server.url
        finally:
            wait(stop())


@pytest.fixture
def person(manager: str, tmp_path: Path) -> Callable[..., Terminal]:
    """People with a subject and roles, logged in."""

    def log_in(subject: str, *roles: str) -> Terminal:
        terminal = Terminal(tmp_path / f"{subject}.json")
        terminal.succeed("login", manager, stdin=token(subject, *(roles or ("Admin",))))
        return terminal

    return log_in


@pytest.fixture
def ada(person: Callable[..., Terminal]) -> Terminal:
    """An admin."""
    return person("ada")
