"""Metrics: every documented name is exported, and counts what happens."""

from __future__ import annotations

import pytest

from kapsa.environments.metrics import BoundedCounter
from tests.behaviour.environments.full_scenario import FullScenario
from tests.environments.fakes import commit_of
from tests.environments.sandbox import Sandbox
from tests.environments.tenant import Tenant

pytestmark = pytest.mark.virtual_time


def test_a_label_with_unbounded_values_is_bounded_and_the_sum_never_decreases() -> None:
    counter = BoundedCounter("previews_total", "Previews.", "branch", keep=2)

    def samples() -> dict[str, float]:
        (family,) = counter.collect()
        return {each.labels["branch"]: each.value for each in family.samples if each.name == "previews_total"}

    for branch in ("a", "b", "a", "c"):
        counter.inc(branch)
    assert samples() == {"a": 2, "c": 1, "(other)": 1}  # b was seen longest ago
    for branch in ("d", "e"):
        counter.inc(branch)
    assert samples() == {"d": 1, "e": 1, "(other)": 4}


async def test_everything_that_happens_is_counted(sandbox: Sandbox) -> None:
    scenario = FullScenario(sandbox)
    scrapes: list[dict[str, float]] = []
    scenario.before_restart = lambda: scrapes.append(sandbox.metrics())
    await scenario.run()
    first, last = scrapes[0], sandbox.metrics()

    assert first["kapsa_projects_total"] == 1
    assert first['kapsa_environments_total{phase="Ready"}'] == 1
    assert first['kapsa_environments_total{phase="Failed"}'] == 0
    assert first['kapsa_project_reconcile_total{result="success"}'] >= 1
    assert first["kapsa_project_reconcile_duration_seconds_count"] >= 1
    assert first['kapsa_git_poll_total{result="success"}'] >= 1
    assert first['kapsa_builds_total{engine="buildkit",result="started"}'] == 2
    assert first['kapsa_builds_total{engine="buildkit",result="succeeded"}'] == 1
    assert first['kapsa_builds_total{engine="buildkit",result="failed"}'] == 1
    assert first['kapsa_builds_total{engine="kpack",result="started"}'] == 2
    assert first['kapsa_registry_verifications_total{result="Verified"}'] >= 1
    assert first['kapsa_domain_allocations_total{result="allocated"}'] == 1
    steps = ("namespace", "policy", "secrets", "build", "host", "render", "apply", "route", "tls", "verify")
    for step in steps:
        assert first[f'kapsa_environment_step_duration_seconds_count{{result="done",step="{step}"}}'] >= 1
    assert first['kapsa_environment_step_duration_seconds_count{result="failed",step="build"}'] >= 1
    assert first["kapsa_environment_ready_duration_seconds_count"] >= 3

    assert last['preview_environments_created_total{branch_name="x"}'] == 1
    assert last['preview_environments_reconcile_total{pr_number="7"}'] >= 2
    assert last["preview_environments_expired_total"] == 1
    assert last["preview_environments_active"] == 0
    assert last["preview_environment_creation_duration_seconds_count"] == 1
    assert (
        last['webhook_requests_total{outcome="allowed",webhook="validate-environment.catalyst.catalyst.dev"}']
        > 0
    )


async def test_what_has_not_happened_yet_counts_zero(sandbox: Sandbox) -> None:
    """Without it, Prometheus would see no increase at the first failure."""
    await sandbox.start(FullScenario(sandbox).operator)
    metrics = sandbox.metrics()
    assert metrics['preview_environments_failed_total{step="deployment"}'] == 0
    assert metrics['kapsa_git_poll_total{result="success"}'] == 0
    assert metrics['kapsa_project_reconcile_total{result="error"}'] == 0
    assert metrics["preview_environments_expired_total"] == 0


async def test_a_commit_is_timed_once_from_being_seen_to_being_ready(sandbox: Sandbox) -> None:
    tenant = Tenant(sandbox)
    await tenant.start()
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    await sandbox.client.delete("apps/v1/Deployment", "web", namespace=tenant.namespace_of("one"))
    await sandbox.at_rest()
    await tenant.ready()
    assert sandbox.metrics()["kapsa_environment_ready_duration_seconds_count"] == 1
    await tenant.environment(commit="two")
    await sandbox.until(lambda: _deployed(tenant, "two"), "the second commit is ready")
    assert sandbox.metrics()["kapsa_environment_ready_duration_seconds_count"] == 2
    await tenant.restart()
    await sandbox.at_rest()
    assert sandbox.metrics()["kapsa_environment_ready_duration_seconds_count"] == 0


async def _deployed(tenant: Tenant, text: str) -> bool:
    environment = await tenant.get()
    return environment.status.commit_sha == commit_of(text) and environment.status.phase == "Ready"
