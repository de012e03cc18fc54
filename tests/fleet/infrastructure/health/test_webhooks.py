"""Webhooks and conversions, proven by dry-run writes through the API server."""

from __future__ import annotations

import pytest

from kapsa.adapters.testing.loopback_tls import loopback_tls
from kapsa.fleet.domain.health import CheckKind, Evidence, HealthCheck
from tests.eventually import eventually
from tests.fleet.infrastructure.health.operator_fixture import KIND, OperatorFixture
from tests.fleet.infrastructure.health.webhook_server import WebhookServer

H, F, U = Evidence.HEALTHY, Evidence.FAILING, Evidence.UNKNOWN


async def check_of(operator: OperatorFixture, kind: CheckKind) -> HealthCheck:
    """Return a check once the pods have settled."""
    health = await operator.settle()
    return next(check for check in health.checks if check.kind is kind)


@pytest.mark.parametrize("operations", [["CREATE", "UPDATE"], ["CREATE"]], ids=["update", "create"])
@pytest.mark.parametrize("widgets", [0, 1], ids=["without resources", "with a resource"])
async def test_a_webhook_that_answers_is_healthy_and_was_called(
    operator: OperatorFixture, webhooks: WebhookServer, operations: list[str], widgets: int
) -> None:
    await operator.define()
    await operator.create_widgets(widgets)
    await operator.install(webhooks.configuration(operations=operations))
    check = await check_of(operator, CheckKind.WEBHOOKS)
    assert check.evidence is H
    assert webhooks.calls >= 2
    assert len((await operator.client.list(KIND)).items) == widgets


async def test_a_webhook_that_denies_the_write_works(
    operator: OperatorFixture, webhooks: WebhookServer
) -> None:
    webhooks.allowed = False
    await operator.define()
    await operator.install(webhooks.configuration())
    assert (await check_of(operator, CheckKind.WEBHOOKS)).evidence is H


async def test_a_webhook_with_a_wrong_ca_fails_by_its_certificate(
    operator: OperatorFixture, webhooks: WebhookServer
) -> None:
    await operator.define()
    await operator.install(webhooks.configuration(authority=loopback_tls("another")[1]))
    check = await check_of(operator, CheckKind.WEBHOOKS)
    assert (check.evidence, check.reason, webhooks.calls) == (F, "WebhookCertificate", 0)


@pytest.mark.long
async def test_a_slow_webhook_fails_by_its_time(operator: OperatorFixture, webhooks: WebhookServer) -> None:
    webhooks.delay = 1.2
    await operator.define()
    await operator.install(webhooks.configuration())
    check = await check_of(operator, CheckKind.WEBHOOKS)
    assert (check.evidence, check.reason) == (F, "WebhookSlow")


@pytest.mark.long
async def test_a_webhook_that_times_out_fails_even_if_its_failures_are_ignored(
    operator: OperatorFixture, webhooks: WebhookServer
) -> None:
    webhooks.delay = 3
    await operator.define()
    await operator.install(webhooks.configuration(timeoutSeconds=1))
    assert (await check_of(operator, CheckKind.WEBHOOKS)).reason == "WebhookTimeout"
    await operator.install(webhooks.configuration(timeoutSeconds=2, failurePolicy="Ignore"), revision=3)
    assert (await check_of(operator, CheckKind.WEBHOOKS)).reason == "WebhookSlow"


async def test_a_webhook_that_the_cluster_has_lost_fails(
    operator: OperatorFixture, webhooks: WebhookServer
) -> None:
    await operator.define()
    configuration = webhooks.configuration()
    await operator.install(configuration)
    await operator.client.delete(
        f"{configuration['apiVersion']}/{configuration['kind']}", configuration["metadata"]["name"]
    )
    assert (await check_of(operator, CheckKind.WEBHOOKS)).reason == "WebhookMissing"


async def test_a_webhook_that_selects_nothing_is_judged_by_its_endpoints(
    operator: OperatorFixture, webhooks: WebhookServer
) -> None:
    await operator.define()
    nowhere = {"matchLabels": {"no": "namespace"}}
    service = {"clientConfig": {"service": {"name": "gone", "namespace": "operators"}}}
    configuration = webhooks.configuration(namespaceSelector=nowhere)
    await operator.install(configuration)
    assert (await check_of(operator, CheckKind.WEBHOOKS)).evidence is H
    await operator.install(webhooks.configuration(namespaceSelector=nowhere, **service), revision=3)
    assert (await check_of(operator, CheckKind.WEBHOOKS)).reason == "WebhookNoEndpoints"


async def test_an_idle_webhook_is_not_probed(operator: OperatorFixture, webhooks: WebhookServer) -> None:
    await operator.define()
    idle = [{"name": "fleet.kapsa-project.io/idle", "expression": "false"}]
    await operator.install(webhooks.configuration(authority=loopback_tls("another")[1], matchConditions=idle))
    health = await operator.settle()
    assert CheckKind.WEBHOOKS not in {check.kind for check in health.checks}


async def test_a_failing_webhook_is_no_evidence_before_the_pods_have_settled(
    operator: OperatorFixture, webhooks: WebhookServer
) -> None:
    await operator.define()
    await operator.install(webhooks.configuration(authority=loopback_tls("another")[1]))
    await operator.ready()
    checks = {check.kind: check.evidence for check in (await operator.observe()).checks}
    assert checks[CheckKind.WEBHOOKS] is U


@pytest.mark.parametrize("widgets", [0, 1], ids=["without resources", "with a resource"])
async def test_a_conversion_is_proven_by_a_round_trip(
    operator: OperatorFixture, webhooks: WebhookServer, widgets: int
) -> None:
    await operator.define(conversion=webhooks.conversion())
    await operator.create_widgets(widgets)
    await operator.install()
    assert (await check_of(operator, CheckKind.CONVERSION)).evidence is H
    webhooks.converts = False
    check = await check_of(operator, CheckKind.CONVERSION)
    assert (check.evidence, check.reason) == (F, "ConversionFailed")


@pytest.mark.real  # the embedded engine returns the last conversion of a revision, also for a dry run
async def test_a_real_api_server_proves_webhooks_and_conversions_and_a_lost_field(
    real_operator: OperatorFixture, webhooks: WebhookServer
) -> None:
    operator = real_operator
    await operator.define(conversion=webhooks.conversion())
    await operator.create_widgets(1)
    await operator.client.patch(KIND, "w0", {"spec": {"shape": "round"}}, namespace="default")
    await operator.install(webhooks.configuration())

    async def reasons() -> dict[CheckKind, tuple[Evidence, str]]:
        health = await operator.settle()
        return {check.kind: (check.evidence, check.reason) for check in health.checks}

    expected: dict[CheckKind, tuple[Evidence, str]] = {
        CheckKind.WEBHOOKS: (H, "Passed"),
        CheckKind.CONVERSION: (H, "Passed"),
    }
    # The API server learns of webhooks and conversions a moment after they are stored.
    await eventually(reasons, lambda seen: expected.items() <= seen.items(), str(expected))
    await eventually(reasons, lambda seen: webhooks.calls > 0, "a call of the webhook")
    webhooks.drops = "shape"
    lost = (F, "ConversionChanged")
    await eventually(reasons, lambda seen: seen[CheckKind.CONVERSION] == lost, str(lost))
    webhooks.converts = False
    broken = (F, "ConversionFailed")
    await eventually(reasons, lambda seen: seen[CheckKind.CONVERSION] == broken, str(broken))
    webhooks.converts, webhooks.delay = True, 1.3
    slow = (F, "WebhookSlow")
    await eventually(reasons, lambda seen: seen[CheckKind.WEBHOOKS] == slow, str(slow))
    webhooks.delay = 0
    await operator.install(webhooks.configuration(authority=loopback_tls("another")[1]), revision=3)
    wrong = (F, "WebhookCertificate")
    await eventually(reasons, lambda seen: seen[CheckKind.WEBHOOKS] == wrong, str(wrong))
