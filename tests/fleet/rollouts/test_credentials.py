"""Tokens of clusters in rollouts: which one Helm used, and what happens when none is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from kapsa.fleet.settings import FleetSettings
from tests.eventually import eventually
from tests.fleet.rollouts.live_fleet import LiveFleet, live_fleet, sample_chart

ONE = {"dev-1": "Dev"}
NEEDED = (
    "no token is left, and the uploaded kubeconfig was discarded: upload a new one (PATCH with kubeconfig)"
)
SECONDS = 600

pytestmark = [pytest.mark.timeout(3600), pytest.mark.long]


async def end_token_life(fleet: LiveFleet) -> None:
    """Let the life of every token be over, as after a long absence of the manager, and the next check be due."""
    async with fleet.server.services.database.transaction() as connection:
        for change in (
            "UPDATE fleet.cluster_credential SET expires_at = fleet.now() WHERE purpose = 'cluster-token'",
            "UPDATE fleet.cluster SET next_check_at = fleet.now()",
        ):
            await connection.execute(text(change))


async def used_credentials(fleet: LiveFleet, action: str) -> list[str]:
    """Return the ids of credentials in the audit entries of an action, oldest first."""
    entries: list[Any] = (await fleet.admin.get(f"/audit?action={action}&limit=100"))["items"]
    return [each["payload"]["credential"] for each in sorted(entries, key=lambda each: each["id"])]


async def test_a_manager_that_was_away_for_longer_than_a_token_lives_carries_on_with_a_new_one(
    settings: FleetSettings, engine: str
) -> None:
    async with live_fleet(settings, ONE, engine=engine) as fleet:
        await fleet.register_operator(sample_chart("1.0.0"), sample_chart("2.0.0"))
        await fleet.finish(await fleet.deploy("1.0.0", "Direct"), seconds=SECONDS)
        await end_token_life(fleet)
        await fleet.finish(await fleet.deploy("2.0.0", "Direct"), seconds=SECONDS)
        assert await fleet.versions() == {"dev-1": "2.0.0"}
        issued = await used_credentials(fleet, "cluster.issueToken")
        first, second = await used_credentials(fleet, "helm.upgradeBegin")
        assert first not in issued
        assert second in issued
        assert await used_credentials(fleet, "cluster.register") == [first]


async def test_without_the_upload_the_cluster_and_the_rollout_say_what_is_needed_and_an_upload_heals_both(
    settings: FleetSettings, engine: str
) -> None:
    async with live_fleet(settings, ONE, engine=engine) as fleet:
        await fleet.register_operator(sample_chart("1.0.0"), sample_chart("2.0.0"))
        await fleet.finish(await fleet.deploy("1.0.0", "Direct"), seconds=SECONDS)
        status, answer = await fleet.admin.call("PATCH", "/clusters/dev-1", {"discardUpload": True})
        assert (status, "needs a new upload" in str(answer)) == (200, True), answer
        await end_token_life(fleet)
        deployment = await fleet.deploy("2.0.0", "Direct")

        async def shown() -> tuple[str, str]:
            details = await fleet.details(deployment)
            health = await fleet.admin.get("/clusters/dev-1/health")
            return health["reason"], str(details)

        await eventually(
            shown, lambda seen: NEEDED in seen[0] and NEEDED in seen[1], "the remedy", seconds=SECONDS
        )
        kubeconfig = Path(fleet.clusters["dev-1"].kubeconfig).read_text()
        status, answer = await fleet.admin.call("PATCH", "/clusters/dev-1", {"kubeconfig": kubeconfig})
        assert status == 200, answer
        await fleet.finish(deployment, seconds=SECONDS)
        assert await fleet.versions() == {"dev-1": "2.0.0"}
