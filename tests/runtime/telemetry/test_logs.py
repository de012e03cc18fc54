"""Logs: one line per event in one format, whichever library writes it."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from kapsa.runtime.telemetry.logs import adopt_standard_logging, configure
from tests.runtime.webhooks.webhook_server import AppValidator, running, webhooks


@pytest.fixture
def json_logs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The logging of an operator. The test runner's own handlers are put back."""
    before = structlog.get_config()
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    configure(format="json")
    adopt_standard_logging()
    yield
    structlog.configure(**before)


def lines(capture: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capture.readouterr().err.splitlines()]


@pytest.mark.usefixtures("json_logs")
def test_an_exception_that_a_library_logs_is_one_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    logging.getLogger("library").error("it failed for %s", "web", exc_info=RuntimeError("out of\nluck"))
    logging.getLogger("library").info("nobody needs this")
    (line,) = lines(capsys)
    assert (line["level"], line["event"], line["logger"]) == ("error", "it failed for web", "library")
    assert "RuntimeError: out of\nluck" in str(line["exception"])


@pytest.mark.usefixtures("json_logs")
def test_a_line_with_wrong_arguments_is_written_and_raises_nothing_into_the_library(
    capsys: pytest.CaptureFixture[str],
) -> None:
    record = logging.LogRecord("library", logging.WARNING, "library.py", 1, "%s of %s", (1,), None)
    logging.getLogger().handlers[0].handle(record)  # not through the logger: the test runner's handler raises
    (line,) = lines(capsys)
    assert line["event"] == "%s of %s"
    assert "not enough arguments" in str(line["malformed"])


@pytest.mark.usefixtures("json_logs")
@pytest.mark.parametrize(("number", "level"), [(35, "warning"), (45, "error"), (60, "critical")])
def test_a_level_of_a_librarys_own_becomes_the_next_lower_one(
    number: int, level: str, capsys: pytest.CaptureFixture[str]
) -> None:
    logging.getLogger("library").log(number, "logged")
    (line,) = lines(capsys)
    assert (line["level"], line["event"]) == (level, "logged")


@pytest.mark.usefixtures("json_logs")
def test_a_closed_stderr_raises_nothing_into_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(logging, "raiseExceptions", False)
    monkeypatch.setattr("sys.stderr", closed)
    logging.getLogger("library").warning("not logged")


def test_a_process_with_a_logging_configuration_of_its_own_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    own = logging.NullHandler()
    monkeypatch.setattr(logging.getLogger(), "handlers", [own])
    adopt_standard_logging()
    assert logging.getLogger().handlers == [own]


MALFORMED = (
    b"POST /hooks HTTP/1.1\r\nHost: x\r\nContent-Length: many\r\n\r\n",
    b"POST /hooks HTTP/1.1\r\nHost: x\r\nbroken header\r\n\r\n",
    b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n",
)


@pytest.mark.usefixtures("json_logs")
@pytest.mark.parametrize("request_bytes", MALFORMED, ids=["length", "header", "line"])
async def test_a_malformed_request_to_a_webhook_is_one_warning_without_a_traceback(
    request_bytes: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running(webhooks(AppValidator())) as run:
        capsys.readouterr()
        assert b" 400 " in await run.send(request_bytes)
    logged = lines(capsys)
    (warning,) = (line for line in logged if line.get("logger") == "aiohttp.server")
    assert warning["level"] == "warning"
    assert not [line for line in logged if "exception" in line]
    assert len(json.dumps(warning)) < 3000
