"""The registration of webhooks in the cluster."""

import base64
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
import structlog

from kapsa.devcluster import DevCluster
from kapsa.runtime import (
    Client,
    ConfigError,
    NotFound,
    Operator,
    Webhooks,
    custom_resource_definition,
    grants,
)
from kapsa.runtime.testing import InProcessTransport
from kapsa.runtime.webhooks.certificates import make_authority
from kapsa.runtime.webhooks.server import WebhookServer
from tests.runtime.webhooks.webhook_server import (
    VALIDATE,
    App,
    AppDefaulter,
    AppValidator,
    OldApp,
    OldAppConverter,
    PodPolicy,
    running,
    webhooks,
)

VALIDATING = "admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration"
MUTATING = "admissionregistration.k8s.io/v1/MutatingWebhookConfiguration"


async def test_the_operator_registers_its_webhooks_with_its_own_authority() -> None:
    async with running(webhooks(AppValidator(), AppDefaulter(), PodPolicy())) as run:
        validating = await run.client.get(VALIDATING, "shop")
        mutating = await run.client.get(MUTATING, "shop")
        bundle = base64.b64encode(await run.bundle()).decode()
    entries = {entry["name"]: entry for entry in validating["webhooks"] + mutating["webhooks"]}
    assert set(entries) == {
        "validate-app.example.com",
        "mutate-app.example.com",
        "validate-pod.core.kubernetes",
    }
    apps = entries["validate-app.example.com"]
    assert apps["clientConfig"] == {"url": f"https://127.0.0.1:1{VALIDATE}", "caBundle": bundle}
    assert apps["rules"][0]["resources"] == ["apps"]
    assert apps["rules"][0]["operations"] == ["CREATE", "UPDATE", "DELETE"]
    assert (apps["failurePolicy"], apps["timeoutSeconds"]) == ("Fail", 1)
    pods = entries["validate-pod.core.kubernetes"]
    assert pods["failurePolicy"] == "Ignore"
    assert pods["namespaceSelector"] == {"matchLabels": {"guarded": "yes"}}
    assert pods["matchConditions"][0]["name"] == "not-ours"
    assert pods["rules"][0]["apiGroups"] == [""]
    assert entries["mutate-app.example.com"]["reinvocationPolicy"] == "Never"


async def test_an_up_to_date_registration_is_not_written_and_a_changed_one_is_restored() -> None:
    async with running(webhooks(AppValidator())) as run:
        writes: list[str] = []
        run.client.observe(lambda call, code, seconds: writes.append(call.verb) if call.writes else None)
        await run.server.keep()
        assert writes == []
        path = [{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]
        await run.client.patch(VALIDATING, "shop", path, type="json", field_manager="somebody")
        writes.clear()
        await run.server.keep()
        assert writes == ["patch"]
        live = await run.client.get(VALIDATING, "shop")
        assert live["webhooks"][0]["failurePolicy"] == "Fail"


async def test_a_registration_of_another_manager_only_gets_the_ca_bundle() -> None:
    async with running(webhooks(AppValidator())) as run:
        live = await run.client.get(VALIDATING, "shop")
        bundle = live["webhooks"][0]["clientConfig"].pop("caBundle")
        live["webhooks"][0]["timeoutSeconds"] = 7
        chart = {key: live[key] for key in ("apiVersion", "kind", "webhooks")}
        await run.client.delete(VALIDATING, "shop")
        await run.client.apply({**chart, "metadata": {"name": "shop"}}, field_manager="chart")
        await run.server.keep()
        made = (await run.client.get(VALIDATING, "shop"))["webhooks"][0]
        assert made["clientConfig"]["caBundle"] == bundle
        assert made["timeoutSeconds"] == 7
        chart["webhooks"][0]["timeoutSeconds"] = 8
        await run.client.apply({**chart, "metadata": {"name": "shop"}}, field_manager="chart")  # no conflict
        made = (await run.client.get(VALIDATING, "shop"))["webhooks"][0]
        assert (made["clientConfig"]["caBundle"], made["timeoutSeconds"]) == (bundle, 8)


async def test_a_registration_of_another_manager_that_calls_another_address_is_reported_once() -> None:
    async with running(webhooks(AppValidator())) as run:
        live = await run.client.get(VALIDATING, "shop")
        live["webhooks"][0]["clientConfig"] = {"url": "https://elsewhere.example/hook"}
        chart = {key: live[key] for key in ("apiVersion", "kind", "webhooks")}
        await run.client.delete(VALIDATING, "shop")
        await run.client.apply({**chart, "metadata": {"name": "shop"}}, field_manager="helm")
        with structlog.testing.capture_logs() as logs:
            await run.server.keep()
            await run.server.keep()
        (line,) = [each for each in logs if each["log_level"] == "error"]
        assert "belongs to helm and has another address" in line["event"]
        assert line["called"] == "https://elsewhere.example/hook"
        assert line["served"].endswith(VALIDATE)


async def test_service_and_certificates_are_in_the_namespace_that_is_declared() -> None:
    async with DevCluster(http=False, controllers=False) as cluster:
        client = Client(InProcessTransport(cluster), field_manager="shop")  # with the namespace default
        await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "operators"}})
        declared = Webhooks(AppValidator(), service="hooks", namespace="operators")
        await WebhookServer(declared, client, operator="shop", route=ignore).keep()
        config = (await client.get(VALIDATING, "shop"))["webhooks"][0]["clientConfig"]
        assert config["service"]["namespace"] == "operators"
        secrets = [each["metadata"]["namespace"] for each in (await client.list("v1/Secret")).items]
        assert secrets == ["operators"]
        operator = Operator(name="shop", controllers=[], webhooks=declared)
        home = [
            each for each in grants(operator.rights(), namespace="default") if each.namespace == "operators"
        ]
        assert [rule.names for each in home for rule in each.rules] == [(), ("shop-webhook-certificates",)]


def test_a_service_is_registered_with_its_namespace_and_the_certificate_has_its_names() -> None:
    declared = Webhooks(AppValidator(), service="hooks")
    assert declared.hosts("operators") == ["hooks.operators.svc", "hooks.operators.svc.cluster.local"]


CRD = "apiextensions.k8s.io/v1/CustomResourceDefinition"


async def exists(client: Client, kind: str) -> bool:
    try:
        await client.get(kind, "shop")
    except NotFound:
        return False
    return True


async def test_a_registration_whose_last_webhook_was_dropped_is_deleted() -> None:
    async with running(webhooks(AppValidator(), AppDefaulter())) as run:
        assert await exists(run.client, VALIDATING)
        await WebhookServer(
            webhooks(AppDefaulter(), former=["validating"]), run.client, operator="shop", route=ignore
        ).keep()
        assert not await exists(run.client, VALIDATING)
        assert await exists(run.client, MUTATING)
        await WebhookServer(Webhooks(), run.client, operator="shop", route=ignore).keep()
        assert not await exists(run.client, MUTATING)


@pytest.mark.parametrize("manager", ["chart", "kubectl-client-side-apply"])
async def test_a_registration_of_the_same_name_that_another_manager_made_is_never_deleted(
    manager: str,
) -> None:
    async with running(webhooks(AppDefaulter(), former=["validating"])) as run:
        entry = AppValidator().registration({"url": "https://elsewhere/validate"})
        labels = {"app.kubernetes.io/managed-by": "shop"}
        await run.client.apply(
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "ValidatingWebhookConfiguration",
                "metadata": {"name": "shop", "labels": labels},
                "webhooks": [entry],
            },
            field_manager=manager,
        )
        await run.server.keep()
        assert await exists(run.client, VALIDATING)


def ignore(address: str, handler: object) -> None:
    """Deliver no calls: these tests look at the registrations only."""


async def registrations(client: Client) -> list[Any]:
    configuration = await client.get(VALIDATING, "shop")
    crd = await client.get(CRD, "apps.example.com")
    for each in (configuration, crd):
        assert "kapsa.dev/replaced-registration" not in each["metadata"].get("annotations", {})
    return [configuration["webhooks"], crd["spec"]["conversion"]]


def from_a_laptop(hooks: Sequence[Any], client: Client, **options: Any) -> WebhookServer:
    declared = Webhooks(*hooks, converters=[OldAppConverter()], service="hooks")
    declared.serve_from("https://laptop.example:8443/tunnel", **options)
    return WebhookServer(declared, client, operator="shop", route=ignore)


async def test_webhooks_served_from_a_laptop_replace_the_registrations_and_put_them_back() -> None:
    async with DevCluster(http=False, controllers=False) as cluster:
        client = Client(InProcessTransport(cluster), field_manager="shop")
        await client.apply(custom_resource_definition([App, OldApp]), field_manager="kubectl")
        inside = Webhooks(AppValidator(), converters=[OldAppConverter()], service="hooks")
        await WebhookServer(inside, client, operator="shop", route=ignore).keep()
        before = await registrations(client)
        secret = await client.get("v1/Secret", "shop-webhook-certificates")

        killed = from_a_laptop([AppValidator(), AppDefaulter()], client)
        await killed.keep()  # and never stopped: the process was killed
        server = from_a_laptop([AppValidator(), AppDefaulter()], client)
        await server.keep()
        live = (await client.get(VALIDATING, "shop"))["webhooks"][0]["clientConfig"]
        assert live["url"] == f"https://laptop.example:8443/tunnel{VALIDATE}"
        assert "service" not in live
        conversion = (await client.get(CRD, "apps.example.com"))["spec"]["conversion"]["webhook"]
        assert conversion["clientConfig"]["url"] == "https://laptop.example:8443/tunnel/convert"
        assert await exists(client, MUTATING)
        assert (await client.get("v1/Secret", "shop-webhook-certificates"))["data"] == secret["data"]

        await server.withdraw()
        assert await registrations(client) == before
        assert not await exists(client, MUTATING), "it replaced nothing"


async def test_what_a_killed_laptop_left_is_replaced_by_the_operator_in_the_cluster() -> None:
    async with DevCluster(http=False, controllers=False) as cluster:
        client = Client(InProcessTransport(cluster), field_manager="shop")
        await client.apply(custom_resource_definition([App, OldApp]), field_manager="kubectl")
        await from_a_laptop([AppValidator()], client).keep()
        inside = Webhooks(AppValidator(), converters=[OldAppConverter()], service="hooks")
        await WebhookServer(inside, client, operator="shop", route=ignore).keep()
        (webhook,), conversion = await registrations(client)
        assert webhook["clientConfig"]["service"]["name"] == "hooks"
        assert conversion["webhook"]["clientConfig"]["service"]["name"] == "hooks"


@pytest.mark.parametrize("authority", ["", "of the tunnel"])
async def test_a_tunnel_that_terminates_tls_is_trusted_by_its_own_authority(authority: str) -> None:
    async with DevCluster(http=False, controllers=False) as cluster:
        client = Client(InProcessTransport(cluster), field_manager="shop")
        tunnel = make_authority("tunnel", now=client.clock.now(), lifetime=timedelta(days=1)).certificate
        declared = Webhooks(AppValidator(), service="hooks")
        declared.serve_from("https://tunnel.example", authority=tunnel if authority else b"")
        await WebhookServer(declared, client, operator="shop", route=ignore).keep()
        config = (await client.get(VALIDATING, "shop"))["webhooks"][0]["clientConfig"]
    assert config.get("caBundle") == (base64.b64encode(tunnel).decode() if authority else None)


async def test_a_registration_of_a_chart_is_not_replaced_from_a_laptop() -> None:
    async with DevCluster(http=False, controllers=False) as cluster:
        client = Client(InProcessTransport(cluster), field_manager="shop")
        inside = Webhooks(AppValidator(), service="hooks")
        await WebhookServer(inside, client.derive(field_manager="helm"), operator="shop", route=ignore).keep()
        with pytest.raises(ConfigError, match="ValidatingWebhookConfiguration shop belongs to helm"):
            await from_a_laptop([AppValidator()], client).keep()


@pytest.mark.parametrize("url", ["http://laptop:8443", "laptop:8443", "https://", "https://laptop?a=b"])
def test_a_webhook_url_must_be_https(url: str) -> None:
    with pytest.raises(ValueError, match="use https://HOST"):
        Webhooks(AppValidator(), service="hooks").serve_from(url)
