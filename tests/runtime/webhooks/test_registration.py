"""The registration of webhooks in the cluster."""

import base64

from kapsa.runtime import (
    Webhooks,
)
from tests.runtime.webhooks.webhook_server import (
    VALIDATE,
    AppDefaulter,
    AppValidator,
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


def test_a_service_is_registered_with_its_namespace_and_the_certificate_has_its_names() -> None:
    declared = Webhooks(AppValidator(), service="hooks")
    assert declared.hosts("operators") == ["hooks.operators.svc", "hooks.operators.svc.cluster.local"]
