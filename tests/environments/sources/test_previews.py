"""The branches and pull requests that get a preview, by listings alone."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kapsa.adapters.git.client import Refs
from kapsa.environments.resources import Project, TrackedBranch
from kapsa.environments.sources.previews import Tracking, new_commits, plan, preview_name, track
from tests.environments.fakes import commit_of

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def project(annotations: Mapping[str, str] | None = None, **previews: Any) -> Project:
    return Project.from_dict(
        {
            "metadata": {"name": "app", "namespace": "team", "annotations": annotations or {}},
            "spec": {
                "source": {"repositoryUrl": "https://git.example.com/app"},
                "deployment": {"type": "image"},
                "previewEnvironments": {"enabled": True, **previews},
            },
        }
    )


def refs(*branches: str, pull_requests: Mapping[int, str] | None = None, main: bool = True) -> Refs:
    shown = {branch: commit_of(branch) for branch in (*branches, *(["main"] if main else []))}
    return Refs(shown, pull_requests or {})


def seen(name: str, minutes: int) -> TrackedBranch:
    return TrackedBranch(
        name=name, branch=name, commit=commit_of(name), seen_at=NOON + timedelta(minutes=minutes)
    )


def test_a_branch_counts_from_its_commit_and_one_that_was_tracked_before_stays_as_it_was() -> None:
    hours = {"old": 200, "fresh": 2, "future": -5}
    times = {commit_of(name): NOON - timedelta(hours=back) for name, back in hours.items()}
    first = track(project(), refs(*hours), Tracking(), [], now=NOON, times=times)
    seen_at = {each.name: each.seen_at for each in first.tracked}
    assert seen_at == {"old": NOON - timedelta(hours=200), "fresh": NOON - timedelta(hours=2), "future": NOON}
    assert [each.name for each in plan(project(), first.tracked, [], now=NOON).active] == ["fresh", "future"]
    assert new_commits(project(), refs(*hours), first, now=NOON) == []
    later = track(project(), refs(*hours), first, [], now=NOON + timedelta(hours=1))
    assert {each.name: each.seen_at for each in later.tracked} == seen_at


def test_who_has_a_preview_keeps_its_place_when_it_is_pushed_to() -> None:
    tracked = [seen("pushed", 30), seen("waits", 10), seen("other", 0), seen("late", 20)]
    made = plan(project(maxActive=2), tracked, ["pushed", "other"], now=NOON + timedelta(hours=1))
    assert {each.name for each in made.active} == {"pushed", "other"}
    assert [(each.name, each.position) for each in made.queue] == [("waits", 1), ("late", 2)]


def test_time_is_up_a_ttl_after_the_last_commit_was_seen() -> None:
    tracked = [seen("old", 0), seen("new", 30)]
    made = plan(project(ttl="1h"), tracked, [], now=NOON + timedelta(minutes=60))
    assert [each.name for each in made.active] == ["new"]
    assert made.next_expiry == NOON + timedelta(minutes=90)


@pytest.mark.parametrize(("there", "gone", "stay"), [(1, 1, 0), (3, 3, 2), (6, 6, 5), (7, 7, 5), (10, 10, 7)])
def test_at_most_three_in_ten_go_at_once_but_one_always_may(there: int, gone: int, stay: int) -> None:
    names = [f"b{number}" for number in range(there)]
    shown = track(project(), refs(*names), Tracking(), [], now=NOON)
    left = refs(*names[gone:])
    once = track(project(), left, shown, names, now=NOON)
    assert len(once.tracked) == there
    twice = track(project(), left, once, names, now=NOON)
    assert (len(twice.tracked), len(twice.kept_by_brake)) == (there - gone + stay, stay)
    allowed = project({"catalyst.dev/allow-mass-deletion": "true"})
    assert len(track(allowed, left, once, names, now=NOON).tracked) == there - gone


def test_a_branch_that_comes_back_is_missed_from_the_beginning() -> None:
    shown = track(project(), refs("a"), Tracking(), [], now=NOON)
    once = track(project(), refs(), shown, ["a"], now=NOON)
    back = track(project(), refs("a"), once, ["a"], now=NOON)
    again = track(project(), refs(), back, ["a"], now=NOON)
    assert [each.missing for each in again.tracked] == [1]


def fork(number: int, minutes: int) -> TrackedBranch:
    commit = commit_of(f"fork {number}")
    return TrackedBranch(
        name=f"pr-{number}", pr_number=number, commit=commit, seen_at=NOON + timedelta(minutes=minutes)
    )


def test_pull_requests_of_strangers_do_not_keep_the_team_from_previews_of_its_own() -> None:
    forks = [fork(number, minutes=-60) for number in range(1, 21)]
    branches = [seen(f"branch{number}", minutes=0) for number in range(10)]
    first = plan(project(), [*forks, *branches], [], now=NOON)
    assert {each.name for each in first.active} == {each.name for each in branches}
    alone = plan(project(), forks, [], now=NOON)
    assert (len(alone.active), len(alone.queue)) == (3, 17)
    shown = [each.name for each in alone.active]
    later = plan(project(), [*forks, *branches], shown, now=NOON)
    assert sum(each.pr_number is None for each in later.active) == 7
    approved = plan(project(), forks, shown, now=NOON, approved=shown)
    assert len(approved.active) == 6, "an approved one is as good as a branch"
    assert len(plan(project(trust="all"), forks, [], now=NOON).active) == 10


def test_a_listing_without_the_projects_own_branch_counts_for_nothing() -> None:
    shown = track(project(), refs("a"), Tracking(), [], now=NOON)
    for _ in range(5):
        shown = track(project(), refs(main=False), shown, ["a"], now=NOON)
    assert [(each.name, each.missing) for each in shown.tracked] == [("a", 0)]


def test_pull_requests_have_previews_only_if_the_project_wants_them() -> None:
    before = track(project(), refs(), Tracking(), [], now=NOON)
    listed = refs(pull_requests={4: commit_of("fork")})
    assert [each.name for each in track(project(), listed, before, [], now=NOON).tracked] == ["pr-4"]
    assert track(project(pullRequests=False), listed, before, [], now=NOON).tracked == []


def test_a_pull_request_of_a_branch_that_is_excluded_is_shown_by_its_number() -> None:
    listed = refs("login", pull_requests={7: commit_of("login")})
    (tracked,) = track(project(branches={"exclude": ["*"]}), listed, Tracking(), [], now=NOON).tracked
    assert (tracked.name, tracked.branch, tracked.pr_number) == ("pr-7", "login", 7)


def test_a_pull_request_whose_branch_is_gone_was_merged_or_closed_though_it_is_still_listed() -> None:
    excluding = project(branches={"exclude": ["*"]})
    pull_requests = {7: commit_of("login")}
    shown = track(excluding, refs("login", pull_requests=pull_requests), Tracking(), [], now=NOON)
    for missing in (1, 2):
        assert [each.name for each in shown.tracked] == ["pr-7"], missing
        shown = track(excluding, refs(pull_requests=pull_requests), shown, ["pr-7"], now=NOON)
    assert shown.tracked == []


@given(st.lists(st.text(min_size=1, max_size=80), min_size=2, max_size=2, unique=True))
def test_two_branches_never_share_a_name_nor_does_one_look_like_a_pull_request(branches: list[str]) -> None:
    first, second = map(preview_name, branches)
    assert first != second
    assert len(first) <= 40
    assert preview_name("pr-7") != preview_name(pull_request=7) != first
