"""Webhooks on virtual time: the harness has the cluster call them without a socket."""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import Any

import pytest
from cryptography import x509

from kapsa.runtime import (
    AdmissionRequest,
    AdmissionResponse,
    ApiError,
    Context,
    Controller,
    Converter,
    CustomResource,
    Forbidden,
    InternalError,
    Lifetimes,
    MutatingWebhook,
    Operator,
    Spec,
    Status,
    ValidatingWebhook,
    Webhooks,
    allow,
    deny,
)
from kapsa.runtime.testing import Harness
from tests.runtime.sample_app import App, Recorder, app

pytestmark = pytest.mark.virtual_time

REGISTRATION = "admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration"


class Few(ValidatingWebhook[App]):
    async def validate(self, request: AdmissionRequest[App]) -> AdmissionResponse:
        if request.object.spec.replicas > 3:
            return deny("at most 3 replicas")
        return allow()


class Latest(MutatingWebhook[App]):
    async def mutate(self, request: AdmissionRequest[App]) -> AdmissionResponse:
        image = request.manifest["spec"]["image"]
        request.manifest["spec"]["image"] = image if ":" in image else f"{image}:latest"
        return allow()


def operator(**options: Any) -> Operator:
    webhooks = Webhooks(Few(), Latest(), service="shop-webhooks", **options)
    return Operator(controllers=[Recorder()], name="shop", webhooks=webhooks)


async def test_the_cluster_applies_the_decisions_and_changes_of_webhooks(harness: Harness) -> None:
    await harness.install(App)
    await harness.start(operator())
    await harness.settle()
    await harness.apply(app("web"))
    assert (await harness.get(App, "web")).spec.image == "nginx:latest"
    with pytest.raises(Forbidden, match="at most 3 replicas"):
        await harness.apply(app("web", replicas=4))
    assert (await harness.get(App, "web")).spec.replicas == 1


async def test_writes_are_rejected_while_the_operator_is_down(harness: Harness) -> None:
    await harness.install(App)
    await harness.start(operator())
    await harness.settle()
    await harness.kill()
    with pytest.raises(InternalError, match="connection refused"):
        await harness.apply(app("web"))
    await harness.start(operator())
    await harness.settle()
    await harness.apply(app("web"))


async def test_webhooks_served_from_a_laptop_are_registered_until_the_operator_stops(
    harness: Harness,
) -> None:
    def from_a_laptop() -> Operator:
        declared = Operator(
            controllers=[Recorder()],
            name="shop",
            leader_election="shop",
            webhooks=Webhooks(Few(), service="shop-webhooks"),
        )
        assert declared.webhooks is not None
        declared.webhooks.serve_from("https://laptop.example:8443")
        return declared

    await harness.install(App)
    await harness.start(from_a_laptop())
    await harness.settle()
    with pytest.raises(Forbidden, match="at most 3 replicas"):
        await harness.apply(app("web", replicas=4))
    await harness.stop()
    assert await harness.get(REGISTRATION, "shop", namespace="") is None
    await harness.apply(app("web", replicas=4))


async def test_a_kind_may_have_several_validating_webhooks(harness: Harness) -> None:
    class Named(ValidatingWebhook[App]):
        path = "/validate-names"

        async def validate(self, request: AdmissionRequest[App]) -> AdmissionResponse:
            return deny("not that name") if request.name == "evil" else allow()

    await harness.install(App)
    webhooks = Webhooks(Few(), Named(), service="shop-webhooks")
    await harness.start(Operator(controllers=[Recorder()], name="shop", webhooks=webhooks))
    await harness.settle()
    registered = await harness.get(REGISTRATION, "shop", namespace="")
    assert [each["name"] for each in registered["webhooks"]] == [
        "validate-app.example.com",
        "validate-names.example.com",
    ]
    with pytest.raises(Forbidden, match="not that name"):
        await harness.apply(app("evil"))
    with pytest.raises(Forbidden, match="at most 3 replicas"):
        await harness.apply(app("web", replicas=4))


async def test_any_replica_serves_webhooks(harness: Harness) -> None:
    await harness.install(App)
    await harness.start(operator(), name="one")
    await harness.start(operator(), name="two")
    await harness.settle()
    await harness.kill("one")
    with pytest.raises(Forbidden, match="at most 3 replicas"):
        await harness.apply(app("web", replicas=4))


async def test_a_hanging_webhook_times_out(harness: Harness) -> None:
    class Slow(ValidatingWebhook[App]):
        timeout_seconds = 5

        async def validate(self, request: AdmissionRequest[App]) -> AdmissionResponse:
            await harness.clock.sleep(3600)
            return allow()

    await harness.install(App)
    webhooks = Webhooks(Slow(), service="shop-webhooks")
    await harness.start(Operator(controllers=[Recorder()], name="shop", webhooks=webhooks))
    await harness.settle()
    before = harness.clock.monotonic()
    with pytest.raises(ApiError, match=r"validate-app\.example\.com did not respond within 4\.5 s"):
        await harness.apply(app("web"))
    assert harness.clock.monotonic() - before < 40  # with the client's retries


async def test_the_registered_bundle_trusts_the_served_certificate_through_every_rotation(
    harness: Harness,
) -> None:
    lifetimes = Lifetimes(authority=timedelta(hours=6), serving=timedelta(hours=2))
    await harness.install(App)
    await harness.start(operator(lifetimes=lifetimes, check_every=300.0))
    await harness.settle()
    served, bundles = set(), set()
    for _ in range(24):
        registered = await harness.get(REGISTRATION, "shop", namespace="")
        secret = await harness.get("v1/Secret", "shop-webhook-certificates")
        bundle = base64.b64decode(registered["webhooks"][0]["clientConfig"]["caBundle"])
        certificate = x509.load_pem_x509_certificate(base64.b64decode(secret["data"]["tls.crt"]))
        issuers = [ca for ca in x509.load_pem_x509_certificates(bundle) if ca.subject == certificate.issuer]
        assert issuers
        for issuer in issuers:
            certificate.verify_directly_issued_by(issuer)
        served.add(certificate.serial_number)
        bundles.add(bundle)
        await harness.clock.sleep(1800)
    assert len(served) > 6
    assert len(bundles) > 1
    await harness.apply(app("web"))


class OldSpec(Spec):
    size: int = 1


class NewSpec(Spec):
    replicas: int = 1


class OldThing(CustomResource[OldSpec, Status], group="example.com", version="v1alpha1", kind="Thing"):
    """A thing as it was."""


class Thing(CustomResource[NewSpec, Status], group="example.com", version="v1", hub=True):
    """A thing."""


class OldToNew(Converter[OldThing, Thing]):
    def to_hub(self, old: OldThing) -> Thing:
        return Thing(metadata=old.metadata, spec=NewSpec(replicas=old.spec.size))

    def from_hub(self, new: Thing) -> OldThing:
        return OldThing(metadata=new.metadata, spec=OldSpec(size=new.spec.replicas))


async def test_an_installed_operator_loses_nothing_that_is_written_before_it_runs(harness: Harness) -> None:
    class ThingRecorder(Controller[Thing]):
        async def reconcile(self, resource: Thing, ctx: Context[Thing]) -> None:
            """Do nothing: the conversion is what is tested."""

    shop = Operator(
        controllers=[ThingRecorder()],
        name="shop",
        webhooks=Webhooks(converters=[OldToNew()], service="shop-webhooks"),
    )
    old = {
        "apiVersion": "example.com/v1alpha1",
        "kind": "Thing",
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {"size": 4},
    }
    await harness.install(shop)
    with pytest.raises(ApiError, match="conversion webhook"):
        await harness.apply(old)
    await harness.start(shop)
    await harness.settle()
    await harness.apply(old)
    assert (await harness.get(Thing, "a")).spec.replicas == 4


async def test_versions_are_converted_on_virtual_time(harness: Harness) -> None:
    webhooks = Webhooks(converters=[OldToNew()], service="shop-webhooks")
    await harness.install(OldThing, Thing)
    await harness.start(Operator(controllers=[Recorder()], name="shop", webhooks=webhooks))
    await harness.settle()
    await harness.apply(
        {
            "apiVersion": "example.com/v1alpha1",
            "kind": "Thing",
            "metadata": {"name": "a", "namespace": "default"},
            "spec": {"size": 4},
        }
    )
    assert (await harness.get(Thing, "a")).spec.replicas == 4
