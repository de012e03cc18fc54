"""Projects: previews follow branches and pull requests; permanent environments may follow a branch."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kapsa.adapters.errors import AuthFailed, Unreachable
from kapsa.devcluster.faults import Answer, FaultPlan, FaultRule
from kapsa.environments.resources import Environment, Project
from kapsa.environments.sources.poll_schedule import POLL_REQUESTED
from kapsa.environments.sources.previews import ALLOW_MASS_DELETION
from kapsa.runtime import custom_resource_definitions
from tests.environments.fakes import commit_of
from tests.environments.tenant import Tenant

pytestmark = pytest.mark.virtual_time

POLL = 340
"""Seconds after which a poll has happened."""


async def previews(tenant: Tenant) -> dict[str, Environment]:
    """Return the environments that exist and are not being deleted."""
    environments = (await tenant.client.list(Environment, namespace=tenant.home)).items
    return {each.name: each for each in environments if not each.metadata.deleting}


async def previewing(tenant: Tenant, **options: Any) -> None:
    await tenant.project(previewEnvironments={"enabled": True, **options})


async def annotate(tenant: Tenant, **annotations: str) -> None:
    patch = {"metadata": {"annotations": annotations}}
    await tenant.client.patch(Project, "app", patch, namespace=tenant.name)


async def test_a_branch_gets_a_preview_that_follows_it_and_goes_two_listings_after_it(tenant: Tenant) -> None:
    await previewing(tenant)
    commit = tenant.systems.git.push("login")
    await tenant.clock.sleep(POLL)
    assert (await tenant.ready("login")).spec.source.commit_sha == commit
    moved = tenant.systems.git.push("login", "force-pushed")
    await tenant.clock.sleep(POLL)
    assert (await tenant.ready("login")).spec.source.commit_sha == moved
    del tenant.systems.git.branches["login"]
    await tenant.clock.sleep(POLL)
    assert "login" in await previews(tenant)
    await tenant.clock.sleep(POLL)
    await tenant.sandbox.gone(Environment, "login", namespace=tenant.home)
    assert await tenant.sandbox.get("v1/Namespace", tenant.namespace_of("login"), namespace="") is None


@pytest.mark.long
async def test_listings_that_fail_or_lack_the_main_branch_remove_nothing(tenant: Tenant) -> None:
    tenant.systems.git.push("login")
    await previewing(tenant)
    await tenant.ready("login")
    tenant.systems.git.error = Unreachable("git.example.com does not answer")
    await tenant.clock.sleep(4 * 3600)
    tenant.systems.git.error = None
    tenant.systems.git.branches.clear()
    await tenant.clock.sleep(2 * 3600)
    assert set(await previews(tenant)) == {"login"}


async def test_the_repository_condition_says_why_it_cannot_be_listed(tenant: Tenant) -> None:
    tenant.systems.git.error = AuthFailed("git.example.com does not take the credentials")
    await tenant.project()
    await tenant.clock.sleep(5)
    condition = (await tenant.project_now()).status.condition("RepositoryAccessible")
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "AuthFailed")
    tenant.systems.git.error = None
    await tenant.clock.sleep(POLL)
    assert (await tenant.project_now()).status.is_true("Ready")


async def test_globs_choose_branches(tenant: Tenant) -> None:
    for branch in ("feature/a", "feature/wip-b", "docs/c"):
        tenant.systems.git.push(branch)
    await previewing(tenant, branches={"include": ["feature/*"], "exclude": ["*/wip-*"]})
    await tenant.clock.sleep(10)
    assert [each.spec.source.branch for each in (await previews(tenant)).values()] == ["feature/a"]


async def test_two_branches_whose_names_look_alike_get_two_previews(tenant: Tenant) -> None:
    tenant.systems.git.push("a/b")
    tenant.systems.git.push("a-b")
    await previewing(tenant)
    await tenant.clock.sleep(10)
    existing = await previews(tenant)
    assert sorted(each.spec.source.branch or "" for each in existing.values()) == ["a-b", "a/b"]
    branch = next(each for each in existing.values() if each.spec.source.branch == "a/b")
    assert branch.metadata.labels["catalyst.dev/branch"] == "a-b"
    assert branch.metadata.annotations["catalyst.dev/branch"] == "a/b"


async def test_at_most_a_third_of_the_previews_is_deleted_at_once_unless_allowed(
    tenant: Tenant,
) -> None:
    for number in range(10):
        tenant.systems.git.push(f"branch{number}")
    await previewing(tenant)
    await tenant.clock.sleep(10)
    assert len(await previews(tenant)) == 10
    for number in range(8):
        del tenant.systems.git.branches[f"branch{number}"]
    await tenant.clock.sleep(2 * POLL)
    assert len(await previews(tenant)) == 7
    await tenant.sandbox.harness.assert_event("DeletionBraked")
    await annotate(tenant, **{ALLOW_MASS_DELETION: "true"})
    await tenant.clock.sleep(POLL)
    assert set(await previews(tenant)) == {"branch8", "branch9"}


async def test_more_previews_than_allowed_wait_in_a_queue(tenant: Tenant) -> None:
    for branch in ("a", "b", "c"):
        tenant.systems.git.push(branch)
    await previewing(tenant, maxActive=2)
    await tenant.clock.sleep(10)
    assert set(await previews(tenant)) == {"a", "b"}
    (queued,) = (await tenant.project_now()).status.queue
    assert (queued.name, queued.position) == ("c", 1)
    del tenant.systems.git.branches["a"]
    await tenant.clock.sleep(2 * POLL + 30)
    assert set(await previews(tenant)) == {"b", "c"}
    assert (await tenant.project_now()).status.queue == []


async def test_a_commit_from_the_future_counts_from_its_first_sight(tenant: Tenant) -> None:
    tenant.systems.git.push("login", committed_at=datetime(2099, 1, 1, tzinfo=UTC))
    await previewing(tenant, ttl="2h")
    ready = await tenant.ready("login")
    assert ready.status.expires_at is not None
    assert ready.status.expires_at <= tenant.clock.now() + timedelta(hours=2)


async def test_while_the_times_of_commits_are_unknown_new_branches_wait_and_others_go(tenant: Tenant) -> None:
    for branch in ("login", "search"):
        tenant.systems.git.push(branch)
    await previewing(tenant, branches={"include": ["login"]})
    await tenant.ready("login")
    tenant.systems.git.times_error = Unreachable("git.example.com does not answer")
    await previewing(tenant, branches={"include": ["search"]})
    await tenant.sandbox.gone(Environment, "login", namespace=tenant.home)
    assert await previews(tenant) == {}
    tenant.systems.git.times_error = None
    await annotate(tenant, **{POLL_REQUESTED: "now"})
    await tenant.ready("search")


async def test_a_lower_limit_deletes_no_preview(tenant: Tenant) -> None:
    for branch in ("a", "b", "c"):
        tenant.systems.git.push(branch)
    await previewing(tenant, maxActive=3)
    await tenant.ready("c")
    await previewing(tenant, maxActive=1)
    await tenant.clock.sleep(10)
    assert set(await previews(tenant)) == {"a", "b", "c"}


@pytest.mark.long
async def test_a_previews_time_counts_from_its_last_commit_and_it_does_not_come_back_by_itself(
    tenant: Tenant,
) -> None:
    tenant.systems.git.push("login")
    await previewing(tenant, ttl="2h")
    await tenant.ready("login")
    await tenant.clock.sleep(3600)
    tenant.systems.git.push("login", "again")
    await tenant.clock.sleep(6000)
    assert set(await previews(tenant)) == {"login"}
    await tenant.clock.sleep(3600)
    assert await previews(tenant) == {}
    await tenant.restart()
    await tenant.clock.sleep(POLL)
    assert await previews(tenant) == {}
    tenant.systems.git.push("login", "once more")
    await tenant.clock.sleep(POLL)
    assert set(await previews(tenant)) == {"login"}


async def test_a_pull_request_of_a_fork_gets_a_preview_and_old_ones_do_not(tenant: Tenant) -> None:
    tenant.systems.git.pull_requests[3] = commit_of("closed long ago")
    await previewing(tenant)
    await tenant.clock.sleep(10)
    tenant.systems.git.pull_requests[4] = commit_of("fork")
    await tenant.clock.sleep(POLL)
    existing = await previews(tenant)
    assert set(existing) == {"pr-4"}
    assert existing["pr-4"].spec.source.pr_number == 4


async def test_a_merged_pull_request_leaves_no_preview_behind(tenant: Tenant) -> None:
    await previewing(tenant)
    commit = tenant.systems.git.push("login")
    tenant.systems.git.pull_requests[5] = commit
    await tenant.clock.sleep(POLL)
    assert set(await previews(tenant)) == {"login"}  # the branch shows it, and once is enough
    del tenant.systems.git.branches["login"]  # servers go on listing the pull request
    await tenant.clock.sleep(3 * POLL)
    assert await previews(tenant) == {}


async def test_permanent_environments_follow_their_branch_only_with_auto_sync(tenant: Tenant) -> None:
    first = tenant.systems.git.branches["main"]
    await tenant.project(
        environments=[
            {"name": "staging", "branch": "main", "autoSync": True},
            {"name": "production", "branch": "main"},
        ]
    )
    await tenant.ready("staging")
    await tenant.ready("production")
    second = tenant.systems.git.push("main", "second")
    await tenant.clock.sleep(POLL)
    assert (await tenant.get("staging")).spec.source.commit_sha == second
    assert (await tenant.get("production")).spec.source.commit_sha == first
    await tenant.client.patch(
        Environment, "production", {"spec": {"source": {"commitSha": second}}}, namespace=tenant.home
    )
    await tenant.clock.sleep(POLL)
    assert (await tenant.get("production")).spec.source.commit_sha == second


async def test_an_environment_that_somebody_made_is_left_alone(tenant: Tenant) -> None:
    await previewing(tenant)
    await tenant.environment("mine")
    await tenant.ready("mine")
    await tenant.clock.sleep(3 * POLL)
    assert "mine" in await previews(tenant)
    summary = (await tenant.project_now()).status.environments
    assert [(each.name, each.ready) for each in summary] == [("mine", True)]


async def test_a_deleted_project_takes_its_environments_along(tenant: Tenant) -> None:
    tenant.systems.git.push("login")
    await previewing(tenant)
    await tenant.ready("login")
    await tenant.client.delete(Project, "app", namespace=tenant.name)
    await tenant.sandbox.gone(Project, "app", namespace=tenant.name, seconds=300)
    for name in (tenant.home, tenant.namespace_of("login")):
        assert await tenant.sandbox.get("v1/Namespace", name, namespace="") is None
    assert tenant.systems.domains.held == {}


async def test_a_projects_namespace_that_belongs_to_somebody_else_is_refused(tenant: Tenant) -> None:
    await tenant.sandbox.make_namespace(tenant.home)
    spec = {"source": {"repositoryUrl": "https://git.example.com/a"}, "deployment": {"type": "manifest"}}
    await tenant.sandbox.apply(Project, "app", spec)
    await tenant.clock.sleep(10)
    condition = (await tenant.project_now()).status.condition("Ready")
    assert condition is not None
    assert condition.reason == "NamespaceNotOurs"


async def test_polls_come_as_often_as_the_project_says_and_no_more(tenant: Tenant) -> None:
    await tenant.project(source={"repositoryUrl": "https://git.example.com/a", "pollInterval": "600s"})
    await tenant.clock.sleep(6000)
    assert 9 <= tenant.systems.git.listed <= 12


@pytest.mark.long
async def test_polls_that_fail_come_less_and_less_often(tenant: Tenant) -> None:
    tenant.systems.git.error = Unreachable("git.example.com does not answer")
    await tenant.project()
    await tenant.clock.sleep(8 * 3600)
    assert tenant.systems.git.listed < 20


async def test_somebody_can_ask_for_a_poll(tenant: Tenant) -> None:
    await previewing(tenant)
    await tenant.clock.sleep(20)
    listed = tenant.systems.git.listed
    tenant.systems.git.push("login")
    await annotate(tenant, **{POLL_REQUESTED: "now"})
    await tenant.clock.sleep(10)
    assert tenant.systems.git.listed == listed + 1
    assert set(await previews(tenant)) == {"login"}


async def test_one_broken_preview_keeps_no_other_from_coming_or_going(tenant: Tenant) -> None:
    for branch in ("broken", "fine"):
        tenant.systems.git.push(branch)
    await tenant.sandbox.make_namespace(tenant.namespace_of("broken"))
    await previewing(tenant)
    await tenant.ready("fine")
    assert (await tenant.get("broken")).status.phase == "Failed"
    del tenant.systems.git.branches["fine"]
    await tenant.clock.sleep(2 * POLL)
    await tenant.sandbox.gone(Environment, "fine", namespace=tenant.home)


async def test_a_branch_with_a_blank_of_another_script_gets_a_preview_as_any_other(tenant: Tenant) -> None:
    tenant.systems.git.push("wide\u3000space")
    tenant.systems.git.push("login")
    await previewing(tenant)
    name = next(each.name for each in (await settled(tenant)).status.tracked if "\u3000" in each.branch)
    await tenant.ready("login")
    assert (await tenant.ready(name)).spec.source.branch == "wide\u3000space"


async def settled(tenant: Tenant) -> Project:
    await tenant.clock.sleep(10)
    return await tenant.project_now()


async def test_an_environment_that_cannot_be_read_keeps_no_other_from_coming_or_going(tenant: Tenant) -> None:
    await previewing(tenant)
    await tenant.environment("strange")
    await tenant.ready("strange")
    (definition,) = custom_resource_definitions([Environment])
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"][
        "properties"
    ]
    schema["type"].pop("enum")  # as an older version's schema, or a later one's, may be
    await tenant.client.apply(definition, force=True)
    await tenant.client.patch(Environment, "strange", {"spec": {"type": "odd"}}, namespace=tenant.home)
    tenant.systems.git.push("login")
    await tenant.clock.sleep(POLL)
    await tenant.ready("login")
    del tenant.systems.git.branches["login"]
    await tenant.clock.sleep(2 * POLL)
    await tenant.sandbox.gone(Environment, "login", namespace=tenant.home)
    project = await tenant.project_now()
    assert project.status.is_true("Ready")
    assert [(each.name, each.ready) for each in project.status.environments] == [("strange", False)]


async def test_an_environment_that_is_rejected_does_not_block_others_and_is_reported(
    tenant: Tenant, faults: FaultPlan
) -> None:
    refusal = Answer(code=403, reason="Forbidden", message="no such names here")
    rule = faults.add(FaultRule(action=refusal, verb="patch", resource="environments", name="bad", times=0))
    for branch in ("bad", "login"):
        tenant.systems.git.push(branch)
    await previewing(tenant)
    await tenant.ready("login")
    condition = (await tenant.project_now()).status.condition("Ready")
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "EnvironmentRefused")
    assert "Environment bad: " in condition.message
    assert "no such names here" in condition.message
    tried = rule.fired
    await tenant.clock.sleep(POLL)
    assert tried < rule.fired < tried + 10
    faults.clear()
    await tenant.ready("bad")
    assert (await settled(tenant)).status.is_true("Ready")


async def test_a_repository_at_another_address_is_tracked_from_its_first_listing_on(tenant: Tenant) -> None:
    await previewing(tenant)
    await tenant.clock.sleep(10)
    tenant.systems.git.push("login")
    other = {"source": {"repositoryUrl": "https://git.example.com/org/moved"}}
    await tenant.project(previewEnvironments={"enabled": True}, **other)
    await tenant.clock.sleep(20)
    await tenant.ready("login")


async def test_a_change_of_what_gets_a_preview_counts_at_once_and_needs_no_listing(tenant: Tenant) -> None:
    for branch in ("login", "search"):
        tenant.systems.git.push(branch)
    await tenant.project()
    await tenant.clock.sleep(10)
    tenant.systems.git.error = Unreachable("git.example.com does not answer")
    listed = tenant.systems.git.listed
    await previewing(tenant)
    await tenant.ready("login")
    await previewing(tenant, branches={"exclude": ["search"]})
    await tenant.sandbox.gone(Environment, "search", namespace=tenant.home)
    await tenant.project(previewEnvironments={"enabled": False})
    await tenant.sandbox.gone(Environment, "login", namespace=tenant.home)
    assert tenant.systems.git.listed == listed


async def test_previews_that_are_switched_off_go_although_the_repository_was_never_listed(
    tenant: Tenant,
) -> None:
    tenant.systems.git.push("login")
    await previewing(tenant)
    await tenant.ready("login")
    tenant.systems.git.error = Unreachable("git.example.com does not answer")
    await tenant.restart()
    await tenant.project(previewEnvironments={"enabled": False})
    await tenant.sandbox.gone(Environment, "login", namespace=tenant.home)


async def test_the_word_that_lets_many_previews_go_counts_at_once(tenant: Tenant) -> None:
    for number in range(5):
        tenant.systems.git.push(f"branch-{number}")
    await previewing(tenant)
    await tenant.ready("branch-4")
    for number in range(5):
        del tenant.systems.git.branches[f"branch-{number}"]
    await tenant.clock.sleep(2 * POLL)
    assert await previews(tenant)
    listed = tenant.systems.git.listed
    await annotate(tenant, **{ALLOW_MASS_DELETION: "true"})
    await tenant.clock.sleep(20)
    assert (await previews(tenant), tenant.systems.git.listed) == ({}, listed)


async def test_a_change_of_the_project_counts_no_branch_as_missing_a_second_time(tenant: Tenant) -> None:
    tenant.systems.git.push("login")
    await previewing(tenant)
    await tenant.ready("login")
    del tenant.systems.git.branches["login"]
    await annotate(tenant, **{POLL_REQUESTED: "now"})
    await tenant.clock.sleep(10)
    for number in range(3):
        await previewing(tenant, maxActive=10 + number)
        await tenant.clock.sleep(1)
    assert [each.missing for each in (await tenant.project_now()).status.tracked] == [1]


@pytest.mark.parametrize("ttl", ["99999999h", "9999999999999999999h"])
async def test_a_time_to_live_of_ages_is_as_good_as_none(tenant: Tenant, ttl: str) -> None:
    tenant.systems.git.push("login")
    await previewing(tenant, ttl=ttl)
    await tenant.ready("login")


async def test_a_branch_that_the_project_names_and_nobody_has_pushed_is_named(tenant: Tenant) -> None:
    await tenant.project(environments=[{"name": "staging", "branch": "develop"}])
    condition = (await settled(tenant)).status.condition("Ready")
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "BranchNotFound")
    assert "no branch develop" in condition.message
    tenant.systems.git.push("develop")
    await tenant.clock.sleep(POLL)
    assert (await tenant.project_now()).status.is_true("Ready")


async def test_an_environment_of_another_owner_with_the_name_of_one_of_ours_is_reported(
    tenant: Tenant,
) -> None:
    await tenant.project()
    await tenant.environment("production")
    await tenant.ready("production")
    await tenant.project(environments=[{"name": "production", "branch": "main"}])
    condition = (await settled(tenant)).status.condition("Ready")
    assert condition is not None
    assert condition.reason == "EnvironmentRefused"
    assert (
        "Environment production: the name is used by one that the Project did not create" in condition.message
    )
