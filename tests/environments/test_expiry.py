"""Expiry of resources with a TTL, judged by two clocks and under a brake."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from kapsa.environments.expiry import Expiry, ExpiryVerdict

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = 3600.0


class Judge:
    """An Expiry with both clocks in the hands of the test."""

    def __init__(self, size: int = 10) -> None:
        self.expiry = Expiry()
        self.now, self.monotonic, self.size = NOON, 0.0, size
        self.server: datetime | None = None
        self.since: datetime | None = None
        self.statuses: dict[str, datetime] = {}

    def restart(self) -> None:
        """Forget all but the statuses, as a new process does."""
        self.expiry = Expiry()

    def sleep(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.monotonic += seconds

    def __call__(
        self, uid: str = "one", expires: datetime = NOON + timedelta(hours=1), **options: bool
    ) -> ExpiryVerdict:
        without = [None] * (self.size - len(self.statuses))
        verdict = self.expiry.judge(
            uid,
            expires,
            group="team",
            members=lambda: [*self.statuses.values(), *without],
            now=self.now,
            monotonic=self.monotonic,
            server=self.server,
            since=self.since,
            kept_until=self.statuses.get(uid),
            **options,
        )
        self.statuses.pop(uid, None)
        if verdict.kept_until is not None:
            self.statuses[uid] = verdict.kept_until
        return verdict


def test_time_that_passes_on_both_clocks_is_up_at_once_for_any_number() -> None:
    judge = Judge()
    assert [judge(str(number)).after for number in range(10)] == [HOUR] * 10
    judge.sleep(HOUR)
    assert all(judge(str(number)).expired for number in range(10))


def test_a_jump_ahead_leaves_the_rest_of_the_time_and_is_reported_once() -> None:
    judge = Judge()
    judge()
    judge.sleep(600)
    judge.now += timedelta(days=365)
    first, second = judge(), judge()
    assert (first.expired, first.reason, first.after) == (False, "ClockJumped", HOUR - 600)
    assert first.message
    assert not second.message
    judge.sleep(HOUR - 600)
    assert judge().expired


def test_clocks_that_drift_apart_slowly_are_not_a_jump() -> None:
    judge = Judge()
    judge(expires=NOON + timedelta(hours=168))
    judge.sleep(167 * HOUR)
    judge.now += timedelta(hours=1)
    assert judge(expires=NOON + timedelta(hours=168)).expired


def test_what_is_overdue_at_first_sight_goes_a_third_an_hour() -> None:
    judge = Judge()
    past = NOON - timedelta(days=1)
    gone = [uid for uid in map(str, range(10)) if judge(uid, past).expired]
    assert gone == ["0", "1", "2"]
    kept = judge("3", past)
    assert (kept.reason, kept.after) == ("ExpiryBraked", HOUR)
    judge.size = 7
    for expected in (["3", "4", "5"], ["6", "7", "8"], ["9"]):
        judge.sleep(HOUR)
        gone = [uid for uid in map(str, range(int(expected[0]), 10)) if judge(uid, past).expired]
        assert gone == expected


def test_a_restart_does_not_release_the_brake() -> None:
    judge = Judge()
    past = NOON - timedelta(days=1)
    gone = {uid for uid in map(str, range(10)) if judge(uid, past).expired}
    judge.size = 10 - len(gone)
    for _ in range(5):
        judge.sleep(60)
        judge.restart()
        assert not [uid for uid in map(str, range(10)) if uid not in gone and judge(uid, past).expired]
    judge.sleep(HOUR)
    assert len([uid for uid in map(str, range(10)) if uid not in gone and judge(uid, past).expired]) == 3


def test_a_single_resource_stays_until_its_time_has_come_on_the_clock_of_the_api_server() -> None:
    judge = Judge(size=1)
    judge.server = NOON
    judge.now += timedelta(days=365)
    first, second = judge(), judge()
    assert (first.expired, first.reason, first.after) == (False, "ClockJumped", HOUR)
    assert first.message
    assert not second.message
    judge.restart()
    assert not judge().expired
    judge.sleep(HOUR)
    judge.server = NOON + timedelta(hours=1)
    assert judge().expired


def test_a_clock_that_was_behind_at_first_sight_keeps_nothing_beyond_its_time() -> None:
    judge = Judge(size=10)
    judge.since = NOON
    judge.now = datetime(1970, 1, 1, tzinfo=UTC)
    assert {judge(str(number)).after for number in range(10)} == {HOUR}, "and looks again before 56 years"
    judge.sleep(60)
    judge.now = judge.server = NOON + timedelta(hours=2)
    assert len([number for number in range(10) if judge(str(number)).expired]) == 3, "under the brake"


def test_without_the_time_of_the_api_server_a_clock_that_was_behind_is_judged_again_within_the_hour() -> None:
    judge = Judge(size=1)
    judge.since = NOON
    judge.now = datetime(1970, 1, 1, tzinfo=UTC)
    judge()
    judge.sleep(60)
    judge.now = NOON + timedelta(hours=2)
    verdict = judge()
    assert (verdict.expired, verdict.after) == (False, HOUR)
    judge.server = judge.now
    assert judge().expired


def test_a_clock_that_was_right_at_first_sight_and_jumps_with_that_of_the_api_server_deletes_nothing() -> (
    None
):
    judge = Judge(size=1)
    judge.since = NOON
    judge()
    judge.now = judge.server = NOON + timedelta(days=30)
    assert judge().reason == "ClockJumped"


def test_a_time_that_a_wrong_clock_has_recorded_keeps_nothing_for_long() -> None:
    judge = Judge(size=1)
    judge.statuses["one"] = NOON + timedelta(days=365)
    assert judge().kept_until is None, "its time has not come yet"
    judge.statuses["one"] = NOON + timedelta(days=365)
    judge.sleep(2 * HOUR)
    judge.restart()
    assert judge().expired


def test_a_deletion_that_failed_is_tried_again_and_not_counted_twice() -> None:
    judge = Judge(size=3)
    past = NOON - timedelta(days=1)
    assert judge("one", past).expired
    assert judge("one", past).expired
    assert not judge("two", past).expired


def test_the_brake_can_be_released() -> None:
    judge = Judge(size=3)
    past = NOON - timedelta(days=1)
    assert all(judge(str(number), past, unbraked=True).expired for number in range(3))


def test_a_longer_time_is_measured_from_scratch() -> None:
    judge = Judge()
    judge()
    judge.sleep(HOUR / 2)
    assert judge(expires=NOON + timedelta(hours=3)).after == 2.5 * HOUR
    judge.sleep(2.5 * HOUR)
    assert judge(expires=NOON + timedelta(hours=3)).expired
