"""Generated values of a chart: a password stays what it was, however often the chart is rendered."""

from __future__ import annotations

import base64
from typing import Any

from kapsa.environments.ports import Rendered, RenderRequest
from kapsa.environments.render.generated_values import generated_values, with_plain_data
from tests.environments.fakes import deployment, service
from tests.environments.generating_renderer import CHECKSUM, GeneratingRenderer
from tests.environments.tenant import Tenant

SETTINGS = "host={host}\npassword={password}\n"
ADDRESS = "postgres://app:{password}@{host}"


async def deployed(tenant: Tenant) -> tuple[dict[str, str], str]:
    """Return the content of the Secret, and the checksum in the Deployment."""
    namespace = tenant.namespace_of("one")
    secret = await tenant.client.get("v1/Secret", "database", namespace=namespace)
    web: Any = await tenant.client.get("apps/v1/Deployment", "web", namespace=namespace)
    for step in CHECKSUM:
        web = web[step]
    return {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}, str(web)


async def generating(tenant: Tenant, renderer: GeneratingRenderer | None = None) -> None:
    await tenant.sandbox.harness.kill()
    tenant.systems.renderer = renderer or GeneratingRenderer()
    await tenant.start()
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    await tenant.sandbox.at_rest()


async def reconciled_again(tenant: Tenant) -> None:
    """Restart the operator, and wait until it has rendered the environment again."""
    await tenant.sandbox.harness.kill()
    renderer = tenant.systems.renderer
    assert isinstance(renderer, GeneratingRenderer)
    renderer.process += 1
    before = len(renderer.requests)
    await tenant.start()

    async def rendered() -> bool:
        return len(renderer.requests) > before

    await tenant.sandbox.until(rendered, "the environment is rendered again")
    await tenant.sandbox.at_rest()
    await tenant.ready()


async def test_a_generated_password_outlives_a_restart_of_the_operator(tenant: Tenant) -> None:
    await generating(tenant)
    before = await deployed(tenant)
    for _ in range(2):
        await reconciled_again(tenant)
        assert await deployed(tenant) == before, "neither the password nor the checksum of it has changed"


async def test_a_generated_password_outlives_a_push_and_the_rest_follows_it(tenant: Tenant) -> None:
    await generating(tenant)
    before, checksum = await deployed(tenant)
    await tenant.environment(commit="two")
    await tenant.sandbox.until(lambda: _has_commit(tenant, before["commit"]), "the push is deployed")
    after, changed = await deployed(tenant)
    assert after["password"] == before["password"]
    assert changed != checksum, "its pods are replaced, since other values of the Secret may be new"


async def _has_commit(tenant: Tenant, before: str) -> bool:
    ready = await tenant.ready()
    return ready.status.commit_sha != before and (await deployed(tenant))[0]["commit"] != before


async def test_a_password_that_somebody_changes_is_put_back_while_the_operator_runs(tenant: Tenant) -> None:
    await generating(tenant)
    before = await deployed(tenant)
    namespace = tenant.namespace_of("one")
    other = {"data": {"password": base64.b64encode(b"mine").decode()}}
    await tenant.client.patch("v1/Secret", "database", other, namespace=namespace)

    async def restored() -> bool:
        return await deployed(tenant) == before

    await tenant.sandbox.until(restored, "the password is put back")


async def test_a_deleted_secret_gets_the_same_password_again(tenant: Tenant) -> None:
    await generating(tenant)
    before = await deployed(tenant)
    await tenant.client.delete("v1/Secret", "database", namespace=tenant.namespace_of("one"))
    await tenant.sandbox.exists("v1/Secret", "database", namespace=tenant.namespace_of("one"))
    assert await deployed(tenant) == before


class SettingsRenderer(GeneratingRenderer):
    """A renderer of a file in a Secret, and of a ConfigMap, which have the host and the same password."""

    settings = SETTINGS

    async def render(self, request: RenderRequest) -> Rendered:
        rendered = await super().render(request)
        first, second = (self._objects(request, attempt) for attempt in ("first", "second"))
        generated = generated_values(first, second)
        return Rendered((*first, *rendered.objects[1:]), generated=generated, inputs=request.commit)

    def _objects(self, request: RenderRequest, attempt: str) -> tuple[dict[str, Any], ...]:
        host = f"db-{request.commit[:8]}"
        password = f"{attempt}{self.process}{request.commit[:8]}"
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "database"},
            "stringData": {
                "app.ini": self.settings.format(host=host, password=password),
                "commit": request.commit,
            },
        }
        config = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "address"},
            "data": {"url": ADDRESS.format(host=host, password=password)},
        }
        return with_plain_data(secret), config


async def pushed(tenant: Tenant) -> tuple[str, str]:
    """Push a second commit. Returns the file of the Secret, and the address in the ConfigMap."""
    content, _ = await deployed(tenant)
    await tenant.environment(commit="two")
    await tenant.sandbox.until(lambda: _has_commit(tenant, content["commit"]), "the push is deployed")
    await tenant.sandbox.at_rest()
    return await files(tenant)


async def files(tenant: Tenant) -> tuple[str, str]:
    config = await tenant.client.get("v1/ConfigMap", "address", namespace=tenant.namespace_of("one"))
    return (await deployed(tenant))[0]["app.ini"], config["data"]["url"]


async def test_a_push_changes_the_settings_around_a_password_and_the_password_nowhere(tenant: Tenant) -> None:
    await generating(tenant, SettingsRenderer())
    before, _ = await files(tenant)
    password = before.split("password=")[1].strip()
    after, address = await pushed(tenant)
    host = after.split("\n")[0].removeprefix("host=")
    assert host != before.split("\n")[0].removeprefix("host="), "the host is that of the second commit"
    assert after == SETTINGS.format(host=host, password=password)
    assert address == ADDRESS.format(host=host, password=password)
    await reconciled_again(tenant)
    assert await files(tenant) == (after, address)


async def test_a_file_whose_password_cannot_be_recognized_stays_with_a_warning(tenant: Tenant) -> None:
    renderer = SettingsRenderer()
    await generating(tenant, renderer)
    before, _ = await files(tenant)
    renderer.settings = "{host} secret {password}"
    after, _ = await pushed(tenant)
    assert after == before
    condition = (await tenant.ready()).status.condition("DeploymentReady")
    assert condition is not None
    assert "Secret database keeps data.app.ini as it is deployed" in condition.message


class ReplacedRenderer(SettingsRenderer):
    """A renderer of a fixed text in a Secret, which later commits generate, there and in the name of a volume."""

    fixed = "kapsa-registry"

    async def render(self, request: RenderRequest) -> Rendered:
        rendered = await super().render(request)
        if self.fixed:
            return Rendered(rendered.objects, inputs=request.commit)
        first, second = (
            (*self._objects(request, attempt), self._workload(attempt)) for attempt in ("first", "second")
        )
        values = generated_values(first, second)
        return Rendered((*first, service("web")), generated=values, inputs=request.commit)

    def _objects(self, request: RenderRequest, attempt: str) -> tuple[dict[str, Any], ...]:
        secret, config = super()._objects(request, attempt)
        texts = {"stringData": {"word": self.fixed or attempt}, "data": {}}
        return with_plain_data({**secret, **texts}), config

    def _workload(self, attempt: str) -> dict[str, Any]:
        workload = deployment("web", "app:1")
        volume = {"name": "loot", "secret": {"secretName": attempt, "optional": True}}
        workload["spec"]["template"]["spec"]["volumes"] = [volume]
        return workload


async def test_a_generated_value_is_judged_with_the_text_that_a_deployed_secret_puts_there(
    tenant: Tenant,
) -> None:
    renderer = ReplacedRenderer()
    await generating(tenant, renderer)
    renderer.fixed = ""
    await tenant.environment(commit="two")
    refused = await tenant.reaches("one", "DeploymentReady", "False", "ObjectsRefused")
    assert refused.status.failure is not None
    assert "reads Secret kapsa-registry, which is only for pulling images" in refused.status.failure.message
