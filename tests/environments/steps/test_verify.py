"""The verify step: an environment is ready once its host responds, and is not probed again."""

from __future__ import annotations

import pytest

from kapsa.adapters.errors import Unreachable
from kapsa.environments.resources import Environment
from kapsa.environments.settings import Settings
from tests.environments.sandbox import Sandbox
from tests.environments.tenant import Tenant

pytestmark = pytest.mark.virtual_time


async def touched(tenant: Tenant, value: str) -> None:
    """Trigger a reconcile without a change."""
    patch = {"metadata": {"annotations": {"example.com/touched": value}}}
    await tenant.client.patch(Environment, "one", patch, namespace=tenant.home)
    await tenant.sandbox.at_rest()


async def test_a_host_that_has_answered_is_not_asked_again_and_another_one_is(sandbox: Sandbox) -> None:
    tenant = Tenant(sandbox)
    await tenant.start(Settings(verify_routes=True))
    await tenant.project()
    await tenant.environment()
    ready = await tenant.ready()
    condition = ready.status.condition("IngressReady")
    assert condition is not None
    assert condition.reason == "Reachable"
    assert tenant.systems.prober.asked == [ready.status.url]
    await touched(tenant, "1")
    assert tenant.systems.prober.asked == [ready.status.url]
    await tenant.environment(ingress={"host": "other.preview.catalyst.dev"})
    await tenant.ready()
    assert tenant.systems.prober.asked == [ready.status.url, "https://other.preview.catalyst.dev"]


async def test_a_host_that_does_not_answer_is_asked_again_until_it_does(sandbox: Sandbox) -> None:
    tenant = Tenant(sandbox)
    tenant.systems.prober.error = Unreachable("connection refused")
    await tenant.start(Settings(verify_routes=True))
    await tenant.project()
    await tenant.environment()
    waiting = await tenant.reaches("one", "IngressReady", "False", "Unreachable")
    assert waiting.status.phase == "Deploying"
    assert waiting.status.failure is None
    condition = waiting.status.condition("IngressReady")
    assert condition is not None
    assert "connection refused" in condition.message
    tenant.systems.prober.error = None
    await tenant.ready()


async def test_no_host_is_asked_unless_the_setting_says_so(sandbox: Sandbox) -> None:
    tenant = Tenant(sandbox)
    await tenant.start()
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    assert tenant.systems.prober.asked == []
