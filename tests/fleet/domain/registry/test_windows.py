"""Maintenance windows and freezes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kapsa.fleet.domain.errors import InvalidInput
from kapsa.fleet.domain.registry.windows import (
    ChangeFreeze,
    MaintenanceWindow,
    Weekday,
    check_windows,
    judge_windows,
)

MONDAY_NOON = datetime(2027, 1, 4, 12, 0, tzinfo=UTC)
SUNDAY_NIGHT = MaintenanceWindow((Weekday.SUNDAY,), "22:00", timedelta(hours=4))


def at(day: int, clock: str) -> datetime:
    return datetime.fromisoformat(f"2027-01-{day:02}T{clock}:00+00:00")


def test_a_cluster_without_windows_is_always_open() -> None:
    assert judge_windows((), (), MONDAY_NOON).open


def test_a_closed_cluster_gives_the_next_opening() -> None:
    verdict = judge_windows((SUNDAY_NIGHT,), (), MONDAY_NOON)
    assert not verdict.open
    assert verdict.opens_at == at(10, "22:00")


@pytest.mark.parametrize(
    ("moment", "open_now"),
    [(at(10, "21:59"), False), (at(10, "22:00"), True), (at(11, "01:59"), True), (at(11, "02:00"), False)],
)
def test_a_window_includes_its_start_and_not_its_end_and_may_pass_midnight(moment, open_now) -> None:
    assert judge_windows((SUNDAY_NIGHT,), (), moment).open is open_now


def test_a_freeze_closes_an_open_window_and_names_its_reason() -> None:
    freeze = ChangeFreeze(at(10, "00:00"), at(11, "00:00"), "year end")
    verdict = judge_windows((SUNDAY_NIGHT,), (freeze,), at(10, "23:00"))
    assert "'year end'" in verdict.reason
    assert verdict.opens_at == at(11, "00:00")


def test_the_opening_skips_a_window_that_lies_in_a_freeze() -> None:
    freeze = ChangeFreeze(at(9, "00:00"), at(12, "00:00"), "audit")
    assert judge_windows((SUNDAY_NIGHT,), (freeze,), MONDAY_NOON).opens_at == at(17, "22:00")


def test_a_local_window_moves_with_daylight_saving() -> None:
    window = MaintenanceWindow(tuple(Weekday), "02:00", timedelta(hours=1), "Europe/Prague")
    assert judge_windows((window,), (), datetime(2027, 1, 4, 1, 30, tzinfo=UTC)).open
    assert judge_windows((window,), (), datetime(2027, 7, 5, 0, 30, tzinfo=UTC)).open
    assert not judge_windows((window,), (), datetime(2027, 7, 5, 1, 30, tzinfo=UTC)).open


def test_a_cluster_that_never_opens_says_so() -> None:
    freezes = [
        ChangeFreeze(at(1, "00:00") + timedelta(days=n), at(2, "00:00") + timedelta(days=n), "x")
        for n in range(500)
    ]
    verdict = judge_windows((), freezes, MONDAY_NOON)
    assert (verdict.open, verdict.opens_at) == (False, None)


@given(
    st.integers(0, 60 * 24 * 20),
    st.sets(st.sampled_from(Weekday), min_size=1),
    st.integers(0, 23),
    st.integers(1, 2_000),
)
def test_the_opening_is_open_and_the_minute_before_is_not(minute, days, hour, length) -> None:
    window = MaintenanceWindow(tuple(days), f"{hour:02}:00", timedelta(minutes=length))
    moment = MONDAY_NOON + timedelta(minutes=minute)
    verdict = judge_windows((window,), (), moment)
    if not verdict.open:
        assert verdict.opens_at is not None
        assert verdict.opens_at > moment
        assert judge_windows((window,), (), verdict.opens_at).open
        assert not judge_windows((window,), (), verdict.opens_at - timedelta(minutes=1)).open


@pytest.mark.parametrize(
    ("windows", "freezes", "path"),
    [
        ((MaintenanceWindow((Weekday.MONDAY,), "10:00", timedelta()),), (), "/windows/0/duration"),
        ((MaintenanceWindow((Weekday.MONDAY,), "10:00", timedelta(days=8)),), (), "/windows/0/duration"),
        (
            (MaintenanceWindow((Weekday.MONDAY,), "10:00", timedelta(hours=1), "Mars/Olympus"),),
            (),
            "/windows/0/timezone",
        ),
        (
            (MaintenanceWindow((Weekday.MONDAY,), "10:00", timedelta(hours=1), "../etc/passwd"),),
            (),
            "/windows/0/timezone",
        ),
        ((), (ChangeFreeze(at(2, "00:00"), at(1, "00:00"), "x"),), "/freezes/0/endsAt"),
        ((), (ChangeFreeze(datetime(2027, 1, 1), at(2, "00:00"), "x"),), "/freezes/0/startsAt"),  # noqa: DTZ001
    ],
)
def test_a_window_without_meaning_is_refused_by_its_path(windows, freezes, path) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_windows(windows, freezes)
    assert refused.value.fields[0].path == path


def test_sound_windows_and_freezes_pass() -> None:
    check_windows((SUNDAY_NIGHT,), (ChangeFreeze(at(1, "00:00"), at(2, "00:00"), "x"),))
