"""The output that commands share: columns, fields, documents, spans of time, and consent."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
import yaml

from kapsa.cli.tables import (
    OutputFormat,
    confirm,
    format_age,
    format_duration,
    format_table,
    print_document,
    print_fields,
    print_table,
    printable,
)
from kapsa.cli.target import TargetError


def test_columns_are_aligned_below_their_headers() -> None:
    text = format_table(["NAME", "PHASE"], [["web", "Ready"], ["a-longer-name", None]])
    assert text == "NAME            PHASE\nweb             Ready\na-longer-name"


def test_an_escape_sequence_in_a_text_of_somebody_else_never_reaches_the_terminal() -> None:
    hostile = "ok\x1b[2K\rhidden\u202e\x9b31m"
    shown = format_table(["MESSAGE"], [[hostile]])
    assert shown.splitlines()[1] == r"ok\x1b[2K\rhidden\u202e\x9b31m"
    assert printable("a\n\tb\x1b", keep="\n\t") == "a\n\tb\\x1b"


def test_no_rows_are_a_sentence_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["NAME"], [], empty="there are no clusters")
    assert capsys.readouterr() == ("", "there are no clusters\n")


def test_empty_fields_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    print_fields([("name", "web"), ("reason", ""), ("environment", "Dev")])
    assert capsys.readouterr().out == "name:        web\nenvironment: Dev\n"


@pytest.mark.parametrize(
    ("form", "load"),
    [(OutputFormat.JSON, json.loads), (OutputFormat.YAML, yaml.safe_load)],
    ids=["json", "yaml"],
)
def test_a_document_is_read_back_as_it_was(
    form: OutputFormat, load: object, capsys: pytest.CaptureFixture[str]
) -> None:
    value = {"items": [{"name": "web", "at": "2026-11-17T12:00:00Z", "text": "é\x1b", "none": None}]}
    print_document(value, form)
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert load(printed) == value  # type: ignore[operator]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0s"), (0, "0s"), (59.9, "59s"), (200, "3m20s"), (3600, "1h"), (7500, "2h5m"), (273600, "3d4h")],
)
def test_a_span_of_time_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_an_age_is_counted_from_a_moment() -> None:
    now = datetime(2026, 11, 17, tzinfo=UTC)
    assert (format_age(now - timedelta(minutes=2), now), format_age(None, now)) == ("2m", "")


def test_without_a_terminal_consent_must_be_given_with_the_command() -> None:
    confirm("Delete it?", yes=True)
    with pytest.raises(TargetError, match="add --yes"):
        confirm("Delete it?", yes=False)
