"""The metrics of projects and environments, by the names of the specification."""

from __future__ import annotations

import pytest
import pytest_asyncio

from tests.environments.outside_world import commit_of
from tests.environments.stage import Stage
from tests.environments.team import Team

pytestmark = pytest.mark.virtual_time

BUILD = {
    "build": {"strategy": "dockerfile"},
    "registry": {"imageRepository": "registry.example.com/org/app"},
    "deployment": {"type": "image"},
}


@pytest_asyncio.fixture
async def team(stage: Stage) -> Team:
    made = Team(stage)
    await made.start()
    return made


async def test_projects_environments_and_polls_are_counted(team: Team) -> None:
    await team.project()
    await team.environment()
    await team.ready()
    team.outside.renderer.objects = []
    await team.environment("second")
    await team.reaches("second", "IngressReady", "False")
    told = team.stage.metrics()
    assert told["kapsa_projects_total"] == 1
    assert told['kapsa_environments_total{phase="Ready"}'] == 1
    assert told['kapsa_environments_total{phase="Failed"}'] == 1
    assert told['kapsa_git_poll_total{result="success"}'] == team.outside.git.listed
    assert told['kapsa_project_reconcile_total{result="success"}'] >= 1
    assert told["kapsa_project_reconcile_duration_seconds_count"] >= 1
    assert told["kapsa_environment_ready_duration_seconds_count"] == 1
    assert told['kapsa_environment_step_duration_seconds_count{result="done",step="namespace"}'] >= 2


async def test_builds_are_counted_by_what_became_of_them(team: Team) -> None:
    workloads = team.stage.harness.cluster.workloads
    await team.project(**BUILD)
    workloads.crash("kapsa-builds/*", exit_code=1)
    await team.environment()
    await team.reaches("one", "BuildReady", "False", "BuildFailed")
    await team.clock.sleep(3600)
    workloads.heal()
    workloads.delay(finish=60)
    await team.environment(commit="two")
    await team.reaches("one", "BuildReady", "False", "Building")
    await team.environment(commit="three")
    await team.reaches("one", "BuildReady", "False", "Building")
    team.outside.images.push(f"registry.example.com/org/app:{commit_of('three')}")
    await team.ready(seconds=300)
    await team.clock.sleep(60)
    told = team.stage.metrics()
    counts = {
        result: told[f'kapsa_builds_total{{engine="fake",result="{result}"}}']
        for result in ("started", "failed", "cancelled", "succeeded")
    }
    assert counts == {"started": 3, "failed": 1, "cancelled": 1, "succeeded": 1}
