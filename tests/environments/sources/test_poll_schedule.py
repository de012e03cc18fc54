"""The schedule of polls: with jitter, with back-off after errors, sooner on request."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

from kapsa.adapters.errors import Unreachable
from kapsa.environments.sources.poll_schedule import PollSchedule

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ASKED = ("https://git.example.com/app", "", "")


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def failed(schedule: PollSchedule, times: int, error: Unreachable) -> float:
    for _ in range(times):
        schedule.failed("uid", ASKED, NOON, 300, error)
    return schedule.due_in("uid", ASKED, NOON)


def test_what_was_never_polled_is_polled_at_once_and_so_is_everything_after_a_restart() -> None:
    assert PollSchedule().due_in("uid", ASKED, NOON) == 0


def test_polls_of_many_projects_spread_around_their_interval() -> None:
    schedule = PollSchedule(random.Random(1))
    for number in range(200):
        schedule.succeeded(str(number), ASKED, NOON, 300)
    due = [schedule.due_in(str(number), ASKED, NOON) for number in range(200)]
    assert 270 <= min(due) < 280
    assert 320 < max(due) <= 330


def test_polls_that_fail_come_later_and_later_up_to_an_hour() -> None:
    schedule = PollSchedule(random.Random(1))
    error = Unreachable("git.example.com does not answer")
    waits = [failed(schedule, 1, error) for _ in range(10)]
    for number, wait in enumerate(waits):
        usual = min(30 * 2.0**number, 3600)
        assert 0.9 * usual <= wait <= 1.1 * usual


def test_a_successful_poll_resets_the_back_off() -> None:
    schedule = PollSchedule(random.Random(1))
    error = Unreachable("git.example.com does not answer")
    failed(schedule, 8, error)
    schedule.succeeded("uid", ASKED, NOON, 300)
    assert failed(schedule, 1, error) <= 33


def test_a_server_that_says_when_to_come_back_is_not_asked_before() -> None:
    error = Unreachable("too many requests", retry_after=900)
    assert failed(PollSchedule(random.Random(1)), 1, error) == 900


def test_somebody_who_asks_is_heard_within_seconds_and_not_more_often() -> None:
    schedule = PollSchedule(random.Random(1))
    schedule.succeeded("uid", ASKED, NOON, 300)
    asked = (*ASKED[:2], "now")
    assert schedule.due_in("uid", asked, after(1)) == 4
    assert schedule.due_in("uid", asked, after(60)) == 0
    schedule.succeeded("uid", asked, after(60), 300)
    assert schedule.due_in("uid", asked, after(61)) > 200


def test_a_project_that_is_gone_is_forgotten() -> None:
    schedule = PollSchedule(random.Random(1))
    schedule.succeeded("uid", ASKED, NOON, 300)
    schedule.forget("uid")
    assert schedule.due_in("uid", ASKED, NOON) == 0
