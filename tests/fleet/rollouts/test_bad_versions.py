"""Bad versions, each caught by its own check and taken back without a person."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Any

import msgspec
import pytest

from kapsa.adapters.testing.loopback_tls import loopback_tls
from kapsa.fleet.settings import FleetSettings
from kapsa.fleet.testing.sample_chart import GADGET, GROUP, ControllerBehaviour, gadget_crd
from kapsa.fleet.testing.simulated_controller import LEASE
from kapsa.runtime import Client
from tests.eventually import eventually
from tests.fleet.infrastructure.health.webhook_server import WebhookServer, webhook_server
from tests.fleet.rollouts.live_fleet import NAMESPACE, SECONDS, LiveFleet, live_fleet, sample_chart

TWO = {"dev-1": "Dev", "staging-1": "Staging"}
THREE = {"dev-1": "Dev", "dev-2": "Dev", "staging-1": "Staging"}
GADGETS = 20
LIMIT = 180
"""Seconds from the third failed check to the end of the rollback."""


class Webhooks(msgspec.Struct, frozen=True):
    """A webhook server that works, and one that does not."""

    good: WebhookServer
    bad: WebhookServer


class BadVersion(msgspec.Struct, frozen=True):
    """A version that is bad in one way, and how it is caught."""

    name: str
    reason: str | tuple[str, ...]
    """The start of the reason, which names the check."""
    chart: Callable[[Webhooks], bytes]
    soak: str = "PT5S"


def webhook(server: WebhookServer, authority: str | None = None) -> str:
    """Return the template of a validating webhook for Gadgets."""
    rule = {"apiGroups": [GROUP], "apiVersions": ["*"], "resources": ["gadgets"]}
    entry = {
        "name": f"gadgets.{GROUP}",
        "clientConfig": server.client_config("validate", authority),
        "rules": [{**rule, "operations": ["CREATE", "UPDATE"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 10,
    }
    configuration = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "{{ .Release.Name }}"},
        "webhooks": [entry],
    }
    return json.dumps(configuration)


def converted_crd(server: WebhookServer) -> dict[str, Any]:
    """Return the CRD with a second version, converted by a webhook."""
    crd = gadget_crd()
    (version,) = crd["spec"]["versions"]
    crd["spec"]["versions"] = [version, {**version, "name": "v2", "storage": False}]
    crd["spec"]["conversion"] = server.conversion()
    return crd


def behaving(behaviour: ControllerBehaviour) -> Callable[[Webhooks], bytes]:
    return lambda _: sample_chart("2.0.0", behaviour)


def with_webhook(pick: Callable[[Webhooks], str]) -> Callable[[Webhooks], bytes]:
    return lambda servers: sample_chart("2.0.0", files={"templates/webhook.yaml": pick(servers)})


BAD = [
    BadVersion("crashes", "CrashLoopBackOff", behaving(ControllerBehaviour.CRASHES)),
    BadVersion("image", ("ErrImagePull", "ImagePullBackOff"), behaving(ControllerBehaviour.NO_IMAGE)),
    BadVersion("breaks-some", "ResourcesFailing", behaving(ControllerBehaviour.BREAKS_SOME)),
    # A controller may renew its Lease once before it stops working: the soak must outlast the Lease.
    BadVersion("idle", "LeaseNotRenewed", behaving(ControllerBehaviour.IDLE), soak="PT1M"),
    BadVersion(
        "wrong-ca",
        "WebhookCertificate",
        with_webhook(lambda servers: webhook(servers.good, loopback_tls("another")[1])),
    ),
    BadVersion("slow-webhook", "WebhookSlow", with_webhook(lambda servers: webhook(servers.bad))),
    BadVersion(
        "conversion",
        "Conversion",
        lambda servers: sample_chart("2.0.0", crd=converted_crd(servers.bad)),
    ),
]

pytestmark = pytest.mark.timeout(1200)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("bad", BAD, ids=[each.name for each in BAD])
async def test_a_bad_version_is_caught_by_its_own_check_and_every_resource_stays_as_it_was(
    settings: FleetSettings, bad: BadVersion, record_property: Callable[[str, object], None]
) -> None:
    async with AsyncExitStack() as stack:
        servers = Webhooks(*[await stack.enter_async_context(webhook_server()) for _ in range(2)])
        servers.bad.delay, servers.bad.converts = 1.5, False
        fleet = await stack.enter_async_context(live_fleet(settings, TWO))
        first = sample_chart("1.0.0", files={"templates/webhook.yaml": webhook(servers.good)})
        await fleet.register_operator(first, bad.chart(servers))
        await fleet.finish(await fleet.deploy("1.0.0", "Direct"))
        await fleet.create_gadgets(GADGETS)
        await fleet.await_reconciled()
        before = await fleet.content()

        halves = {"percentages": [50, 100], "evaluationPeriod": bad.soak}
        deployment = await fleet.deploy("2.0.0", "Canary", halves)
        ended = await fleet.finish(deployment, "RolledBack")
        caught, untouched = ended["clusters"]
        assert (caught["state"], untouched["state"]) == ("RolledBack", "Skipped"), await fleet.story(
            deployment
        )
        assert caught["reason"].startswith(bad.reason), caught
        assert await fleet.versions() == dict.fromkeys(TWO, "1.0.0")
        assert await fleet.content() == before
        await fleet.await_reconciled()
        seconds = await rollback_seconds(fleet, ended, caught["cluster"])
        record_property("sweep", f"{bad.name}: back {seconds:.1f} s after the third failed check")
        assert seconds < LIMIT, await fleet.story(deployment)


@pytest.mark.long
@pytest.mark.parametrize(
    ("behaviour", "cause"),
    [
        (ControllerBehaviour.BREAKS_SOME, "newly not current"),
        (ControllerBehaviour.CRASHES, "crashes in a loop"),
    ],
)
async def test_a_bad_version_is_back_within_three_minutes_of_its_third_failed_check_on_finished_stages_too(
    settings: FleetSettings,
    record_property: Callable[[str, object], None],
    behaviour: ControllerBehaviour,
    cause: str,
) -> None:
    checks = msgspec.structs.replace(settings, health_check_seconds=10)
    async with live_fleet(checks, TWO) as fleet:
        await fleet.register_operator(sample_chart("1.0.0"), sample_chart("2.0.0"))
        await fleet.finish(await fleet.deploy("1.0.0", "Direct"))
        await fleet.create_gadgets(GADGETS)
        await fleet.await_reconciled()
        before = await fleet.content()
        bad = {"environmentValues": {"Staging": {"behaviour": behaviour}}}
        status, answer = await fleet.admin.call("PATCH", "/operators/gadget-operator", bad)
        assert status == 200, answer

        halves = {"percentages": [50, 100], "evaluationPeriod": "PT1S"}
        deployment = await fleet.deploy("2.0.0", "Canary", halves)
        ended = await fleet.finish(deployment, "RolledBack")
        assert [each["state"] for each in ended["clusters"]] == ["RolledBack"] * 2, await fleet.story(
            deployment
        )
        assert await fleet.versions() == dict.fromkeys(TWO, "1.0.0")
        assert await fleet.content() == before
        seconds = await rollback_seconds(fleet, ended, "staging-1", cause=cause)
        record_property(
            "sweep",
            f"{behaviour}: a rollback of two stages took {seconds:.1f} s after the third failed check",
        )
        assert seconds < LIMIT, await fleet.story(deployment)


@pytest.mark.long
async def test_a_version_that_keeps_its_lease_and_reconciles_nothing_is_back_once_resources_change(
    settings: FleetSettings, record_property: Callable[[str, object], None]
) -> None:
    async with live_fleet(settings, TWO) as fleet:
        bad = sample_chart("2.0.0", ControllerBehaviour.IGNORES)
        await fleet.register_operator(sample_chart("1.0.0"), bad)
        await fleet.finish(await fleet.deploy("1.0.0", "Direct"))
        await fleet.create_gadgets(GADGETS)
        await fleet.await_reconciled()

        halves = {"percentages": [50, 100], "evaluationPeriod": "PT10M"}
        deployment = await fleet.deploy("2.0.0", "Canary", halves)
        await eventually(
            lambda: leading_version(fleet.clients["dev-1"]),
            lambda version: version == "2.0.0",
            "the new version to lead",
            seconds=SECONDS,
        )
        changed = ("g-000", "g-001")  # a tenth
        for name in changed:
            patch = {"spec": {"color": "red"}}
            await fleet.clients["dev-1"].patch(GADGET, name, patch, namespace="default")
        before = await fleet.content()
        ended = await fleet.finish(deployment, "RolledBack")
        caught, untouched = ended["clusters"]
        assert (caught["state"], untouched["state"]) == ("RolledBack", "Skipped"), await fleet.story(
            deployment
        )
        assert caught["reason"] == "NotReconciled", caught
        assert await fleet.versions() == dict.fromkeys(TWO, "1.0.0")
        assert await fleet.content() == before
        for name in changed:
            await eventually(
                lambda name=name: fleet.clients["dev-1"].get(GADGET, name, namespace="default"),
                lambda each: each["status"]["observedGeneration"] == each["metadata"]["generation"],
                f"{name} to be reconciled by the version before",
                seconds=SECONDS,
            )
        seconds = await rollback_seconds(fleet, ended, caught["cluster"])
        record_property("sweep", f"ignores: back {seconds:.1f} s after the third failed check")
        assert seconds < LIMIT, await fleet.story(deployment)


async def leading_version(client: Client) -> str:
    """Return the version of the pod that holds the Lease of the controller; empty if none does."""
    lease = await client.get("coordination.k8s.io/v1/Lease", LEASE, namespace=NAMESPACE)
    holder = lease["spec"]["holderIdentity"].partition("_")[0]
    pods = (await client.list("v1/Pod", namespace=NAMESPACE)).items
    labels = (each["metadata"]["labels"] for each in pods if each["metadata"]["name"] == holder)
    return next((each["app.kubernetes.io/version"] for each in labels), "")


async def rollback_seconds(
    fleet: LiveFleet, ended: dict[str, Any], cluster: str, *, cause: str = ""
) -> float:
    """Return the time from the check that failed the gate to the end of the rollback, as both were recorded."""
    deployment = ended["deployment"]
    history = (await fleet.admin.get(f"/deployments/{deployment['id']}/events"))["items"]
    failures = [
        each for each in history if each["cluster"] == cluster and "Validate → Failed" in each["message"]
    ]
    assert len(failures) == 1, await fleet.story(deployment["id"])
    assert cause in failures[0]["message"], failures
    first, last = (datetime.fromisoformat(each) for each in (failures[0]["at"], deployment["finishedAt"]))
    return (last - first).total_seconds()


@pytest.mark.real
@pytest.mark.parametrize(
    ("behaviour", "clusters"),
    [(ControllerBehaviour.CRASHES, TWO), (ControllerBehaviour.BREAKS_SOME, THREE)],
    ids=["crashes-on-two", "breaks-some-on-three"],
)
async def test_a_canary_reaches_real_control_planes_and_a_bad_version_is_taken_back(
    settings: FleetSettings,
    behaviour: ControllerBehaviour,
    clusters: dict[str, str],
    record_property: Callable[[str, object], None],
) -> None:
    async with live_fleet(settings, clusters, engine="real") as fleet:
        await fleet.register_operator(sample_chart("1.0.0"), sample_chart("2.0.0", behaviour))
        stages = {"percentages": [30, 60, 100], "evaluationPeriod": "PT5S"}
        done = await fleet.finish(await fleet.deploy("1.0.0", "Canary", stages))
        assert sum(len(stage["clusters"]) for stage in done["deployment"]["stages"]) == len(clusters)
        assert {each["state"] for each in done["clusters"]} == {"Healthy"}
        await fleet.create_gadgets(GADGETS)
        await fleet.await_reconciled()
        before = await fleet.content()
        bad = await fleet.deploy("2.0.0", "Canary", stages)
        ended = await fleet.finish(bad, "RolledBack")
        states = [each["state"] for each in ended["clusters"]]
        assert states == ["RolledBack"] + ["Skipped"] * (len(clusters) - 1), await fleet.story(bad)
        assert await fleet.versions() == dict.fromkeys(clusters, "1.0.0")
        assert await fleet.content() == before
        await fleet.await_reconciled()
        seconds = await rollback_seconds(fleet, ended, ended["clusters"][0]["cluster"])
        record_property("sweep", f"{behaviour}, real: back {seconds:.1f} s after the third failed check")
        assert seconds < LIMIT, await fleet.story(bad)
