"""Whose a namespace is: told by UIDs, never by a name or by what somebody wrote on it."""

from __future__ import annotations

import pytest

from kapsa.environments.names import OWNER, OWNER_UID
from kapsa.environments.resources import Environment, Project
from tests.environments.outside_world import commit_of
from tests.environments.team import Team

pytestmark = pytest.mark.virtual_time


async def test_a_namespace_says_whose_it_is_and_which_branch_it_shows(team: Team) -> None:
    await team.project()
    branch = "feature/login&more"
    made = await team.environment(source={"commitSha": commit_of("one"), "branch": branch})
    await team.ready()
    metadata = (await team.client.get("v1/Namespace", team.place("one")))["metadata"]
    told = {
        "app.kubernetes.io/managed-by": "kapsa",
        "catalyst.dev/team": team.name,
        "catalyst.dev/project": "app",
        "catalyst.dev/environment": "one",
        "catalyst.dev/branch": "feature-loginmore",
        OWNER_UID: made.metadata.uid,
    }
    assert metadata["labels"].items() >= told.items()
    assert (
        metadata["annotations"].items() >= {OWNER: f"{team.home}/one", "catalyst.dev/branch": branch}.items()
    )


async def test_a_namespace_that_only_says_it_is_a_projects_gets_nothing_of_it(team: Team) -> None:
    await team.project()
    forged = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": "elsewhere",
            "annotations": {OWNER: f"{team.name}/app"},
            "labels": {OWNER_UID: "of-another-project"},
        },
    }
    await team.client.create(forged)
    spec = {"projectRef": {"name": "app"}, "source": {"commitSha": commit_of("one")}}
    await team.stage.apply(Environment, "one", spec, namespace="elsewhere")
    await team.clock.sleep(60)
    found = await team.client.get(Environment, "one", namespace="elsewhere")
    condition = found.status.condition("Ready")
    assert condition is not None
    assert condition.reason == "ProjectMissing"
    assert found.status.namespace is None
    assert team.outside.renderer.requests == []


async def test_a_namespace_that_was_replaced_is_not_the_environments_whatever_its_labels_say(
    team: Team,
) -> None:
    await team.project()
    made = await team.environment()
    await team.ready()
    await team.stage.harness.stop()
    place = team.place("one")
    await team.client.delete("v1/Namespace", place)
    await team.stage.gone("v1/Namespace", place, namespace="")
    forged = await team.stage.make_namespace(place, **{OWNER_UID: made.metadata.uid})
    await team.start()
    failed = await team.reaches("one", "NamespaceReady", "False", "NamespaceNotOurs")
    assert failed.status.failure is not None
    assert "is not the one that was made" in failed.status.failure.message
    await team.client.delete(Environment, "one", namespace=team.home)
    await team.stage.gone(Environment, "one", namespace=team.home)
    left = await team.stage.get("v1/Namespace", place, namespace="")
    assert left["metadata"]["uid"] == forged["metadata"]["uid"]
    assert "deletionTimestamp" not in left["metadata"]


async def test_a_project_of_the_same_name_does_not_get_the_environments_of_the_one_before(team: Team) -> None:
    await team.project()
    await team.environment()
    await team.ready()
    await team.stage.harness.stop()
    await team.client.delete(Project, "app", namespace=team.name)
    await team.client.patch(Project, "app", {"metadata": {"finalizers": None}}, namespace=team.name)
    await team.stage.gone(Project, "app", namespace=team.name)
    await team.project()
    await team.start()
    await team.environment(commit="two")
    orphaned = await team.reaches("one", "Ready", "False", "ProjectMissing")
    assert orphaned.status.commit_sha == commit_of("one")
    refused = (await team.project_now()).status.condition("Ready")
    assert refused is not None
    assert refused.reason == "NamespaceNotOurs"


async def test_a_namespace_that_the_status_does_not_know_of_goes_with_its_environment(team: Team) -> None:
    """A process can die after it made the namespace and before it wrote that down."""
    await team.project()
    await team.environment()
    await team.ready()
    await team.stage.harness.stop()
    forgotten = {"status": {"namespace": None}}
    await team.client.patch(Environment, "one", forgotten, namespace=team.home, subresource="status")
    await team.client.delete(Environment, "one", namespace=team.home)
    await team.start()
    await team.stage.gone(Environment, "one", namespace=team.home, seconds=120)
    assert await team.stage.get("v1/Namespace", team.place("one"), namespace="") is None
