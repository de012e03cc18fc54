"""Certificates of webhooks that expire soon: warnings in the health of an operator."""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import Any

from kapsa.devcluster.faults import Answer, FaultRule
from kapsa.fleet.domain.health import OperatorHealth
from kapsa.runtime.testing import issue_certificate, make_authority
from tests.fleet.infrastructure.health.operator_fixture import NAMESPACE, OperatorFixture
from tests.fleet.infrastructure.health.webhook_server import WebhookServer

SECRET = f"Secret {NAMESPACE}/serving"


def tls_secret(operator: OperatorFixture, days: int) -> dict[str, Any]:
    """Return a TLS Secret whose certificate is valid for some days, from an authority that lives longer."""
    authority = make_authority("widgets", now=operator.now, lifetime=timedelta(days=365))
    pair = issue_certificate(
        authority, ["widgets.operators.svc"], now=operator.now, lifetime=timedelta(days=days)
    )
    content = {"tls.crt": pair.certificate, "tls.key": pair.key}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": "serving", "namespace": NAMESPACE},
        "data": {key: base64.b64encode(value).decode() for key, value in content.items()},
    }


def warnings(health: OperatorHealth) -> list[str]:
    assert health.certificates is not None
    return [each.partition(": ")[0] for each in health.certificates.warnings]


async def install(
    operator: OperatorFixture, webhooks: WebhookServer, *, days: int, authority: str | None = None
) -> None:
    """Install an operator with a webhook, whose serving certificate its controller mounts."""
    await operator.define()
    await operator.client.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}, force=True
    )
    await operator.client.apply(tls_secret(operator, days), force=True)
    await operator.install(
        webhooks.configuration(authority=authority),
        volumes=[{"name": "serving", "secret": {"secretName": "serving"}}],
    )


async def test_a_bundle_and_a_mounted_secret_that_expire_within_14_days_are_warnings(
    operator: OperatorFixture, webhooks: WebhookServer
) -> None:
    # The authority of the server is valid for a day.
    await install(operator, webhooks, days=20)
    health = await operator.observe()
    assert warnings(health) == ["caBundle of webhook widgets.example.com"]
    operator.pass_time(7 * 24 * 3600)
    assert warnings(await operator.observe()) == ["caBundle of webhook widgets.example.com", SECRET]
    assert health.certificates is not None
    assert "renew it, or calls of the webhook fail from then on" in health.certificates.warnings[0]


async def test_a_bundle_with_one_authority_that_is_good_for_longer_and_a_fresh_secret_are_no_warnings(
    operator: OperatorFixture, webhooks: WebhookServer
) -> None:
    next_one = make_authority("next", now=operator.now, lifetime=timedelta(days=365)).certificate.decode()
    await install(operator, webhooks, days=90, authority=webhooks.authority + next_one)
    assert warnings(await operator.observe()) == []


async def test_certificates_are_read_every_five_minutes_and_a_renewed_one_ends_its_warning(
    operator: OperatorFixture, webhooks: WebhookServer
) -> None:
    next_one = make_authority("next", now=operator.now, lifetime=timedelta(days=365)).certificate.decode()
    await install(operator, webhooks, days=10, authority=webhooks.authority + next_one)
    assert warnings(await operator.observe()) == [SECRET]
    await operator.client.apply(tls_secret(operator, 90), force=True)
    assert warnings(await operator.observe()) == [SECRET]
    operator.pass_time(301)
    assert warnings(await operator.observe()) == []


async def test_a_mounted_secret_that_is_not_there_is_no_warning(
    operator: OperatorFixture, webhooks: WebhookServer
) -> None:
    next_one = make_authority("next", now=operator.now, lifetime=timedelta(days=365)).certificate.decode()
    await install(operator, webhooks, days=10, authority=next_one)
    await operator.client.delete("v1/Secret", "serving", namespace=NAMESPACE)
    assert warnings(await operator.observe()) == []


async def test_a_reading_of_certificates_that_fails_ends_no_warning(
    busy_operator: OperatorFixture, webhooks: WebhookServer
) -> None:
    operator = busy_operator
    await install(operator, webhooks, days=10)
    expected = warnings(await operator.observe())
    assert SECRET in expected
    assert operator.cluster.faults is not None
    refused = Answer(code=400, reason="BadRequest", message="try later")
    resource = "validatingwebhookconfigurations"
    operator.cluster.faults.add(FaultRule(resource=resource, action=refused, times=0))
    operator.pass_time(301)
    assert warnings(await operator.observe()) == expected
