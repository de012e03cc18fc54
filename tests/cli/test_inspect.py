"""`kapsa inspect` as a person runs it: its tables, its documents, and what it says when it cannot."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer

import msgspec
import pytest
from typer.testing import CliRunner

from kapsa.cli.commands import app
from kapsa.runtime.controller.work.run_history import RunError, RunRecord
from kapsa.runtime.operator.inspection import (
    CacheReport,
    ControllerReport,
    InspectionReport,
    KeyReport,
    ShardsReport,
)

NOW = datetime.now(UTC)
RUN = RunRecord(ended=NOW, seconds=0.0123, result="error", reasons=("Retry",), waited=0.001, error="boom")
KEY = KeyReport(
    key="default/web",
    state="delayed",
    waits_for="its retry after an error",
    seconds=4.2,
    reasons=("Retry",),
    failures=3,
    error="RuntimeError: boom\x1b[2J",
    runs=(RUN,),
)
CONTROLLER = ControllerReport(
    name="shop",
    kind="example.com/v1/Shop",
    cluster="",
    state="working",
    workers=5,
    running=0,
    waiting=0,
    delayed=1,
    given_up=0,
    keys=(KEY,),
    errors=(RunError(NOW, "default/web", "RuntimeError: boom"),),
)
CACHE = CacheReport(
    watch="v1/ConfigMap",
    cluster="east",
    state="backing off",
    objects=7,
    age=65.0,
    listed=None,
    relists=2,
    restarts=0,
    trouble="connection refused",
)
REPORT = InspectionReport(
    operator="shops", identity="pod-1", leads=False, controllers=(CONTROLLER,), caches=(CACHE,)
)


@contextmanager
def answering(body: bytes, status: int = 200) -> Iterator[tuple[int, list[str]]]:
    """Serve one body on a free port, and record the paths that are asked for."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            return

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port, paths
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def inspect(*arguments: str, body: bytes | None = None) -> tuple[str, list[str]]:
    """Return what the command prints about a report, and the paths that it asked for."""
    with answering(msgspec.json.encode(REPORT) if body is None else body) as (port, paths):
        result = CliRunner().invoke(app, ["inspect", "--port", str(port), *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output, paths


def test_the_overview_has_controllers_queues_caches_and_errors() -> None:
    output, paths = inspect("--limit", "7")
    assert paths == ["/debug?limit=7"]
    lines = output.splitlines()
    assert "no: another replica does" in output
    for part in ("shop ", "default/web", "its retry after an error", "Caches", "Last errors"):
        assert part in output
    assert any(line.startswith("v1/ConfigMap in east") and "1m5s ago" in line for line in lines)
    assert "never" in output


def test_a_resource_is_shown_with_its_last_runs() -> None:
    output, paths = inspect("default/web")
    assert paths == ["/debug?key=default%2Fweb&limit=20"]
    for part in ("Due in:", "4.2s", "Failures:", "Last runs", "12.3 ms", "boom"):
        assert part in output


def sharded(*parts: ControllerReport) -> bytes:
    """Return the report of a replica that holds shard 1 of 3."""
    shards = ShardsReport(count=3, held=(1,), replicas=("pod-1", "pod-2"))
    return msgspec.json.encode(msgspec.structs.replace(REPORT, leads=None, shards=shards, controllers=parts))


def test_a_replica_shows_the_shards_that_it_holds() -> None:
    idle = msgspec.structs.replace(CONTROLLER, delayed=0, keys=(), errors=())
    parts = [
        msgspec.structs.replace(CONTROLLER, shard=1, holder="pod-1"),
        msgspec.structs.replace(idle, shard=2, holder="pod-2", state="held by pod-2"),
    ]
    output, _ = inspect(body=sharded(*parts))
    assert "holds 1 of 3, 2 replicas" in output
    assert "shop shard 1 " in output
    assert "shard 2" not in output
    output, _ = inspect(body=sharded(parts[1]))
    assert "this replica holds no shard" in output


def test_a_resource_of_another_replica_is_shown_with_that_replica() -> None:
    key = KeyReport(key="default/web", state="elsewhere", waits_for="pod-2, which holds its shard")
    part = msgspec.structs.replace(CONTROLLER, shard=2, holder="pod-2", keys=(key,))
    output, _ = inspect("default/web", body=sharded(part))
    for text in ("shop shard 2", "elsewhere", "pod-2, which holds its shard"):
        assert text in output


def test_an_error_message_cannot_move_the_cursor() -> None:
    output, _ = inspect()
    assert "\x1b" not in output
    assert "\\x1b[2J" in output


def test_json_has_everything() -> None:
    output, _ = inspect("-o", "json")
    assert msgspec.json.decode(output, type=InspectionReport) == REPORT


def fails(*arguments: str) -> str:
    with pytest.raises(Exception, match=r"127\.0\.0\.1|no controller") as raised:
        CliRunner().invoke(app, ["inspect", *arguments], catch_exceptions=False)
    assert getattr(raised.value, "for_the_user", False)
    return str(raised.value)


def test_without_an_operator_it_says_how_to_turn_the_endpoint_on() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # not listening: a connection is refused
        port = str(taken.getsockname()[1])
        message = fails("--port", port)
    assert f"kapsa run --debug-port {port}" in message
    assert "kubectl port-forward" in message


def test_another_server_is_recognized() -> None:
    with answering(b"{}") as (port, _):
        assert "does not answer as an operator's debug endpoint" in fails("--port", str(port))
    with answering(b"", status=404) as (port, _):
        assert "is it the debug port" in fails("--port", str(port))


def test_an_unknown_controller_is_named() -> None:
    body = msgspec.json.encode(msgspec.structs.replace(REPORT, controllers=()))
    with answering(body) as (port, _):
        assert "no controller 'shpo'" in fails("--port", str(port), "--controller", "shpo")
