"""Cron schedules."""

from __future__ import annotations

from datetime import datetime

import pytest

from kapsa.devcluster.embedded.strategies.workloads.schedule import parse


@pytest.mark.parametrize(
    ("schedule", "zone", "after", "expected"),
    [
        ("*/15 * * * *", None, "2026-01-01T00:07:30+00:00", "2026-01-01T00:15:00+00:00"),
        ("0 0 1 * *", None, "2026-01-31T12:00:00+00:00", "2026-02-01T00:00:00+00:00"),
        ("0 12 * * mon-fri", None, "2026-01-02T12:00:00+00:00", "2026-01-05T12:00:00+00:00"),
        ("0 0 13 * 5", None, "2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00"),
        ("0 0 29 2 *", None, "2026-01-01T00:00:00+00:00", "2028-02-29T00:00:00+00:00"),
        ("@hourly", None, "2026-01-01T00:00:00+00:00", "2026-01-01T01:00:00+00:00"),
        ("@every 90s", None, "2026-01-01T00:00:00+00:00", "2026-01-01T00:01:30+00:00"),
        ("30 3 * * *", "America/New_York", "2026-07-01T00:00:00+00:00", "2026-07-01T07:30:00+00:00"),
        # When daylight saving begins, 02:30 does not exist.
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00+00:00", "2026-03-30T00:30:00+00:00"),
    ],
)
def test_the_next_scheduled_time(schedule: str, zone: str | None, after: str, expected: str) -> None:
    assert parse(schedule, zone).after(datetime.fromisoformat(after)) == datetime.fromisoformat(expected)


def test_a_date_that_does_not_exist_has_no_next_time() -> None:
    assert parse("0 0 31 2 *").after(datetime.fromisoformat("2026-01-01T00:00:00+00:00")) is None


@pytest.mark.parametrize(
    "schedule", ["", "* * * *", "60 * * * *", "a * * * *", "*/0 * * * *", "@sometimes", "5-1 * * * *"]
)
def test_an_invalid_schedule_is_rejected(schedule: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse(schedule)
