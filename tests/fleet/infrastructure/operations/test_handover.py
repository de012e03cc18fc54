"""The hand-over of blue-green: one controller stops before the other starts, and webhooks follow the one that runs."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from kapsa.adapters.testing.loopback_tls import loopback_tls
from kapsa.fleet.domain.health import CheckKind, Evidence, OperatorHealth
from kapsa.fleet.domain.rollout.releases import ReleaseRef
from kapsa.fleet.infrastructure.operations.handover.idle_marks import is_idle, rest
from kapsa.fleet.orchestrator.ports.cluster_operations import (
    ClusterNotReady,
    ClusterRefused,
    ReleaseActivity,
)
from kapsa.fleet.orchestrator.ports.leases import LeaseLost
from tests.eventually import eventually
from tests.fleet.infrastructure.operations.harness import CLUSTER, LimitedLease, Operations, lease, owned

DEPLOYMENT = "apps/v1/Deployment"
Manifest = dict[str, Any]


def controller(release: ReleaseRef, replicas: int = 2, **pod: Any) -> Manifest:
    labels = {"app": release.name}
    container = {"name": "manager", "image": "example.com/widget:1"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": release.name, "namespace": release.namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container], **pod}},
        },
    }


def lease_of(release: ReleaseRef, holder: str) -> Manifest:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "widget-leader", "namespace": release.namespace},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15},
    }


async def replicas(operations: Operations, release: ReleaseRef) -> int:
    live = await operations.client.get(DEPLOYMENT, release.name, namespace=release.namespace)
    return int(live["spec"]["replicas"])


async def activity(operations: Operations, release: ReleaseRef) -> ReleaseActivity:
    return await operations.under_test.activity(CLUSTER, release)


async def test_a_controller_is_stopped_and_started_with_the_replicas_that_it_had_and_helm_meets_no_conflict(
    operations: Operations,
) -> None:
    blue = operations.blue
    await operations.install(blue, controller(blue))
    await operations.client.scale(DEPLOYMENT, blue.name, 3, namespace=blue.namespace)  # by a person
    await eventually(lambda: activity(operations, blue), lambda seen: seen.pods == 3, "three pods")
    for _ in range(2):
        await operations.under_test.scale_down(CLUSTER, blue, lease())
    assert await replicas(operations, blue) == 0
    await eventually(lambda: activity(operations, blue), lambda seen: seen.stopped, "no pods")
    for _ in range(2):
        await operations.under_test.scale_up(CLUSTER, blue, lease())
    assert await replicas(operations, blue) == 3
    # Helm owns the number again: another one in the next chart does not conflict with the fleet.
    await operations.client.apply(owned(controller(blue, replicas=5), blue), field_manager="helm")
    assert await replicas(operations, blue) == 5


async def test_a_release_that_was_installed_idle_starts_with_the_replicas_of_its_chart(
    operations: Operations,
) -> None:
    green = operations.green
    await operations.install(green, rest(controller(green, replicas=4)))
    assert await replicas(operations, green) == 0
    await operations.under_test.scale_up(CLUSTER, green, lease())
    assert await replicas(operations, green) == 4


async def test_a_controller_counts_as_stopped_only_when_its_lease_is_released_or_no_longer_renewed(
    operations: Operations,
) -> None:
    blue = operations.blue
    await operations.install(blue, controller(blue, replicas=0))
    await operations.client.create(lease_of(blue, "widget-5f6d-x_1234"))
    await operations.client.create(
        {**lease_of(blue, "other-5f6d-x"), "metadata": {"name": "other", "namespace": blue.namespace}}
    )
    assert await activity(operations, blue) == ReleaseActivity(0, "widget-5f6d-x_1234")
    operations.seconds = 10
    renewed = {"spec": {"holderIdentity": "widget-5f6d-x_1234", "leaseTransitions": 1}}
    await operations.client.patch(
        "coordination.k8s.io/v1/Lease", "widget-leader", renewed, namespace=blue.namespace
    )
    assert not (await activity(operations, blue)).stopped
    operations.seconds = 20
    assert not (await activity(operations, blue)).stopped
    operations.seconds = 26
    assert (await activity(operations, blue)).stopped


async def test_a_lapsed_lease_scales_nothing_and_a_daemon_set_is_refused(operations: Operations) -> None:
    blue = operations.blue
    await operations.install(blue, controller(blue))
    with pytest.raises(LeaseLost):
        await operations.under_test.scale_down(CLUSTER, blue, LimitedLease(0))
    assert await replicas(operations, blue) == 2
    agent = {**controller(operations.green), "kind": "DaemonSet"}
    del agent["spec"]["replicas"]
    await operations.install(operations.green, agent)
    with pytest.raises(ClusterRefused, match=r"DaemonSet widget-green .* cannot be scaled to zero"):
        await operations.under_test.scale_down(CLUSTER, operations.green, lease())


async def test_a_forged_record_of_a_release_stops_nothing_of_others(operations: Operations) -> None:
    victim = ReleaseRef("victim", operations.blue.namespace)
    await operations.install(victim, controller(victim))
    # A tenant who may write Secrets in the namespace of the release names the controller of somebody else.
    await operations.install(operations.blue)
    await operations.forge(operations.blue, controller(victim))
    with pytest.raises(ClusterRefused, match="does not carry its annotations"):
        await operations.under_test.scale_down(CLUSTER, operations.blue, lease())
    assert await replicas(operations, victim) == 2


async def idle_health(operations: Operations) -> OperatorHealth:
    return await operations.under_test.validate_idle(CLUSTER, operations.green)


def problem(health: OperatorHealth) -> str:
    first = health.first_problem
    return first.reason if first else ""


async def test_an_idle_release_is_validated_before_anything_is_stopped(operations: Operations) -> None:
    green = operations.green
    assert (await idle_health(operations)).evidence is Evidence.UNKNOWN
    await operations.namespace(green.namespace)
    await operations.apply(
        operations.chart("sha256:green", operations.crd(operations.version("v1", storage=True))),
        following=green,
    )
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "widget", "namespace": green.namespace},
    }
    deployment = rest(controller(green, serviceAccountName="widget"))
    await operations.install(green, account, deployment)
    assert problem(await idle_health(operations)) == "MissingRights"
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": operations.mark},
        "rules": [{"apiGroups": [operations.group], "resources": ["widgets"], "verbs": ["*"]}],
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": operations.mark},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": operations.mark},
        "subjects": [{"kind": "ServiceAccount", "name": "widget", "namespace": green.namespace}],
    }
    await operations.install(green, role, binding, stored=False)
    health = await eventually(lambda: idle_health(operations), lambda seen: not problem(seen), "rights")
    assert (health.revision, health.chart_digest, health.evidence) == (1, "sha256:green", Evidence.HEALTHY)
    assert {each.kind for each in health.checks} == {
        CheckKind.PODS,
        CheckKind.WEBHOOKS,
        CheckKind.RESOURCES,
    }


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"containers": [{"name": "manager", "image": "example.com/Widget:1:2"}]}, "InvalidImageName"),
        ({"serviceAccountName": "missing"}, "PodRejected"),
    ],
    ids=["image", "account"],
)
async def test_a_controller_that_could_not_start_fails_before_the_other_is_stopped(
    operations: Operations, changes: Manifest, reason: str
) -> None:
    await operations.install(operations.green, rest(controller(operations.green, **changes)))
    health = await idle_health(operations)
    assert (problem(health), health.checks[0].conclusive) == (reason, True)


async def test_a_release_whose_controller_runs_already_is_not_idle(operations: Operations) -> None:
    await operations.install(operations.green, controller(operations.green))
    assert problem(await idle_health(operations)) == "NotIdle"


class Hook:
    """A webhook server: its address and authority, and the requests that it has answered."""

    def __init__(self, authority: str) -> None:
        self.authority = authority
        self.url = ""
        self.calls = 0

    async def answer(self, request: web.Request) -> web.Response:
        self.calls += 1
        review = await request.json()
        response = {"uid": review["request"]["uid"], "allowed": True}
        return web.json_response({**review, "request": None, "response": response})

    def configuration(self, operations: Operations, release: ReleaseRef) -> Manifest:
        rule = {
            "apiGroups": [operations.group],
            "apiVersions": ["*"],
            "resources": ["widgets"],
            "operations": ["CREATE", "UPDATE"],
        }
        bundle = base64.b64encode(self.authority.encode()).decode()
        webhook = {
            "name": "widgets.example.com",
            "clientConfig": {"url": self.url, "caBundle": bundle},
            "rules": [rule],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "failurePolicy": "Fail",
        }
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": f"{operations.mark}-{release.name}"},
            "webhooks": [webhook],
        }


@asynccontextmanager
async def serve() -> AsyncIterator[Hook]:
    context, authority = loopback_tls("widgets")
    hook = Hook(authority)
    application = web.Application()
    application.router.add_post("/", hook.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    hook.url = f"https://127.0.0.1:{runner.addresses[0][1]}/"
    try:
        yield hook
    finally:
        await runner.cleanup()


async def test_webhooks_follow_the_controller_that_runs_and_a_write_proves_it(operations: Operations) -> None:
    blue, green = operations.blue, operations.green
    await operations.apply(
        operations.chart("sha256:blue", operations.crd(operations.version("v1", storage=True)))
    )
    await operations.create_widgets(1, "v1")
    async with serve() as one, serve() as two:
        dead = Hook(one.authority)
        dead.url = "https://127.0.0.1:1/"
        await operations.install(blue, one.configuration(operations, blue))
        await operations.install(green, rest(two.configuration(operations, green)))
        switch = operations.under_test.switch_webhooks
        await switch(CLUSTER, green, blue, lease())
        await eventually(lambda: _calls(operations, one, two), lambda seen: seen == (0, 2), "green alone")
        assert await _idle(operations, blue, green) == (True, False)
        await switch(CLUSTER, blue, green, lease())
        await eventually(lambda: _calls(operations, one, two), lambda seen: seen == (2, 0), "blue alone")
        assert await _idle(operations, blue, green) == (False, True)
        broken = ReleaseRef("widget-broken", green.namespace)
        await operations.install(broken, rest(dead.configuration(operations, broken)))
        with pytest.raises(ClusterNotReady, match="does not answer"):
            await _until_active(operations, broken, blue)
        assert await _idle(operations, blue, broken) == (True, False)


async def _until_active(operations: Operations, release: ReleaseRef, other: ReleaseRef) -> None:
    """Switch until the API server has taken the webhook into use."""
    for _ in range(200):
        await operations.under_test.switch_webhooks(CLUSTER, release, other, lease())


async def _calls(operations: Operations, *hooks: Hook) -> tuple[int, ...]:
    """Return the calls that each webhook gets from one update and one create as dry runs."""
    for each in hooks:
        each.calls = 0
    kind = f"{operations.group}/v1/Widget"
    patch = {"metadata": {"annotations": {"touched": "yes"}}}
    await operations.client.patch(kind, "w000", patch, namespace="default", dry_run=True)
    body = {
        "apiVersion": f"{operations.group}/v1",
        "kind": "Widget",
        "metadata": {"name": "probe", "namespace": "default"},
    }
    await operations.client.create(body, dry_run=True)
    return tuple(each.calls for each in hooks)


async def _idle(operations: Operations, *releases: ReleaseRef) -> tuple[bool, ...]:
    kind = "admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration"
    names = [f"{operations.mark}-{each.name}" for each in releases]
    live = [await operations.client.get(kind, name) for name in names]
    return tuple(all(is_idle(each) for each in config["webhooks"]) for config in live)


async def test_blue_keeps_conversion_and_storage_until_the_switch_and_gets_them_back(
    operations: Operations,
) -> None:
    blue, green = operations.blue, operations.green
    await operations.apply(
        operations.chart("sha256:blue", operations.crd(operations.version("v1", storage=True)))
    )
    await operations.create_widgets(1, "v1")
    versions = (operations.version("v1"), operations.version("v2", storage=True))
    await operations.apply(operations.chart("sha256:green", operations.crd(*versions)), following=green)
    await operations.install(blue)
    await operations.install(green)
    assert await _storage(operations) == "v1"
    await operations.under_test.switch_webhooks(CLUSTER, green, blue, lease())
    assert await _storage(operations) == "v2"
    await operations.under_test.switch_webhooks(CLUSTER, blue, green, lease())
    assert await _storage(operations) == "v1"
    await operations.revert("sha256:green")
    assert await _storage(operations) == "v1"
    assert await operations.content("v2") == await operations.content("v1")


async def _storage(operations: Operations) -> str:
    crd = await operations.live_crd()
    return next(str(each["name"]) for each in crd["spec"]["versions"] if each["storage"])
