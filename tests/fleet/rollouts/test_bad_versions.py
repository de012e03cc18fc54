"""Bad versions, each caught by its own check and taken back without a person."""

from __future__ import annotations

import pytest

from kapsa.fleet.settings import FleetSettings
from kapsa.fleet.testing.sample_chart import ControllerBehaviour
from tests.fleet.rollouts.live_fleet import live_fleet, sample_chart

TWO = {"dev-1": "Dev", "staging-1": "Staging"}
HALVES = {"percentages": [50, 100], "evaluationPeriod": "PT5S"}
CAUGHT = {
    ControllerBehaviour.CRASHES: "CrashLoopBackOff",
    ControllerBehaviour.NO_IMAGE: "ImagePull",
    ControllerBehaviour.BREAKS_SOME: "Resources",
}
"""The reason that names the check."""

pytestmark = pytest.mark.timeout(300)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("behaviour", CAUGHT)
async def test_a_bad_version_is_caught_by_its_own_check_and_every_resource_stays_as_it_was(
    settings: FleetSettings, behaviour: ControllerBehaviour
) -> None:
    async with live_fleet(settings, TWO) as fleet:
        await fleet.register_operator(sample_chart("1.0.0"), sample_chart("2.0.0", behaviour))
        await fleet.finish(await fleet.deploy("1.0.0", "Direct"))
        await fleet.create_gadgets(20)
        await fleet.await_reconciled()
        before = await fleet.content()

        bad = await fleet.deploy("2.0.0", "Canary", HALVES)
        ended = await fleet.finish(bad, "RolledBack")
        first, second = ended["clusters"]
        assert (first["state"], second["state"]) == ("RolledBack", "Skipped"), await fleet.story(bad)
        assert CAUGHT[behaviour] in first["reason"], first
        assert await fleet.versions() == dict.fromkeys(TWO, "1.0.0")
        assert await fleet.content() == before
        await fleet.await_reconciled()
