"""Requests from files and options: what people write by mistake is one line, and each option has its field."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kapsa.cli.fleet.people.deployment_requests import RequestOptions, build_request
from kapsa.cli.fleet.people.inputs import parse_duration, parse_moment, past_moment, read_mapping
from kapsa.cli.target import TargetError

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
