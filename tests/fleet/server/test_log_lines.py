"""The log of a manager: the fields of the specification on each line of a rollout, and no secret."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from prometheus_client import CollectorRegistry

from kapsa.fleet.domain.rollout.strategies import DirectStrategy
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.telemetry.rollout_metrics import RolloutMetrics
from kapsa.fleet.infrastructure.telemetry.rollout_telemetry import RolloutTelemetry
from kapsa.fleet.server.log_lines import configure_log
from kapsa.fleet.settings import FleetSettings
from tests.fleet.rollout_harness import NEW, RELEASE, RolloutHarness

PAGE = Path(__file__).parents[3] / "docs" / "fleet" / "monitoring.md"
SECRETS = ("hunter2-of-the-registry", "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhZGEifQ.c2lnbmF0dXJl")


@pytest.fixture(params=["json", "console"])
def log_format(request: pytest.FixtureRequest) -> Iterator[str]:
    before = structlog.get_config()
    configure_log(FleetSettings(log_format=request.param))
    yield request.param
    structlog.configure(**before)


@pytest.fixture
def json_log() -> Iterator[None]:
    before = structlog.get_config()
    configure_log(FleetSettings())
    yield
    structlog.configure(**before)


def lines(capture: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capture.readouterr().err.splitlines()]


@pytest.mark.usefixtures("json_log")
async def test_lines_of_a_rollout_have_the_fields_of_the_specification(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = RolloutHarness(
        database, "dev-1", "dev-2", reporter=RolloutTelemetry(RolloutMetrics(CollectorRegistry()))
    )
    await fleet.register()
    made = await fleet.create(DirectStrategy())
    await fleet.run()
    written = lines(capsys)
    deployed = [line for line in written if line["message"] == "operator deployed successfully"]
    keys = list(deployed[0])
    assert sorted(line.pop("cluster") for line in deployed) == ["dev-1", "dev-2"]
    for line in deployed:
        assert list(line)[:3] == ["timestamp", "level", "message"]
        assert line.pop("timestamp").endswith("Z")
        assert line == {
            "level": "INFO",
            "message": "operator deployed successfully",
            "state": "Healthy",
            "traceId": made.id.hex,
            "operatorName": RELEASE.name,
            "version": "2.0.0",
            "deploymentId": str(made.id),
            "userId": made.requested_by,
        }
    (shown,) = re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert list(json.loads(shown)) == keys
    phases = [line["phase"] for line in written if line["message"] == "deployment changed its phase"]
    assert phases[0] == "Deploying"
    assert phases[-1] == "Completed"


@pytest.mark.usefixtures("json_log")
async def test_a_failure_and_an_unexpected_error_are_found_by_their_deployment(
    database: Database, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = RolloutHarness(database, "dev-1", reporter=RolloutTelemetry(RolloutMetrics(CollectorRegistry())))
    await fleet.register()
    fleet.clusters.unhealthy, fleet.clusters.conclusive = {("dev-1", NEW)}, True
    made = await fleet.create(DirectStrategy())
    history = fleet.clusters.history

    async def broken(*arguments: Any) -> Any:
        monkeypatch.setattr(fleet.clusters, "history", history)
        raise RuntimeError(f"password: {SECRETS[0]}")

    monkeypatch.setattr(fleet.clusters, "history", broken)
    await fleet.run()
    written = lines(capsys)
    (unexpected,) = [line for line in written if line["message"] == "a step failed unexpectedly"]
    assert (unexpected["level"], unexpected["cluster"]) == ("ERROR", "dev-1")
    assert (unexpected["deploymentId"], unexpected["userId"]) == (str(made.id), made.requested_by)
    assert "RuntimeError" in unexpected["exception"]
    (failed,) = [line for line in written if line["message"] == "operator failed on a cluster"]
    assert (failed["level"], failed["cluster"]) == ("WARNING", "dev-1")
    assert failed["reason"]
    assert SECRETS[0] not in json.dumps(written)


@pytest.mark.usefixtures("json_log")
def test_a_text_is_cut_after_its_secrets_are_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    address = f"https://robot:{SECRETS[0]}@charts.example.com"
    structlog.get_logger().info("cannot pull", text="." * (20_000 - len("https://robot:hunter2")) + address)
    (line,) = lines(capsys)
    assert len(line["text"]) == 20_000
    assert "hunter2" not in line["text"]


def test_no_line_shows_what_looks_like_a_secret(log_format: str, capsys: pytest.CaptureFixture[str]) -> None:
    log = structlog.get_logger()
    log.info(
        "cannot pull", url=f"https://robot:{SECRETS[0]}@charts.example.com", answers=[f"Bearer {SECRETS[1]}"]
    )
    log.warning(
        f"token={SECRETS[0]}", nested={"header": {"Authorization": f"Authorization: Basic {SECRETS[0]}"}}
    )
    error = ValueError(f"password={SECRETS[0]}")
    log.error("it failed", exc_info=error, message="an id", error=ValueError(f"secret: {SECRETS[1]}"))
    written = capsys.readouterr().err
    assert "charts.example.com" in written
    assert "ValueError" in written
    assert [secret for secret in SECRETS if secret in written] == []
    if log_format == "json":
        last = json.loads(written.splitlines()[-1])
        assert (last["message"], last["details"]) == ("it failed", "an id")
