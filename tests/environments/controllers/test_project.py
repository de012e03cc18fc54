"""Projects: previews come and go with branches and pull requests; permanent environments follow, or stay."""

from __future__ import annotations

from typing import Any

import pytest

from kapsa.adapters.errors import AuthFailed, Unreachable
from kapsa.devcluster.faults import Answer, FaultPlan, Rule
from kapsa.environments.polling import POLL_REQUESTED
from kapsa.environments.previews import ALLOW_MASS_DELETION
from kapsa.environments.resources import Environment, Project
from kapsa.runtime import custom_resource_definitions
from tests.environments.outside_world import commit_of
from tests.environments.team import Team

pytestmark = pytest.mark.virtual_time

POLL = 340
"""Seconds in which a poll comes for sure."""


async def previews(team: Team) -> dict[str, Environment]:
    """The environments that are there and not on their way out."""
    found = (await team.client.list(Environment, namespace=team.home)).items
    return {each.name: each for each in found if not each.metadata.deleting}


async def previewing(team: Team, **options: Any) -> None:
    await team.project(previewEnvironments={"enabled": True, **options})


async def annotate(team: Team, **annotations: str) -> None:
    patch = {"metadata": {"annotations": annotations}}
    await team.client.patch(Project, "app", patch, namespace=team.name)


async def test_a_branch_gets_a_preview_that_follows_it_and_goes_two_listings_after_it(team: Team) -> None:
    await previewing(team)
    commit = team.outside.git.push("login")
    await team.clock.sleep(POLL)
    assert (await team.ready("login")).spec.source.commit_sha == commit
    moved = team.outside.git.push("login", "force-pushed")
    await team.clock.sleep(POLL)
    assert (await team.ready("login")).spec.source.commit_sha == moved
    del team.outside.git.branches["login"]
    await team.clock.sleep(POLL)
    assert "login" in await previews(team)
    await team.clock.sleep(POLL)
    await team.stage.gone(Environment, "login", namespace=team.home)
    assert await team.stage.get("v1/Namespace", team.place("login"), namespace="") is None


async def test_listings_that_fail_or_lack_the_main_branch_remove_nothing(team: Team) -> None:
    team.outside.git.push("login")
    await previewing(team)
    await team.ready("login")
    team.outside.git.error = Unreachable("git.example.com does not answer")
    await team.clock.sleep(4 * 3600)
    team.outside.git.error = None
    team.outside.git.branches.clear()
    await team.clock.sleep(2 * 3600)
    assert set(await previews(team)) == {"login"}


async def test_the_repository_condition_says_why_it_cannot_be_listed(team: Team) -> None:
    team.outside.git.error = AuthFailed("git.example.com does not take the credentials")
    await team.project()
    await team.clock.sleep(5)
    found = (await team.project_now()).status.condition("RepositoryAccessible")
    assert found is not None
    assert (found.status, found.reason) == ("False", "AuthFailed")
    team.outside.git.error = None
    await team.clock.sleep(POLL)
    assert (await team.project_now()).status.is_true("Ready")


async def test_globs_choose_branches(team: Team) -> None:
    for branch in ("feature/a", "feature/wip-b", "docs/c"):
        team.outside.git.push(branch)
    await previewing(team, branches={"include": ["feature/*"], "exclude": ["*/wip-*"]})
    await team.clock.sleep(10)
    assert [each.spec.source.branch for each in (await previews(team)).values()] == ["feature/a"]


async def test_two_branches_whose_names_look_alike_get_two_previews(team: Team) -> None:
    team.outside.git.push("a/b")
    team.outside.git.push("a-b")
    await previewing(team)
    await team.clock.sleep(10)
    found = await previews(team)
    assert sorted(each.spec.source.branch or "" for each in found.values()) == ["a-b", "a/b"]
    branch = next(each for each in found.values() if each.spec.source.branch == "a/b")
    assert branch.metadata.labels["catalyst.dev/branch"] == "a-b"
    assert branch.metadata.annotations["catalyst.dev/branch"] == "a/b"


async def test_no_more_than_a_third_of_the_previews_goes_at_once_unless_somebody_says_so(team: Team) -> None:
    for number in range(10):
        team.outside.git.push(f"branch{number}")
    await previewing(team)
    await team.clock.sleep(10)
    assert len(await previews(team)) == 10
    for number in range(8):
        del team.outside.git.branches[f"branch{number}"]
    await team.clock.sleep(2 * POLL)
    assert len(await previews(team)) == 7
    await team.stage.harness.assert_event("DeletionBraked")
    await annotate(team, **{ALLOW_MASS_DELETION: "true"})
    await team.clock.sleep(POLL)
    assert set(await previews(team)) == {"branch8", "branch9"}


async def test_more_previews_than_allowed_wait_in_a_queue(team: Team) -> None:
    for branch in ("a", "b", "c"):
        team.outside.git.push(branch)
    await previewing(team, maxActive=2)
    await team.clock.sleep(10)
    assert set(await previews(team)) == {"a", "b"}
    (queued,) = (await team.project_now()).status.queue
    assert (queued.name, queued.position) == ("c", 1)
    del team.outside.git.branches["a"]
    await team.clock.sleep(2 * POLL + 30)
    assert set(await previews(team)) == {"b", "c"}
    assert (await team.project_now()).status.queue == []


async def test_a_previews_time_counts_from_its_last_commit_and_it_does_not_come_back_by_itself(
    team: Team,
) -> None:
    team.outside.git.push("login")
    await previewing(team, ttl="2h")
    await team.ready("login")
    await team.clock.sleep(3600)
    team.outside.git.push("login", "again")
    await team.clock.sleep(6000)
    assert set(await previews(team)) == {"login"}
    await team.clock.sleep(3600)
    assert await previews(team) == {}
    await team.restart()
    await team.clock.sleep(POLL)
    assert await previews(team) == {}
    team.outside.git.push("login", "once more")
    await team.clock.sleep(POLL)
    assert set(await previews(team)) == {"login"}


async def test_a_pull_request_of_a_fork_gets_a_preview_and_old_ones_do_not(team: Team) -> None:
    team.outside.git.pull_requests[3] = commit_of("closed long ago")
    await previewing(team)
    await team.clock.sleep(10)
    team.outside.git.pull_requests[4] = commit_of("fork")
    await team.clock.sleep(POLL)
    found = await previews(team)
    assert set(found) == {"pr-4"}
    assert found["pr-4"].spec.source.pr_number == 4


async def test_a_merged_pull_request_leaves_no_preview_behind(team: Team) -> None:
    await previewing(team)
    commit = team.outside.git.push("login")
    team.outside.git.pull_requests[5] = commit
    await team.clock.sleep(POLL)
    assert set(await previews(team)) == {"login"}  # the branch shows it, and once is enough
    del team.outside.git.branches["login"]  # servers go on listing the pull request
    await team.clock.sleep(3 * POLL)
    assert await previews(team) == {}


async def test_permanent_environments_follow_their_branch_only_if_told_to(team: Team) -> None:
    first = team.outside.git.branches["main"]
    await team.project(
        environments=[
            {"name": "staging", "branch": "main", "autoSync": True},
            {"name": "production", "branch": "main"},
        ]
    )
    await team.ready("staging")
    await team.ready("production")
    second = team.outside.git.push("main", "second")
    await team.clock.sleep(POLL)
    assert (await team.get("staging")).spec.source.commit_sha == second
    assert (await team.get("production")).spec.source.commit_sha == first
    await team.client.patch(
        Environment, "production", {"spec": {"source": {"commitSha": second}}}, namespace=team.home
    )
    await team.clock.sleep(POLL)
    assert (await team.get("production")).spec.source.commit_sha == second


async def test_an_environment_that_somebody_made_is_left_alone(team: Team) -> None:
    await previewing(team)
    await team.environment("mine")
    await team.ready("mine")
    await team.clock.sleep(3 * POLL)
    assert "mine" in await previews(team)
    summary = (await team.project_now()).status.environments
    assert [(each.name, each.ready) for each in summary] == [("mine", True)]


async def test_a_deleted_project_takes_its_environments_along(team: Team) -> None:
    team.outside.git.push("login")
    await previewing(team)
    await team.ready("login")
    await team.client.delete(Project, "app", namespace=team.name)
    await team.stage.gone(Project, "app", namespace=team.name, seconds=300)
    for name in (team.home, team.place("login")):
        assert await team.stage.get("v1/Namespace", name, namespace="") is None
    assert team.outside.domains.held == {}


async def test_a_projects_namespace_that_belongs_to_somebody_else_is_refused(team: Team) -> None:
    await team.stage.make_namespace(team.home)
    spec = {"source": {"repositoryUrl": "https://git.example.com/a"}, "deployment": {"type": "manifest"}}
    await team.stage.apply(Project, "app", spec)
    await team.clock.sleep(10)
    found = (await team.project_now()).status.condition("Ready")
    assert found is not None
    assert found.reason == "NamespaceNotOurs"


async def test_polls_come_as_often_as_the_project_says_and_no_more(team: Team) -> None:
    await team.project(source={"repositoryUrl": "https://git.example.com/a", "pollInterval": "600s"})
    await team.clock.sleep(6000)
    assert 9 <= team.outside.git.listed <= 12


async def test_polls_that_fail_come_less_and_less_often(team: Team) -> None:
    team.outside.git.error = Unreachable("git.example.com does not answer")
    await team.project()
    await team.clock.sleep(24 * 3600)
    assert team.outside.git.listed < 40


async def test_somebody_can_ask_for_a_poll(team: Team) -> None:
    await previewing(team)
    await team.clock.sleep(20)
    listed = team.outside.git.listed
    team.outside.git.push("login")
    await annotate(team, **{POLL_REQUESTED: "now"})
    await team.clock.sleep(10)
    assert team.outside.git.listed == listed + 1
    assert set(await previews(team)) == {"login"}


async def test_one_broken_preview_keeps_no_other_from_coming_or_going(team: Team) -> None:
    for branch in ("broken", "fine"):
        team.outside.git.push(branch)
    await team.stage.make_namespace(team.place("broken"))
    await previewing(team)
    await team.ready("fine")
    assert (await team.get("broken")).status.phase == "Failed"
    del team.outside.git.branches["fine"]
    await team.clock.sleep(2 * POLL)
    await team.stage.gone(Environment, "fine", namespace=team.home)


async def test_a_branch_with_a_blank_of_another_script_gets_a_preview_as_any_other(team: Team) -> None:
    team.outside.git.push("wide\u3000space")
    team.outside.git.push("login")
    await previewing(team)
    name = next(each.name for each in (await settled(team)).status.tracked if "\u3000" in each.branch)
    await team.ready("login")
    assert (await team.ready(name)).spec.source.branch == "wide\u3000space"


async def settled(team: Team) -> Project:
    await team.clock.sleep(10)
    return await team.project_now()


async def test_an_environment_that_cannot_be_read_keeps_no_other_from_coming_or_going(team: Team) -> None:
    await previewing(team)
    await team.environment("strange")
    await team.ready("strange")
    (definition,) = custom_resource_definitions([Environment])
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"][
        "properties"
    ]
    schema["type"].pop("enum")  # as an older version's schema, or a later one's, may be
    await team.client.apply(definition, force=True)
    await team.client.patch(Environment, "strange", {"spec": {"type": "odd"}}, namespace=team.home)
    team.outside.git.push("login")
    await team.clock.sleep(POLL)
    await team.ready("login")
    del team.outside.git.branches["login"]
    await team.clock.sleep(2 * POLL)
    await team.stage.gone(Environment, "login", namespace=team.home)
    found = await team.project_now()
    assert found.status.is_true("Ready")
    assert [(each.name, each.ready) for each in found.status.environments] == [("strange", False)]


async def test_an_environment_that_is_refused_keeps_no_other_from_coming_and_is_told_of(
    team: Team, faults: FaultPlan
) -> None:
    refusal = Answer(code=403, reason="Forbidden", message="no such names here")
    rule = faults.add(Rule(action=refusal, verb="patch", resource="environments", name="bad", times=0))
    for branch in ("bad", "login"):
        team.outside.git.push(branch)
    await previewing(team)
    await team.ready("login")
    found = (await team.project_now()).status.condition("Ready")
    assert found is not None
    assert (found.status, found.reason) == ("False", "EnvironmentRefused")
    assert "Environment bad: " in found.message
    assert "no such names here" in found.message
    tried = rule.fired
    await team.clock.sleep(POLL)
    assert tried < rule.fired < tried + 10
    faults.clear()
    await team.ready("bad")
    assert (await settled(team)).status.is_true("Ready")


async def test_a_repository_at_another_address_is_tracked_from_its_first_listing_on(team: Team) -> None:
    await previewing(team)
    await team.clock.sleep(10)
    team.outside.git.push("login")
    other = {"source": {"repositoryUrl": "https://git.example.com/org/moved"}}
    await team.project(previewEnvironments={"enabled": True}, **other)
    await team.clock.sleep(20)
    await team.ready("login")


async def test_a_change_of_what_gets_a_preview_counts_at_once_and_needs_no_listing(team: Team) -> None:
    for branch in ("login", "search"):
        team.outside.git.push(branch)
    await team.project()
    await team.clock.sleep(10)
    team.outside.git.error = Unreachable("git.example.com does not answer")
    listed = team.outside.git.listed
    await previewing(team)
    await team.ready("login")
    await previewing(team, branches={"exclude": ["search"]})
    await team.stage.gone(Environment, "search", namespace=team.home)
    await team.project(previewEnvironments={"enabled": False})
    await team.stage.gone(Environment, "login", namespace=team.home)
    assert team.outside.git.listed == listed


async def test_previews_that_are_switched_off_go_although_the_repository_was_never_listed(team: Team) -> None:
    team.outside.git.push("login")
    await previewing(team)
    await team.ready("login")
    team.outside.git.error = Unreachable("git.example.com does not answer")
    await team.restart()
    await team.project(previewEnvironments={"enabled": False})
    await team.stage.gone(Environment, "login", namespace=team.home)


async def test_the_word_that_lets_many_previews_go_counts_at_once(team: Team) -> None:
    for number in range(5):
        team.outside.git.push(f"branch-{number}")
    await previewing(team)
    await team.ready("branch-4")
    for number in range(5):
        del team.outside.git.branches[f"branch-{number}"]
    await team.clock.sleep(2 * POLL)
    assert await previews(team)
    listed = team.outside.git.listed
    await annotate(team, **{ALLOW_MASS_DELETION: "true"})
    await team.clock.sleep(20)
    assert (await previews(team), team.outside.git.listed) == ({}, listed)


async def test_a_change_of_the_project_counts_no_branch_as_missing_a_second_time(team: Team) -> None:
    team.outside.git.push("login")
    await previewing(team)
    await team.ready("login")
    del team.outside.git.branches["login"]
    await annotate(team, **{POLL_REQUESTED: "now"})
    await team.clock.sleep(10)
    for number in range(3):
        await previewing(team, maxActive=10 + number)
        await team.clock.sleep(1)
    assert [each.missing for each in (await team.project_now()).status.tracked] == [1]


@pytest.mark.parametrize("ttl", ["99999999h", "9999999999999999999h"])
async def test_a_time_to_live_of_ages_is_as_good_as_none(team: Team, ttl: str) -> None:
    team.outside.git.push("login")
    await previewing(team, ttl=ttl)
    await team.ready("login")


async def test_a_branch_that_the_project_names_and_nobody_has_pushed_is_named(team: Team) -> None:
    await team.project(environments=[{"name": "staging", "branch": "develop"}])
    found = (await settled(team)).status.condition("Ready")
    assert found is not None
    assert (found.status, found.reason) == ("False", "BranchNotFound")
    assert "no branch develop" in found.message
    team.outside.git.push("develop")
    await team.clock.sleep(POLL)
    assert (await team.project_now()).status.is_true("Ready")


async def test_an_environment_of_somebody_else_in_the_place_of_one_of_ours_is_told(team: Team) -> None:
    await team.project()
    await team.environment("production")
    await team.ready("production")
    await team.project(environments=[{"name": "production", "branch": "main"}])
    found = (await settled(team)).status.condition("Ready")
    assert found is not None
    assert found.reason == "EnvironmentRefused"
    assert "Environment production: somebody else made one of this name" in found.message
