"""Crash sweeps over hours: lifetimes that end under the brake, and credentials that are withheld for a while."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from kapsa.devcluster import VirtualTimeLoop
from kapsa.environments.names import KEEP_UNTIL, namespace_name
from kapsa.environments.ports import Rendered, RenderRequest
from kapsa.environments.resources import Environment, Project, Registry
from kapsa.runtime.testing import Harness
from tests.behaviour.environments.crash_scenario import (
    HOME,
    NEXT,
    WORST,
    CrashScenario,
    Sweep,
    apply_commit,
    manifest,
)
from tests.environments.fakes import FakeRenderer, commit_of, deployment, service
from tests.environments.tenant import REPOSITORY, operator

pytestmark = [pytest.mark.virtual_time, pytest.mark.timeout(900), pytest.mark.long]

HOUR = 3600
PULL_SECRET = "kapsa-registry"
RARELY_POLLED = {"repositoryUrl": REPOSITORY, "pollInterval": "24h"}


class OverdueScenario(CrashScenario):
    """Three environments whose time ran out while no operator was running, so that they expire under the brake."""

    async def prepare(self, harness: Harness) -> None:
        await super().prepare(harness)
        await harness.start(operator(self.systems), name="the first process")
        await harness.settle(horizon=90)
        for name in ("one", "two", "three"):
            spec = {"projectRef": {"name": "app"}, "source": {"commitSha": commit_of(name)}, "ttl": "1h"}
            await harness.apply(manifest(Environment, name, HOME, spec))
        await harness.settle(horizon=90)
        await harness.kill("the first process")
        await harness.clock.sleep(2 * HOUR)


async def pass_hour(harness: Harness) -> None:
    """Let an hour pass at once: the bookmarks of all watches in it would take seconds of real time.

    The watches were silent for an hour then, and resume, as after the suspension of a machine.
    """
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    loop.advance(HOUR)
    await harness.clock.sleep(120)


async def keep_one(harness: Harness) -> None:
    """Keep an environment for some hours, as a person does, and let the time of the brake pass."""
    braked = [
        each.name
        for each in (await harness.client.list(Environment)).items
        if each.status.kept_until is not None
    ]
    # Two of three, or one if the operator crashed after the first deletion and before it recorded the times of the rest.
    assert braked, "the brake keeps at least one"
    until = (harness.clock.now() + timedelta(hours=2, minutes=30)).isoformat()
    kept = {"metadata": {"annotations": {KEEP_UNTIL: until}}}
    await harness.client.patch(Environment, sorted(braked)[-1], kept, namespace=HOME)
    await harness.clock.sleep(30)
    await pass_hour(harness)
    await pass_hour(harness)


async def expire_all(harness: Harness) -> None:
    """Let the time of the last one pass."""
    (kept,) = (await harness.client.list(Environment)).items
    assert kept.status.kept_until is None
    await pass_hour(harness)


async def all_are_gone(harness: Harness) -> None:
    assert (await harness.client.list(Environment)).items == []


async def test_environments_that_are_overdue_kept_and_expire_survive_a_crash_at_any_write(
    sweep: Sweep,
) -> None:
    scenario = OverdueScenario(secrets=[], resources={}, source=RARELY_POLLED)
    await sweep("expiry", scenario.scenario(keep_one, expire_all, all_are_gone), [*NEXT, *WORST])


class PatientRenderer(FakeRenderer):
    """A renderer whose first commit waits for the Secret for pulling images."""

    async def render(self, request: RenderRequest) -> Rendered:
        web = deployment("web", f"app:{request.commit[:12]}")
        if request.commit == commit_of("one"):
            volume = {"name": "wait", "secret": {"secretName": PULL_SECRET, "optional": True}}
            web["spec"]["template"]["spec"]["volumes"] = [volume]
        return Rendered((web, service("web")))


class WithheldScenario(CrashScenario):
    """An environment that would read the credentials to pull, until its next commit."""

    async def prepare(self, harness: Harness) -> None:
        await super().prepare(harness)
        self.systems.renderer = PatientRenderer()
        for commit in ("one", "two"):
            self.systems.images.push(f"registry.example.com/team/app:{commit_of(commit)}")
        await harness.apply(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "pull", "namespace": "team"},
                "stringData": {"username": "reader", "password": "word-to-pull"},
            }
        )
        await harness.apply(
            {
                "apiVersion": Registry.api_version,
                "kind": Registry.kind,
                "metadata": {"name": "shared"},
                "spec": {
                    "endpoint": "registry.example.com",
                    "imagePullSecret": {"secretRef": {"name": "pull", "namespace": "team"}},
                },
            }
        )


async def use_registry(harness: Harness) -> None:
    registry = {"name": "shared", "imageRepository": "team/app"}
    await harness.client.patch(Project, "app", {"spec": {"registry": registry}}, namespace="team")


async def deploy_without_reader(harness: Harness) -> None:
    inside = namespace_name("team", "app", "one")
    assert await harness.get("v1/Secret", PULL_SECRET, namespace=inside) is None, "it is withheld"
    await apply_commit("two")(harness)
    await harness.clock.sleep(180)


async def is_copied(harness: Harness) -> None:
    inside = namespace_name("team", "app", "one")
    assert await harness.get("v1/Secret", PULL_SECRET, namespace=inside) is not None
    web = await harness.client.get("apps/v1/Deployment", "web", namespace=inside)
    assert "volumes" not in web["spec"]["template"]["spec"]


async def test_credentials_to_pull_that_are_withheld_and_copied_later_survive_a_crash_at_any_write(
    sweep: Sweep,
) -> None:
    steps = (apply_commit("one"), use_registry, deploy_without_reader, is_copied)
    await sweep("withheld pull secret", WithheldScenario().scenario(*steps), [*NEXT, *WORST])
