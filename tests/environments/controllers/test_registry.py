"""Registries: verified by their own API, with a reason for each kind of error."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from kapsa.adapters.http.client import GuardedHttpClient
from kapsa.adapters.testing.registry_server import RegistryServer
from kapsa.environments.controllers.registry import RegistryController
from kapsa.environments.metrics import EnvironmentMetrics
from kapsa.environments.resources import Registry
from kapsa.environments.settings import Settings
from kapsa.runtime import Audit, Operator, grants
from kapsa.runtime.testing import RecordedCall
from tests.environments.sandbox import Sandbox

LOGIN = ("builder", "correct horse")


def make_operator(server: RegistryServer) -> Operator:
    metrics = EnvironmentMetrics()
    controller = RegistryController(Settings(), server.http, metrics)
    return Operator(controllers=[controller], collect=metrics.collect, name="kapsa")


class Example:
    """A registry, the Registry that describes it, and the Secret with its credentials."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.server = RegistryServer()
        self.name = f"reg-{sandbox.unique}"

    async def secret(self, name: str, data: dict[str, str], **more: Any) -> None:
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
        await self.sandbox.harness.apply(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": name, "namespace": self.sandbox.namespace},
                "data": encoded,
                **more,
            }
        )

    async def ask(self, secret: str = "") -> None:
        spec: dict[str, Any] = {"endpoint": self.server.endpoint}
        if secret:
            spec["auth"] = {"secretRef": {"name": secret, "namespace": self.sandbox.namespace}}
        await self.sandbox.apply(Registry, self.name, spec)

    async def condition(self, status: str, reason: str) -> Registry:
        registry: Registry = await self.sandbox.condition(Registry, self.name, status, reason=reason)
        return registry


@pytest.fixture
def example(sandbox: Sandbox) -> Example:
    return Example(sandbox)


async def test_a_registry_that_takes_its_credentials_is_verified(sandbox: Sandbox, example: Example) -> None:
    example.server.login = LOGIN
    await example.secret("login", {"username": LOGIN[0], "password": LOGIN[1]})
    await sandbox.start(make_operator(example.server))
    await example.ask("login")
    registry = await example.condition("True", "Verified")
    assert registry.status.verified is True
    assert registry.status.last_verified is not None
    assert any(each.path.startswith("/token") for each in example.server.requests), "it is asked for a token"
    assert sandbox.metrics()['kapsa_registry_verifications_total{result="Verified"}'] == 1


async def test_a_docker_config_does_as_well(sandbox: Sandbox, example: Example) -> None:
    example.server.login = LOGIN
    auth = base64.b64encode(":".join(LOGIN).encode()).decode()
    config = json.dumps({"auths": {example.server.endpoint: {"auth": auth}}})
    await example.secret("login", {".dockerconfigjson": config}, type="kubernetes.io/dockerconfigjson")
    await sandbox.start(make_operator(example.server))
    await example.ask("login")
    await example.condition("True", "Verified")


async def test_a_public_registry_needs_no_secret(sandbox: Sandbox, example: Example) -> None:
    await sandbox.start(make_operator(example.server))
    await example.ask()
    await example.condition("True", "Verified")


async def test_wrong_credentials_are_reported_and_new_ones_are_tried_at_once(
    sandbox: Sandbox, example: Example
) -> None:
    example.server.login = LOGIN
    await example.secret("login", {"username": LOGIN[0], "password": "wrong"})
    await sandbox.start(make_operator(example.server))
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


async def test_a_missing_secret_is_named_and_waited_for(sandbox: Sandbox, example: Example) -> None:
    example.server.login = LOGIN
    await sandbox.start(make_operator(example.server))
    await example.ask("login")
    missing = await example.condition("False", "SecretMissing")
    condition = missing.status.condition("Ready")
    assert condition is not None
    assert f"Secret login does not exist in namespace {sandbox.namespace}" in condition.message
    await example.secret("login", {"username": LOGIN[0], "password": LOGIN[1]})
    await example.condition("True", "Verified")


async def test_a_secret_without_credentials_is_reported(sandbox: Sandbox, example: Example) -> None:
    await example.secret("login", {"user": "x"})
    await sandbox.start(make_operator(example.server))
    await example.ask("login")
    await example.condition("False", "AuthFailed")


async def test_a_server_that_is_not_a_registry_is_reported(sandbox: Sandbox, example: Example) -> None:
    example.server.fail(404, times=1000)
    await sandbox.start(make_operator(example.server))
    await example.ask()
    registry = await example.condition("False", "NoRegistry")
    assert registry.status.verified is False


@pytest.mark.virtual_time
@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_registry_in_trouble_is_asked_again_and_counts_as_before(
    sandbox: Sandbox, example: Example, status: int
) -> None:
    await sandbox.start(make_operator(example.server))
    await example.ask()
    before = await example.condition("True", "Verified")
    example.server.fail(status, times=2, path="/v2/")
    await sandbox.clock.sleep(3601)
    registry = await example.condition("Unknown", "Unreachable")
    assert registry.status.verified is True
    assert registry.status.last_verified == before.status.last_verified
    await sandbox.clock.sleep(121)
    after = await example.condition("True", "Verified")
    assert after.status.last_verified is not None
    assert before.status.last_verified is not None
    assert after.status.last_verified > before.status.last_verified


@pytest.mark.virtual_time
async def test_credentials_that_stop_working_are_found_out(sandbox: Sandbox, example: Example) -> None:
    example.server.login = LOGIN
    await example.secret("login", {"username": LOGIN[0], "password": LOGIN[1]})
    await sandbox.start(make_operator(example.server))
    await example.ask("login")
    await example.condition("True", "Verified")
    example.server.login = ("builder", "another")
    await sandbox.clock.sleep(3601)
    assert (await example.condition("False", "AuthFailed")).status.verified is False
    await sandbox.harness.assert_event("AuthFailed", name=example.name)


async def test_the_declared_rights_are_enough_and_none_is_too_many(
    sandbox: Sandbox, example: Example
) -> None:
    operator, audit = make_operator(example.server), Audit()

    def observe(recorded: RecordedCall) -> None:
        audit(recorded.call, recorded.status, 0)

    sandbox.harness.observers.append(observe)
    await sandbox.start(operator)
    await example.secret("login", {"username": "a", "password": "b"})
    await example.ask("login")
    await example.condition("True", "Verified")
    surplus = audit.verify(grants(operator.rights(), namespace="default", scope="ClusterRole"))
    assert {each for each in surplus if "events" not in each and "leases" not in each} == set()


@pytest.mark.parametrize("endpoint", ["localhost:5000", "127.0.0.1:5000"])
async def test_a_registry_on_the_host_of_the_operator_is_refused(sandbox: Sandbox, endpoint: str) -> None:
    name = f"reg-{sandbox.unique}"
    http = GuardedHttpClient()
    try:
        await sandbox.start(Operator(controllers=[RegistryController(Settings(), http)], name="kapsa"))
        await sandbox.apply(Registry, name, {"endpoint": endpoint, "insecure": True})
        registry = await sandbox.condition(Registry, name, "False", reason="AddressRefused")
    finally:
        await sandbox.harness.stop()
        await http.close()
    assert registry.status.verified is False
    message = registry.status.condition("Ready").message
    assert "is not allowed for a server" in message
    assert "such as localhost" in message
