"""Conformance: schemathesis calls every operation of the running application, and finds nothing.

In `make test` a seeded sample of the operations is called; with `--full` all of them, with more examples.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
import uvicorn
from schemathesis import engine
from schemathesis.config import SchemathesisConfig
from sqlalchemy.engine import URL

from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.runtime.testing import background_loop
from tests.fleet.api.harness import NoLimits, application, token
from tests.fleet.api.objects import create_objects, routes

SAMPLE = 3
EXAMPLES_IN_FULL = 10
POSITIVE = "positive_data_acceptance"
"""The check that what the document permits is accepted: by a test of its own, because cursors are opaque."""
STRICTER = {
    "registerCluster": "a kubeconfig must lead to a cluster",
    "updateCluster": "a kubeconfig must lead to the same cluster",
    "registerOperator": "an archive is a chart, and belongs to a source that is an upload",
    "addOperatorVersion": "an archive is a chart, and belongs to a source that is an upload",
    "updateOperator": "values by environment have the names of environments",
    "storeCrd": "a definition must be a CustomResourceDefinition with a structural schema",
    "validateCrd": "the versions must be those of the operator",
    "approveCrd": "the versions must be those of the operator",
    "adoptRelease": "the operator must be registered",
    "createDeployment": "the configuration must be that of the strategy, and the targets must exist",
    "previewDeployment": "the configuration must be that of the strategy, and the targets must exist",
}
"""Operations whose bodies have rules that a schema cannot express. They answer 400 with the field."""
OPAQUE = {"cursor": ""}
"""Parameters whose values only an earlier response can give."""


class _Listener(uvicorn.Server):
    """A server that leaves the signals of the process alone."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    ready: asyncio.Event


@pytest.fixture
def server(database_url: URL) -> Iterator[str]:
    """The address of the application, served by uvicorn, with an object of each kind."""
    with background_loop() as wait, socket.create_server(("127.0.0.1", 0)) as listener:
        database, running, task = wait(_start(database_url, listener))
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        running.should_exit = True
        wait(_stop(database, task))


async def _start(url: URL, listener: socket.socket) -> tuple[Database, _Listener, asyncio.Task[None]]:
    database = Database(url)
    await create_objects(database, caller="ada")
    app = application(database, rate_limits=NoLimits())
    running = _Listener(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off"))
    running.ready = asyncio.Event()
    task = asyncio.create_task(running.serve(sockets=[listener]))
    await running.ready.wait()
    return database, running, task


async def _stop(database: Database, task: asyncio.Task[None]) -> None:
    await task
    await database.close()


def _failures(
    url: str, operations: list[str] | None, examples: int, seed: int, *, permitted: bool = False
) -> list[str]:
    """Return what schemathesis finds. With `permitted`, all calls are as the document permits, and must be accepted."""
    checks: dict[str, Any] = {POSITIVE: {"enabled": False}}
    if permitted:
        statuses = ["2xx", "401", "403", "404", "409", "412"]
        checks = {"enabled": False, POSITIVE: {"enabled": True, "expected-statuses": statuses}}
    config = SchemathesisConfig.from_dict(
        {
            "seed": seed,
            "headers": {"Authorization": f"Bearer {token('ada', 'Admin', exp=4102444800)}"},
            "generation": {
                "max-examples": examples,
                "no-shrink": True,
                "deterministic": True,
                "mode": "positive" if permitted else "all",
                "allow-x00": not permitted,  # the description of the document forbids it in every text
            },
            "phases": {"stateful": {"enabled": False}},
            "checks": checks,
            "parameters": OPAQUE if permitted else {},
        }
    )
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json", config=config)
    if operations is not None:
        schema = schema.include(operation_id=operations)
    failures: list[str] = []
    cases = 0
    for event in engine.from_schema(schema).execute():
        if isinstance(event, engine.events.NonFatalError | engine.events.FatalError):
            failures.append(str(getattr(event, "info", event)) + str(getattr(event, "value", "")))
        if isinstance(event, engine.events.ScenarioFinished):
            cases += len(event.recorder.cases)
            failures += _failed_checks(event.recorder)
    assert cases > 20, "schemathesis called almost nothing"
    return failures


def _failed_checks(recorder: Any) -> list[str]:
    lines = []
    for case_id, checks in recorder.checks.items():
        for check in checks:
            if check.failure_info is not None:
                case = recorder.cases[case_id].value
                lines.append(
                    f"{check.name}: {case.method} {case.path} query={case.query} body={case.body!r:.300} "
                    f"headers={case.headers}: {check.failure_info.failure}"
                )
    return lines


@pytest.mark.timeout(900)
def test_schemathesis_finds_nothing(server: str, request: pytest.FixtureRequest) -> None:
    seed = request.config.getoption("--sweep-seed") or 1
    operations = sorted(
        route.operation for route in routes() if route.path.startswith("/api/") or route.path == "/health"
    )
    if request.config.getoption("--full"):
        failures = _failures(server, None, EXAMPLES_IN_FULL, seed)
    else:
        failures = _failures(server, random.Random(seed).sample(operations, SAMPLE), 5, seed)
    assert not failures, f"{len(failures)} failures:\n" + "\n".join(failures[:15])


@pytest.mark.long
@pytest.mark.timeout(900)
def test_what_the_document_permits_is_accepted(server: str, request: pytest.FixtureRequest) -> None:
    seed = request.config.getoption("--sweep-seed") or 1
    described = {
        route.operation for route in routes() if route.path.startswith("/api/") and route.access.authenticated
    }
    assert described > STRICTER.keys()
    operations, examples = sorted(described - STRICTER.keys()), EXAMPLES_IN_FULL
    if not request.config.getoption("--full"):
        operations, examples = random.Random(seed).sample(operations, 2 * SAMPLE), 5
    failures = _failures(server, operations, examples, seed, permitted=True)
    assert not failures, f"{len(failures)} failures:\n" + "\n".join(failures[:15])
