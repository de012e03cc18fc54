"""Durations in ISO 8601."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kapsa.fleet.domain.durations import check_duration, format_duration, parse_duration
from kapsa.fleet.domain.errors import InvalidInput


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("PT5M", 300),
        ("P1DT12H", 129_600),
        ("PT0S", 0),
        ("P2D", 172_800),
        ("PT1H2M3S", 3_723),
        ("PT90M", 5_400),
    ],
)
def test_a_duration_is_read(text: str, seconds: int) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "P",
        "PT",
        "P1DT",
        "5M",
        "PT5",
        "P1Y",
        "P1M",
        "P1W",
        "-PT5M",
        "PT-5M",
        "PT1.5S",
        "pt5m",
        "PT5M\n",
        "PT٥M",
        "P999999D",
    ],
)
def test_anything_else_is_refused_with_its_path(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_duration(text, "/soak")
    assert refused.value.fields[0].path == "/soak"


@given(st.integers(0, 90 * 86_400))
def test_a_written_duration_is_read_back(seconds: int) -> None:
    assert parse_duration(format_duration(timedelta(seconds=seconds))) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "PT0S"), (300, "PT5M"), (86_400, "P1D"), (90_061, "P1DT1H1M1S")]
)
def test_the_shortest_text_is_written(seconds: int, text: str) -> None:
    assert format_duration(timedelta(seconds=seconds)) == text


def test_a_negative_duration_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="negative"):
        format_duration(timedelta(seconds=-1))


@pytest.mark.parametrize("seconds", [-1, 61])
def test_a_duration_out_of_bounds_is_refused(seconds: int) -> None:
    with pytest.raises(InvalidInput, match="between PT0S and PT1M"):
        check_duration(timedelta(seconds=seconds), "/soak", timedelta(minutes=1))
