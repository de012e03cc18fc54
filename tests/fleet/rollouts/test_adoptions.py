"""Rollouts of a release that a person had installed with helm: through the same gate as any other."""

from __future__ import annotations

from pathlib import Path

import pytest

from kapsa.fleet.settings import FleetSettings
from kapsa.fleet.testing.sample_chart import ControllerBehaviour
from tests.fleet.orchestrator.registry.test_adoptions import install
from tests.fleet.rollouts.live_fleet import CHART, NAMESPACE, LiveFleet, live_fleet, sample_chart

pytestmark = [pytest.mark.timeout(1200), pytest.mark.long]
ANNOTATION = "reloader.example.com/last-reloaded-from"
DEPLOYMENT = "apps/v1/Deployment"


async def restart_by_another_tool(fleet: LiveFleet) -> None:
    """Annotate the pod template, as tools do that restart pods."""
    patch = {"spec": {"template": {"metadata": {"annotations": {ANNOTATION: "settings"}}}}}
    await fleet.clients["dev-1"].patch(
        DEPLOYMENT, CHART, patch, namespace=NAMESPACE, field_manager="reloader"
    )


async def controller(fleet: LiveFleet) -> tuple[str, list[str], str]:
    """Return the version, the arguments and the annotation that the pod template has."""
    deployed = await fleet.clients["dev-1"].get(DEPLOYMENT, CHART, namespace=NAMESPACE)
    template = deployed["spec"]["template"]
    metadata = template["metadata"]
    (container,) = template["spec"]["containers"]
    annotation = (metadata.get("annotations") or {}).get(ANNOTATION, "")
    return metadata["labels"]["app.kubernetes.io/version"], container["args"], annotation


async def test_an_adopted_release_is_rolled_back_from_a_bad_version_and_rolled_out_to_a_good_one(
    settings: FleetSettings, tmp_path: Path
) -> None:
    async with live_fleet(settings, {"dev-1": "Dev"}) as fleet:
        first = sample_chart("1.0.0")
        await install(
            fleet.clusters["dev-1"],
            tmp_path,
            first,
            "--set",
            "logLevel=debug",
            name=CHART,
            namespace=NAMESPACE,
        )
        await restart_by_another_tool(fleet)
        bad = sample_chart("2.0.0", ControllerBehaviour.CRASHES)
        await fleet.register_operator(first, bad, sample_chart("3.0.0"))
        adopted = await fleet.admin.post("/clusters/dev-1/adopt", {"operator": CHART})
        assert (adopted["adopted"], adopted["version"], adopted["revision"]) == (True, "1.0.0", 1)
        await fleet.create_gadgets(10)
        await fleet.await_reconciled()
        before = await fleet.content()
        arguments = ["--log-level", "debug"]

        ended = await fleet.finish(await fleet.deploy("2.0.0", "Direct"), "RolledBack")
        assert ended["clusters"][0]["reason"] == "CrashLoopBackOff", ended
        assert await controller(fleet) == ("1.0.0", arguments, "settings")

        deployment = await fleet.deploy("3.0.0", "Direct")
        done = await fleet.finish(deployment, "Completed")
        assert done["clusters"][0]["state"] == "Healthy", await fleet.story(deployment)
        assert await controller(fleet) == ("3.0.0", arguments, "settings")
        plan = await fleet.admin.get(f"/deployments/{deployment}/plan")
        assert any(ANNOTATION in each for each in plan["plan"]["clusters"][0]["notices"]), plan
        assert await fleet.content() == before
        await fleet.await_reconciled()
