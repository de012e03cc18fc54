"""Registries: verified by their own API, with what is wrong told apart."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from kapsa.adapters.testing.registry_server import RegistryServer
from kapsa.environments.controllers.registry import RegistryController
from kapsa.environments.metrics import EnvironmentMetrics
from kapsa.environments.resources import Registry
from kapsa.environments.settings import Settings
from kapsa.runtime import Operator
from kapsa.runtime.generate.audit import Audit
from kapsa.runtime.generate.rbac import grants
from kapsa.runtime.testing import RecordedCall
from tests.environments.stage import Stage

LOGIN = ("builder", "correct horse")


def make_operator(server: RegistryServer) -> Operator:
    metrics = EnvironmentMetrics()
    controller = RegistryController(Settings(), server.outgoing, metrics)
    return Operator(controllers=[controller], collect=metrics.collect, name="kapsa")


class Example:
    """A registry, the Registry that describes it, and the Secret with its credentials."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.server = RegistryServer()
        self.name = f"reg-{stage.unique}"

    async def secret(self, name: str, data: dict[str, str], **more: Any) -> None:
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
        await self.stage.harness.apply(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": name, "namespace": self.stage.namespace},
                "data": encoded,
                **more,
            }
        )

    async def ask(self, secret: str = "") -> None:
        spec: dict[str, Any] = {"endpoint": self.server.endpoint}
        if secret:
            spec["auth"] = {"secretRef": {"name": secret, "namespace": self.stage.namespace}}
        await self.stage.apply(Registry, self.name, spec)

    async def condition(self, status: str, reason: str) -> Registry:
        found: Registry = await self.stage.condition(Registry, self.name, status, reason=reason)
        return found


@pytest.fixture
def example(stage: Stage) -> Example:
    return Example(stage)


async def test_a_registry_that_takes_its_credentials_is_verified(stage: Stage, example: Example) -> None:
    example.server.login = LOGIN
    await example.secret("login", {"username": LOGIN[0], "password": LOGIN[1]})
    await stage.start(make_operator(example.server))
    await example.ask("login")
    found = await example.condition("True", "Verified")
    assert found.status.verified is True
    assert found.status.last_verified is not None
    assert any(each.path.startswith("/token") for each in example.server.requests), "it is asked for a token"
    assert stage.metrics()['kapsa_registry_verifications_total{result="Verified"}'] == 1


async def test_a_docker_config_does_as_well(stage: Stage, example: Example) -> None:
    example.server.login = LOGIN
    auth = base64.b64encode(":".join(LOGIN).encode()).decode()
    config = json.dumps({"auths": {example.server.endpoint: {"auth": auth}}})
    await example.secret("login", {".dockerconfigjson": config}, type="kubernetes.io/dockerconfigjson")
    await stage.start(make_operator(example.server))
    await example.ask("login")
    await example.condition("True", "Verified")


async def test_a_public_registry_needs_no_secret(stage: Stage, example: Example) -> None:
    await stage.start(make_operator(example.server))
    await example.ask()
    await example.condition("True", "Verified")


async def test_wrong_credentials_are_told_and_new_ones_are_tried_at_once(
    stage: Stage, example: Example
) -> None:
    example.server.login = LOGIN
    await example.secret("login", {"username": LOGIN[0], "password": "wrong"})
    await stage.start(make_operator(example.server))
    await example.ask("login")
    refused = await example.condition("False", "AuthFailed")
    assert refused.status.verified is False
    assert refused.status.last_verified is None
    condition = refused.status.condition("Ready")
    assert condition is not None
    assert "401" in condition.message
    assert "wrong" not in condition.message
    await example.secret("login", {"username": LOGIN[0], "password": LOGIN[1]})
    assert (await example.condition("True", "Verified")).status.verified is True


async def test_a_missing_secret_is_named_and_waited_for(stage: Stage, example: Example) -> None:
    example.server.login = LOGIN
    await stage.start(make_operator(example.server))
    await example.ask("login")
    missing = await example.condition("False", "SecretMissing")
    condition = missing.status.condition("Ready")
    assert condition is not None
    assert f"no Secret login in namespace {stage.namespace}" in condition.message
    await example.secret("login", {"username": LOGIN[0], "password": LOGIN[1]})
    await example.condition("True", "Verified")


async def test_a_secret_without_credentials_is_told(stage: Stage, example: Example) -> None:
    await example.secret("login", {"user": "x"})
    await stage.start(make_operator(example.server))
    await example.ask("login")
    await example.condition("False", "AuthFailed")


async def test_what_is_no_registry_is_told(stage: Stage, example: Example) -> None:
    example.server.fail(404, times=1000)
    await stage.start(make_operator(example.server))
    await example.ask()
    found = await example.condition("False", "NoRegistry")
    assert found.status.verified is False


@pytest.mark.virtual_time
@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_registry_in_trouble_is_asked_again_and_counts_as_before(
    stage: Stage, example: Example, status: int
) -> None:
    await stage.start(make_operator(example.server))
    await example.ask()
    before = await example.condition("True", "Verified")
    example.server.fail(status, times=2, path="/v2/")
    await stage.clock.sleep(3601)
    found = await example.condition("Unknown", "Unreachable")
    assert found.status.verified is True
    assert found.status.last_verified == before.status.last_verified
    await stage.clock.sleep(121)
    after = await example.condition("True", "Verified")
    assert after.status.last_verified is not None
    assert before.status.last_verified is not None
    assert after.status.last_verified > before.status.last_verified


@pytest.mark.virtual_time
async def test_credentials_that_stop_working_are_found_out(stage: Stage, example: Example) -> None:
    example.server.login = LOGIN
    await example.secret("login", {"username": LOGIN[0], "password": LOGIN[1]})
    await stage.start(make_operator(example.server))
    await example.ask("login")
    await example.condition("True", "Verified")
    example.server.login = ("builder", "another")
    await stage.clock.sleep(3601)
    assert (await example.condition("False", "AuthFailed")).status.verified is False
    await stage.harness.assert_event("AuthFailed", name=example.name)


async def test_the_declared_rights_are_enough_and_none_is_too_many(stage: Stage, example: Example) -> None:
    operator, audit = make_operator(example.server), Audit()

    def observe(recorded: RecordedCall) -> None:
        audit(recorded.call, recorded.status, 0)

    stage.harness.observers.append(observe)
    await stage.start(operator)
    await example.secret("login", {"username": "a", "password": "b"})
    await example.ask("login")
    await example.condition("True", "Verified")
    surplus = audit.verify(grants(operator.rights(), namespace="default", scope="ClusterRole"))
    assert {each for each in surplus if "events" not in each and "leases" not in each} == set()
