"""The hosts of PreviewEnvironments: allocated by the pool that has their domain, as those of Environments are."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kapsa.adapters.errors import Refused
from kapsa.environments.controllers.preview_environment import INGRESS
from kapsa.environments.hosts.choice import HostRequest, choose
from kapsa.environments.resources import DomainPool, PreviewEnvironment, TeamNamespace
from kapsa.environments.settings import Settings
from tests.environments.previews import Preview, make_operator
from tests.environments.sandbox import Sandbox

TEAM = TeamNamespace("team")


async def hold(sandbox: Sandbox, *held: dict[str, str], domain: str) -> None:
    """Write the allocations of a pool with the domain of previews, as the operator does for Environments."""
    if await sandbox.get(DomainPool, sandbox.unique, namespace="") is None:
        await sandbox.apply(DomainPool, sandbox.unique, {"baseDomains": [domain]})
    await sandbox.client.patch(
        DomainPool, sandbox.unique, {"status": {"allocations": list(held)}}, subresource="status"
    )


async def test_a_host_that_an_environment_holds_in_a_pool_is_refused_to_a_preview(sandbox: Sandbox) -> None:
    domain = f"{sandbox.unique}.example.com"
    settings = Settings(preview_environment_domain=domain)
    await sandbox.start(make_operator(settings))
    preview = Preview(sandbox)
    await preview.ask()
    await preview.ready()
    host = f"pr-{preview.number}.{domain}"
    await sandbox.harness.stop()
    await hold(sandbox, {"host": host, "environment": "team-shop/cart", "uid": "another"}, domain=domain)
    await sandbox.start(make_operator(settings))
    refused = await sandbox.condition(PreviewEnvironment, preview.name, "False", reason="HostTaken")
    assert "team-shop/cart" in refused.status.condition("Ready").message
    assert (refused.status.phase, refused.status.url) == ("Failed", None)
    await sandbox.gone(INGRESS, f"pr-{preview.number}-ingress", namespace=preview.namespace)
    await hold(sandbox, domain=domain)
    await sandbox.until(lambda: preview.child(INGRESS, "ingress"), "the preview has its route", seconds=180)


async def test_a_preview_holds_its_host_in_the_pool_that_has_its_domain_and_releases_it(
    sandbox: Sandbox,
) -> None:
    domain = f"{sandbox.unique}.example.com"
    await sandbox.start(make_operator(Settings(preview_environment_domain=domain)))
    preview = Preview(sandbox)
    made = await preview.ask()
    await preview.ready()
    await sandbox.apply(DomainPool, sandbox.unique, {"baseDomains": [domain]})

    async def allocations() -> list[Any]:
        pool: DomainPool = await sandbox.client.get(DomainPool, sandbox.unique)
        return [(each.host, each.kind, each.uid) for each in pool.status.allocations]

    await sandbox.until(allocations, "the preview holds its host")
    assert await allocations() == [(f"pr-{preview.number}.{domain}", "PreviewEnvironment", made.metadata.uid)]
    pools = (await sandbox.client.list(DomainPool)).items
    another = HostRequest(
        uid="another", environment="team-shop/cart", host=f"pr-{preview.number}.{domain}", team=TEAM
    )
    with pytest.raises(Refused, match="is taken by environment"):
        choose(pools, another, random.Random(1))
    await preview.delete()
    await preview.gone()
    assert await allocations() == []
