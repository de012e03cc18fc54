"""Requests from files and options: what people write by mistake is one line, and each option has its field."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest

from kapsa.cli.fleet.client.problems import ManagerUnavailable
from kapsa.cli.fleet.people import deployments
from kapsa.cli.fleet.people.deployment_requests import RequestOptions, build_request
from kapsa.cli.fleet.people.inputs import parse_duration, parse_moment, past_moment, read_mapping
from kapsa.cli.target import TargetError
from kapsa.fleet.orchestrator.deployment_requests import DeploymentRequest, StrategyName
from tests.cli.fleet.terminal import Terminal

NOW = datetime(2026, 11, 17, 12, 0, tzinfo=UTC)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "input.yaml"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2024-13-01", "2024-13-01"),
        ("2024-12-01", "2024-12-01"),
        ("22:30", "22:30"),
        ("1e3", 1000),
        ("{80: a, null: b}", {"80": "a", "null": "b"}),
    ],
)
def test_a_value_means_what_it_means_to_helm(file: Path, text: str, value: Any) -> None:
    file.write_text(f"a: {text}\n")
    document = read_mapping(file)
    assert document == {"a": value}
    assert msgspec.json.decode(msgspec.json.encode(document)) == document


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: .nan", "line 1: the number .nan is out of range"),
        ("a: 1\nb: [-.inf]", "line 2: the number -.inf is out of range"),
        ("a: 1\na: 2", "line 2: the key 'a' is duplicated"),
        ("[" * 5000, "is nested more than 200 levels deep"),
        ("", "must have one mapping"),
        ("a: 1\n---\nb: 2", "must have one mapping"),
        ("- a", "must have one mapping"),
    ],
    ids=["nan", "infinity", "twice", "deep", "empty", "two documents", "a list"],
)
def test_a_file_that_is_not_a_mapping_of_json_is_refused(file: Path, text: str, message: str) -> None:
    file.write_text(text)
    with pytest.raises(TargetError) as error:
        read_mapping(file)
    assert message in str(error.value)
    assert str(file) in str(error.value)


@pytest.mark.parametrize("text", ["99999999999d", f"{'9' * 5000}s"])
def test_a_time_span_that_is_too_long_is_refused(text: str) -> None:
    with pytest.raises(TargetError, match="is not a time span") as error:
        parse_duration("--soak", text)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("text", ["999999d", "99999999999d", "0001-01-01T00:00:00+10:00"])
def test_a_time_before_the_calendar_is_refused(text: str) -> None:
    with pytest.raises(TargetError, match=r"--since .* is not a time"):
        past_moment("--since", text)


def test_a_time_in_the_past_is_given_by_a_span_in_either_form() -> None:
    for text in ("5m", "PT5M"):
        age = datetime.now(UTC) - datetime.fromisoformat(past_moment("--since", text))
        assert timedelta(minutes=5) <= age < timedelta(minutes=6)
    assert past_moment("--since", "2026-01-02T09:00:00+01:00") == "2026-01-02T08:00:00Z"
    assert past_moment("--since", "") == ""


def test_a_time_after_the_calendar_is_refused() -> None:
    with pytest.raises(TargetError, match=r"--until .* is not a time"):
        parse_moment("--until", "9999999d", NOW)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("targets: [dev, staging]", r'targets in --file must be a mapping, got ["dev","staging"]'),
        ("targets: {clusters: [dev]}\ncanaryConfig: fast", 'canaryConfig in --file must be a mapping, got "fast"'),
    ],
    ids=["targets", "settings of the strategy"],
)  # fmt: skip
def test_a_field_that_options_complete_must_be_a_mapping(file: Path, text: str, message: str) -> None:
    file.write_text(text)
    with pytest.raises(TargetError) as error:
        build_request("widget", "1.0.0", RequestOptions(file=file, stages="10,100"))
    assert message in str(error.value)


BLUE_GREEN = ("--strategy", "bluegreen", "--blue-green", "shop-a:shop-b")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["-c", "dev", "--cluster", "test"], {"targets": {"clusters": ["dev", "test"]}}),
        (["--environment", "staging"], {"targets": {"environment": "Staging"}}),
        (["-l", "tier=gold", "--label", "a=b"], {"targets": {"labels": {"tier": "gold", "a": "b"}}}),
        (["-c", "dev", "--stages", "10, 50%,100"], {"canaryConfig": {"percentages": [10, 50, 100]}}),
        (["-c", "dev", "--soak", "90s"], {"canaryConfig": {"evaluationPeriod": "PT90S"}}),
        (["-c", "dev", "--parallel", "3"], {"canaryConfig": {"parallelClusters": 3}}),
        (
            ["-c", "dev", "--strategy", "rolling", "--soak", "5m"],
            {"strategy": "Rolling", "rollingConfig": {"validationPeriod": "PT300S"}},
        ),
        (
            ["-c", "dev", "--strategy", "direct", "--parallel", "9"],
            {"strategy": "Direct", "directConfig": {"parallelClusters": 9}},
        ),
        (
            ["-c", "dev", *BLUE_GREEN, "--soak", "1m"],
            {
                "strategy": "BlueGreen",
                "blueGreenConfig": {
                    "blueNamespace": "shop-a",
                    "greenNamespace": "shop-b",
                    "autoSwitch": True,
                    "monitoringPeriod": "PT60S",
                },
            },
        ),
        (["-c", "dev", *BLUE_GREEN, "--manual-switch"], {"blueGreenConfig": {"autoSwitch": False}}),
        (["-c", "dev", "--on-conflict", "leave"], {"onConflict": "leave"}),
        (["-c", "dev", "--on-offline", "skip"], {"onOffline": "skip"}),
        (["-c", "dev", "--force-reason", "the fix"], {"forceReason": "the fix"}),
        (["-c", "dev", "--override-windows", "an outage"], {"windowOverrideReason": "an outage"}),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_each_flag_of_a_deployment_has_its_field(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str], expected: dict[str, Any]
) -> None:
    bodies: list[DeploymentRequest] = []

    class RecordingApi:
        async def post(self, path: str, body: DeploymentRequest, *, key: str) -> NoReturn:
            bodies.append(body)
            raise ManagerUnavailable("the request is recorded")

    monkeypatch.setattr(deployments, "call_manager", lambda work: asyncio.run(work(RecordingApi())))
    terminal = Terminal(tmp_path / "fleet.json")
    assert "is recorded" in terminal.fail("deployments", "create", "widget", "1.0.0", *flags)
    (request,) = [msgspec.json.decode(msgspec.json.encode(each)) for each in bodies]
    assert (request["operator"], request["version"]) == ("widget", "1.0.0")
    for field, value in expected.items():
        shown = {name: request[field][name] for name in value} if isinstance(value, dict) else request[field]
        assert shown == value


def test_values_and_secret_values_of_files_win_over_those_of_the_request(file: Path, tmp_path: Path) -> None:
    file.write_text("operator: widget\nversion: 1.0.0\ntargets: {clusters: [dev]}\nvalues: {replicas: 1}\n")
    values, secrets = tmp_path / "values.yaml", tmp_path / "secrets.yaml"
    values.write_text("replicas: 2\n")
    secrets.write_text("password: hunter2secret\n")
    request = build_request("", "", RequestOptions(file=file, values=values, secret_values=secrets))
    assert (request.operator, request.values) == ("widget", {"replicas": 2})
    assert request.secret_values == {"password": "hunter2secret"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"blue_green": "shop-a:shop-b"}, "--blue-green has no effect with strategy Canary"),
        ({"manual_switch": True}, "--manual-switch has no effect with strategy Canary"),
        ({"strategy": StrategyName.ROLLING, "parallel": 2}, "--parallel has no effect with strategy Rolling"),
        ({"strategy": StrategyName.DIRECT, "soak": "1m"}, "--soak has no effect with strategy Direct"),
        ({"strategy": StrategyName.BLUE_GREEN, "blue_green": "shop-a"}, "must be two namespaces: BLUE:GREEN"),
        ({"stages": "ten"}, "--stages 'ten' is not a list of percentages"),
    ],
)
def test_an_option_that_does_not_fit_the_strategy_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(TargetError) as error:
        build_request("widget", "1.0.0", RequestOptions(cluster=["dev"], **given))
    assert message in str(error.value)
