"""The metrics of PreviewEnvironments."""

from __future__ import annotations

import pytest

from kapsa.devcluster import FaultPlan
from kapsa.devcluster.faults import Answer, FaultRule
from kapsa.environments.resources import PreviewEnvironment
from tests.environments.previews import Preview, make_operator
from tests.environments.sandbox import Sandbox


async def test_the_six_metrics_have_their_names_and_labels(sandbox: Sandbox) -> None:
    await sandbox.start(make_operator())
    preview = Preview(sandbox)
    await preview.ask()
    await preview.ready()
    await sandbox.at_rest()
    metrics = sandbox.metrics()
    assert metrics[f'preview_environments_created_total{{branch_name="feature/{preview.number}"}}'] == 1
    assert metrics[f'preview_environments_reconcile_total{{pr_number="{preview.number}"}}'] >= 1
    assert metrics["preview_environments_active"] >= 1
    assert metrics["preview_environments_expired_total"] == 0
    assert metrics["preview_environment_creation_duration_seconds_count"] == 1
    bounds = [
        name.split('"')[1]
        for name in metrics
        if name.startswith("preview_environment_creation_duration_seconds_b")
    ]
    assert bounds == ["1.0", "2.0", "5.0", "10.0", "20.0", "30.0", "60.0", "+Inf"]


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("resource", "step"),
    [("deployments", "deployment"), ("services", "service"), ("ingresses", "ingress")],
)
async def test_a_failure_is_counted_by_its_step_and_overcome(
    sandbox: Sandbox, faults: FaultPlan, resource: str, step: str
) -> None:
    faults.add(FaultRule(action=Answer(code=500), verb="write", resource=resource, client="operator", nth=1))
    await sandbox.start(make_operator())
    preview = Preview(sandbox)
    await preview.ask()
    await preview.ready()
    assert sandbox.metrics()[f'preview_environments_failed_total{{step="{step}"}}'] == 1


@pytest.mark.virtual_time
async def test_a_failed_update_is_counted_as_one(sandbox: Sandbox, faults: FaultPlan) -> None:
    await sandbox.start(make_operator())
    preview = Preview(sandbox)
    await preview.ask()
    await preview.ready()
    faults.add(
        FaultRule(action=Answer(code=500), verb="write", resource="deployments", client="operator", nth=1)
    )
    await preview.ask(image_tag="newer")
    await preview.ready()
    assert sandbox.metrics()['preview_environments_failed_total{step="update"}'] == 1


async def touched(preview: Preview) -> None:
    """Trigger a reconcile without a change."""
    patch = {"metadata": {"annotations": {"example.com/touched": "1"}}}
    await preview.sandbox.client.patch(
        PreviewEnvironment, preview.name, patch, namespace=preview.sandbox.namespace
    )
    await preview.sandbox.at_rest()


@pytest.mark.virtual_time
async def test_a_failed_rollout_is_reported_and_counted_once(sandbox: Sandbox) -> None:
    preview = Preview(sandbox)
    sandbox.harness.cluster.workloads.crash(f"{preview.namespace}/*", exit_code=1)
    await sandbox.start(make_operator())
    await preview.ask()
    await sandbox.clock.sleep(700)
    resource = await sandbox.condition(PreviewEnvironment, preview.name, "False", reason="RolloutFailed")
    assert resource.status.phase == "Failed"
    await touched(preview)
    assert sandbox.metrics()['preview_environments_failed_total{step="deployment"}'] == 1
    assert (
        f'preview_environments_created_total{{branch_name="feature/{preview.number}"}}'
        not in sandbox.metrics()
    )


@pytest.mark.virtual_time
async def test_a_namespace_in_the_way_is_counted_once(sandbox: Sandbox) -> None:
    preview = Preview(sandbox)
    await sandbox.make_namespace(preview.namespace)
    await sandbox.start(make_operator())
    await preview.ask()
    await sandbox.condition(PreviewEnvironment, preview.name, "False", reason="NamespaceNotOurs")
    await touched(preview)
    assert sandbox.metrics()['preview_environments_failed_total{step="namespace"}'] == 1
