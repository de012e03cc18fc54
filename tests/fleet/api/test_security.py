"""Secrets and hostile input over HTTP: nothing leaks into a response or the log."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
import structlog

from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.runtime import logs
from tests.fleet.api.harness import WIDGET, ApiClient, application, token

PATH = "/api/v1/operators"
PLANTED = ("planted-value-7c1d", "planted-password-9a2e", "planted-token-3b4f")


@pytest.fixture
def log_lines(capsys: pytest.CaptureFixture[str]) -> pytest.CaptureFixture[str]:
    """The log as JSON lines on standard error or output, as the manager writes it."""
    logs.configure(level="DEBUG", format="json")
    yield capsys  # type: ignore[misc]
    structlog.reset_defaults()


def _with_secrets(**changes: object) -> dict[str, object]:
    return {
        **WIDGET,
        "secretValues": {"database": {"password": PLANTED[0]}},
        "credentials": {"username": "robot", "password": PLANTED[1], "token": PLANTED[2]},
        **changes,
    }


async def test_no_planted_secret_is_in_a_response_or_the_log(
    api: ApiClient, log_lines: pytest.CaptureFixture[str]
) -> None:
    bearer = token("ada", "Admin")
    client = ApiClient(api.app, bearer)
    responses = [
        await client.post(PATH, _with_secrets()),
        await client.post(PATH, _with_secrets()),
        await client.post(PATH, _with_secrets(name="UPPER")),
        await client.post(PATH, _with_secrets(namespace=5)),
        await client.post(PATH, _with_secrets(extra=1)),
        await client.patch(f"{PATH}/widget", {"secretValues": {"a": PLANTED[0]}}),
        await client.get(PATH),
        await client.get(f"{PATH}/widget"),
        await client.get("/api/v1/audit"),
        await client.get("/metrics"),
        await client.get(PATH, params={"cursor": PLANTED[0]}),
    ]
    assert responses[0].status_code == 201
    captured = log_lines.readouterr()
    everything = "".join(response.text + str(response.headers) for response in responses)
    for secret in (*PLANTED, bearer, bearer.split(".")[2]):
        assert secret not in everything
        assert secret not in captured.out + captured.err


async def test_an_unexpected_error_reveals_nothing(
    database: Database, log_lines: pytest.CaptureFixture[str]
) -> None:
    app = application(database)

    class Broken:
        async def page(self, *_: object, **__: object) -> None:
            raise RuntimeError("SELECT password FROM users")

    app.state.use_cases = type("Cases", (), {"operators": Broken()})()
    response = await ApiClient(app, token()).get(PATH)
    assert response.status_code == 500
    assert "password" not in response.text
    assert "SELECT password" in "".join(log_lines.readouterr())


async def test_a_caller_cannot_write_lines_into_the_log(
    api: ApiClient, log_lines: pytest.CaptureFixture[str]
) -> None:
    forged = 'x"}\n{"level":"info","message":"admin signed in"}'
    await api.delete(f"{PATH}/{quote(forged, safe='')}")
    await api.post(PATH, {**WIDGET, "name": forged})
    await api.post(PATH, WIDGET, headers={"Idempotency-Key": "a b"})
    lines = [line for line in "".join(log_lines.readouterr()).splitlines() if line.strip()]
    assert lines
    for line in lines:
        entry = json.loads(line)
        assert "admin signed in" not in str(entry.get("message", entry.get("event", "")))


async def test_a_log_line_of_a_change_names_the_caller_and_the_route(
    api: ApiClient, log_lines: pytest.CaptureFixture[str]
) -> None:
    await api.post(PATH, WIDGET)
    entries = [json.loads(line) for line in "".join(log_lines.readouterr()).splitlines() if line.strip()]
    (entry,) = [each for each in entries if each.get("route") == PATH]
    assert (entry["method"], entry["status"], entry["userId"]) == ("POST", 201, "ada")


@pytest.mark.parametrize(
    "chosen", ["", "ticket-4711", 'x"}\t{', "y" * 65], ids=["none", "valid", "forged", "long"]
)
async def test_a_request_is_found_in_the_log_by_its_id(
    api: ApiClient, log_lines: pytest.CaptureFixture[str], chosen: str
) -> None:
    trace_parent = f"00-{0xABC:032x}-{0xDEF:016x}-01"
    response = await api.post(PATH, WIDGET, headers={"X-Request-Id": chosen, "traceparent": trace_parent})
    entries = [json.loads(line) for line in "".join(log_lines.readouterr()).splitlines() if line.strip()]
    (entry,) = [each for each in entries if each.get("route") == PATH]
    assert entry["requestId"] == response.headers["x-request-id"]
    assert (entry["requestId"] == chosen) is (chosen == "ticket-4711")
    assert len(entry["requestId"]) <= 64
    assert entry["traceId"] == f"{0xABC:032x}"


@pytest.mark.parametrize(
    "name",
    [
        "%00",
        "..%2f..%2fetc",
        "%2e%2e",
        "widget%0a",
        "WIDGET",
        "' OR 1=1 --",
        "a" * 300,
        "%ff%fe",
        "widget%20",
    ],
)
async def test_a_hostile_name_is_refused(api: ApiClient, name: str) -> None:
    await api.post(PATH, WIDGET)
    response = await api.get(f"{PATH}/{name}")
    assert response.status_code in (400, 404)
    assert response.headers["content-type"] == "application/problem+json"


async def test_a_host_header_does_not_reach_a_response(api: ApiClient) -> None:
    response = await api.post(PATH, WIDGET, headers={"Host": "evil.example.com"})
    assert "evil" not in response.text + str(response.headers)


@pytest.mark.parametrize(
    "moment", ["0.5", "1", "2026-11-17T12:00:00", "yesterday", "", "null", "2026-13-01T00:00:00Z"]
)
async def test_a_time_in_a_query_has_a_date_and_a_time_zone(api: ApiClient, moment: str) -> None:
    response = await api.get("/api/v1/audit", params={"since": moment})
    assert (response.status_code, response.json()["errors"][0]["path"]) == (400, "/since")
