"""Trials of manifests on the API server of the engine under test."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
import yaml

from kapsa.devcluster import DevCluster
from kapsa.fleet.domain.rollout.deployments import ConflictPolicy
from kapsa.fleet.domain.rollout.plans import FieldConflict
from kapsa.fleet.domain.rollout.releases import ReleaseRef
from kapsa.fleet.infrastructure.preflight.manifest_trials import DryRunTrials
from kapsa.fleet.orchestrator.ports.clusters import ClusterUnreachable
from kapsa.fleet.orchestrator.ports.trials import PresentRelease, TrialReport, TrialRequest
from kapsa.runtime import ApiStatus, Client, TooManyRequests
from tests.eventually import eventually
from tests.fleet.charts import crd, operator_chart

CLUSTER = uuid.uuid4()
RELEASE = ReleaseRef("widget", "widgets")
DEPLOYMENT = "apps/v1/Deployment"
OWNED = {
    "labels": {"app.kubernetes.io/managed-by": "Helm"},
    "annotations": {"meta.helm.sh/release-name": "widget", "meta.helm.sh/release-namespace": "widgets"},
}


def deployment(image: str = "registry.example.com/widget:1", **spec: Any) -> dict[str, Any]:
    labels = {"app": "widget"}
    pod = {"containers": [{"name": "main", "image": image}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "widget"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
            **spec,
        },
    }


def config(name: str = "settings", /, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def manifest(*objects: dict[str, Any]) -> bytes:
    """Return a manifest as helm writes it: each document has a comment with its template."""
    return b"".join(
        b"---\n# Source: widget/templates/%d.yaml\n%s" % (number, yaml.safe_dump(each).encode())
        for number, each in enumerate(objects)
    )


class Cluster:
    """A cluster with the namespace of the release, and trials on it."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def install(self, *objects: dict[str, Any]) -> PresentRelease:
        """Apply objects as helm does."""
        for each in objects:
            owned = {**each, "metadata": {**each["metadata"], **OWNED, "namespace": "widgets"}}
            await self.client.apply(owned, field_manager="helm")
        return PresentRelease(manifest(*objects).decode())

    async def spec(self) -> tuple[int, dict[str, Any]]:
        """Return generation and spec of the Deployment. Its status changes with its pods."""
        live = await self.client.get(DEPLOYMENT, "widget", namespace="widgets")
        return live["metadata"]["generation"], live["spec"]

    async def attempt(self, content: bytes, **changes: Any) -> TrialReport:
        @asynccontextmanager
        async def connect(_: uuid.UUID) -> AsyncIterator[Client]:
            yield self.client

        defaults: dict[str, Any] = {"release": RELEASE, "on_conflict": ConflictPolicy.FAIL}
        request = TrialRequest(cluster_id=CLUSTER, manifest=content, **{**defaults, **changes})
        return await DryRunTrials(connect).attempt(request)


@pytest_asyncio.fixture
async def target(cluster: DevCluster) -> AsyncIterator[Cluster]:
    async with Client.connect(kubeconfig=cluster.kubeconfig) as client:
        # The real cluster is shared, and the namespace of the last test may still be on its way out.
        await eventually(lambda: _namespaces(client), lambda names: "widgets" not in names, "no namespace")
        await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "widgets"}})
        yield Cluster(client)


async def _namespaces(client: Client) -> list[str]:
    return [each["metadata"]["name"] for each in (await client.list("v1/Namespace")).items]


def checks(report: TrialReport) -> list[str]:
    return [each.check for each in report.problems]


@pytest.mark.parametrize("policy", ConflictPolicy)
async def test_a_field_of_another_manager_is_named_and_left_out_of_the_manifest_under_leave(
    target: Cluster, policy: ConflictPolicy
) -> None:
    before = await target.install(deployment(), config(a="1"))
    await target.client.patch(
        DEPLOYMENT, "widget", {"spec": {"replicas": 5}}, namespace="widgets", field_manager="autoscaler"
    )
    live = await target.spec()
    new = manifest(deployment("registry.example.com/widget:2", replicas=2), config(a="2"))
    report = await target.attempt(new, replaced=before, running=before, on_conflict=policy)
    assert report.conflicts == (FieldConflict("Deployment widgets/widget", ".spec.replicas", "autoscaler"),)
    assert report.problems == ()
    assert await target.spec() == live
    if policy is not ConflictPolicy.LEAVE:
        assert report.manifest == new
        return
    applied, settings = yaml.safe_load_all(report.manifest)
    expected = deployment("registry.example.com/widget:2")
    del expected["spec"]["replicas"]
    assert applied == expected
    assert settings == config(a="2")
    assert report.manifest.endswith(manifest(deployment(), config(a="2")).split(b"---")[2])
    assert b"# Source: widget/templates/0.yaml" in report.manifest
    again = await target.attempt(new, replaced=before, running=before, on_conflict=policy)
    assert again.manifest == report.manifest
    assert not (await target.attempt(report.manifest, replaced=before, running=before)).conflicts


async def test_what_others_have_added_to_a_pod_template_is_named_and_stays(target: Cluster) -> None:
    before = await target.install(deployment(), config(a="1"))
    added = {"spec": {"template": {"metadata": {"annotations": {"wave.example.com/hash": "1"}}}}}
    await target.client.patch(DEPLOYMENT, "widget", added, namespace="widgets", field_manager="wave")
    new = manifest(deployment("registry.example.com/widget:2"), config(a="2"))
    report = await target.attempt(new, replaced=before, running=before)
    (notice,) = report.notices
    assert notice.startswith("Deployment widgets/widget: wave")
    assert (
        "has set .spec.template.metadata.annotations.wave.example.com/hash, which the chart does not"
        in notice
    )
    field = ".spec.template.metadata.annotations.wave.example.com/hash"
    assert report.additions == (FieldConflict("Deployment widgets/widget", field, "wave"),)
    assert (report.conflicts, report.problems) == ((), ())


async def test_fields_that_helm_itself_set_before_server_side_apply_are_no_conflict(target: Cluster) -> None:
    content = config(a="1")
    owned = {**content, "metadata": {**content["metadata"], **OWNED, "namespace": "widgets"}}
    await target.client.create(owned, field_manager="helm")
    before = PresentRelease(manifest(content).decode(), client_side=True)
    report = await target.attempt(manifest(config(a="2")), replaced=before, running=before)
    assert (report.conflicts, report.problems) == ((), ())


async def test_an_object_that_belongs_to_another_release_or_to_none_is_refused(target: Cluster) -> None:
    foreign = config("theirs", a="1")
    foreign["metadata"] |= {
        "namespace": "widgets",
        "annotations": {"argocd.argoproj.io/tracking-id": "shop:/x"},
    }
    await target.client.create(foreign)
    plain = config("plain", a="1")
    await target.client.create({**plain, "metadata": {**plain["metadata"], "namespace": "widgets"}})
    report = await target.attempt(manifest(config("theirs"), config("plain"), config("new")))
    assert checks(report) == ["OtherOwner", "OtherOwner"]
    assert "managed by Argo CD (Application shop)" in report.problems[0].message
    assert "ConfigMap widgets/plain exists and belongs to no release" in report.problems[1].message


async def test_a_denial_of_admission_and_an_invalid_object_are_problems_of_the_plan(target: Cluster) -> None:
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "no-latest"},
        "spec": {
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "widgets"}},
                "resourceRules": [
                    {
                        "apiGroups": ["apps"],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE", "UPDATE"],
                        "resources": ["deployments"],
                    }
                ],
            },
            "validations": [
                {
                    "expression": "!object.spec.template.spec.containers.exists(c, c.image.endsWith(':latest'))",
                    "message": "images need a version",
                }
            ],
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "no-latest"},
        "spec": {"policyName": "no-latest", "validationActions": ["Deny"]},
    }
    await target.client.create(policy)
    await target.client.create(binding)
    wrong = config("Wrong_Name")
    content = manifest(deployment("widget:latest"), wrong)
    # A policy takes effect a moment after it is created.
    report = await eventually(
        lambda: target.attempt(content), lambda each: "AdmissionDenied" in checks(each), "a denial"
    )
    assert checks(report) == ["AdmissionDenied", "InvalidObject"]
    assert "images need a version" in report.problems[0].message
    assert "Deployment widgets/widget" in report.problems[0].message


async def test_missing_kinds_and_namespaces_are_problems_unless_the_release_brings_them(
    target: Cluster,
) -> None:
    monitor = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": {"name": "widget"},
    }
    widget = {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "one"},
        "spec": {"size": 1},
    }
    elsewhere = config("x")
    elsewhere["metadata"]["namespace"] = "elsewhere"
    report = await target.attempt(manifest(monitor, widget, elsewhere), crds=(crd(),))
    assert checks(report) == ["MissingKind", "MissingNamespace"]
    assert "ServiceMonitor of monitoring.coreos.com/v1" in report.problems[0].message
    assert "namespace elsewhere" in report.problems[1].message


async def test_a_crd_that_the_api_server_would_reject_is_a_problem_of_the_plan(target: Cluster) -> None:
    costly = crd("gadgets")
    schema = costly["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    items = {"type": "array", "items": {"type": "array", "items": {"type": "string"}}}
    rule = {"rule": "self.names.all(a, self.names.all(b, a.all(c, b.all(d, c == d))))"}
    schema["properties"]["spec"] = {
        "type": "object",
        "properties": {"names": items},
        "x-kubernetes-validations": [rule],
    }
    report = await target.attempt(manifest(crd(), config()), crds=(costly,))
    (problem,) = report.problems
    assert problem.check == "CrdInvalid"
    assert "gadgets.example.com" in problem.message
    assert "budget" in problem.message


async def test_objects_are_checked_before_their_namespace_exists(target: Cluster) -> None:
    release = ReleaseRef("widget", "not-yet")
    report = await target.attempt(manifest(deployment(), config(a="1")), release=release)
    assert (report.problems, report.notices) == ((), ())
    invalid = deployment()
    invalid["spec"]["template"]["spec"]["containers"] = []
    report = await target.attempt(manifest(invalid), release=release)
    assert checks(report) == ["InvalidObject"]


async def test_the_diff_shows_what_changes_and_nothing_secret(target: Cluster) -> None:
    def secret(password: str) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "login"},
            "stringData": {"password": password, "user": "app"},
        }

    old = await target.install(
        secret("old-password"), config(a="1", dsn="db://app:old-password@db", gone="x")
    )
    old = PresentRelease(old.manifest, {"db": {"password": "old-password"}})
    new = manifest(secret("new-password"), config(a="2", dsn="db:app new-password"), config("added"))
    report = await target.attempt(
        new,
        replaced=old,
        running=old,
        values={"db": {"password": "new-password"}},
        secret_paths=frozenset({("db", "password")}),
    )
    assert "old-password" not in report.diff
    assert "new-password" not in report.diff
    assert "-  password: •••••• (before)\n+  password: •••••• (after)\n   user: ••••••" in report.diff
    assert "-  a: '1'\n" in report.diff
    assert "+  a: '2'\n" in report.diff
    assert "--- /dev/null\n+++ ConfigMap widgets/added" in report.diff


async def test_a_release_that_helm_could_not_store_is_refused(target: Cluster) -> None:
    small, large = operator_chart(), operator_chart(files={"files/noise.bin": os.urandom(900_000)})
    assert (await target.attempt(manifest(config()), chart=small)).problems == ()
    report = await target.attempt(manifest(config()), chart=large)
    assert checks(report) == ["ReleaseTooLarge"]


async def test_a_cluster_that_does_not_answer_is_unreachable() -> None:
    @asynccontextmanager
    async def refuse(_: uuid.UUID) -> AsyncIterator[Client]:
        raise TimeoutError
        yield

    request = TrialRequest(
        cluster_id=CLUSTER, release=RELEASE, manifest=manifest(config()), on_conflict=ConflictPolicy.FAIL
    )
    with pytest.raises(ClusterUnreachable, match="did not answer within 120 seconds"):
        await DryRunTrials(refuse).attempt(request)


@pytest.mark.parametrize("namespace", ["widgets", "not-yet"])
async def test_a_busy_api_server_is_unreachable_and_no_problem_of_the_plan(
    target: Cluster, monkeypatch: pytest.MonkeyPatch, namespace: str
) -> None:
    def busy_for_dry_runs(act: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def answer(*arguments: Any, **options: Any) -> Any:
            if options.get("dry_run"):
                raise TooManyRequests(ApiStatus(message="too many requests", code=429))
            return await act(*arguments, **options)

        return answer

    for verb in ("create", "apply"):
        monkeypatch.setattr(target.client, verb, busy_for_dry_runs(getattr(target.client, verb)))
    with pytest.raises(ClusterUnreachable, match="too many requests"):
        await target.attempt(manifest(config()), release=ReleaseRef("widget", namespace))


def hook(name: str, events: str, **data: str) -> dict[str, Any]:
    """Return a ConfigMap that Helm creates at an event of the release."""
    made = config(name, **data)
    return {**made, "metadata": {**made["metadata"], "annotations": {"helm.sh/hook": events}}}


async def test_hooks_are_tried_when_their_event_is_due_and_left_alone_otherwise(target: Cluster) -> None:
    content = manifest(
        hook("Wrong_At_Install", "pre-install"),
        hook("Wrong_At_Upgrade", "post-upgrade,post-rollback"),
        hook("Wrong_At_Test", "test"),
        hook("fine", "pre-install,pre-upgrade"),
    )
    install = await target.attempt(content)
    assert [each.check for each in install.problems] == ["InvalidObject"]
    assert "Wrong_At_Install" in install.problems[0].message
    before = PresentRelease(manifest(config()).decode())
    upgrade = await target.attempt(content, replaced=before, running=before)
    assert [each.check for each in upgrade.problems] == ["InvalidObject"]
    assert "Wrong_At_Upgrade" in upgrade.problems[0].message
    assert install.manifest == upgrade.manifest == content
    left = [
        each["metadata"]["name"]
        for each in (await target.client.list("v1/ConfigMap", namespace="widgets")).items
    ]
    assert "fine" not in left, "a trial creates nothing"


async def test_a_hook_of_the_last_time_belongs_to_no_release_and_is_not_in_the_way(target: Cluster) -> None:
    made = hook("migrate", "pre-upgrade")
    await target.client.create({**made, "metadata": {**made["metadata"], "namespace": "widgets"}})
    before = PresentRelease(manifest(config()).decode())
    report = await target.attempt(
        manifest(hook("migrate", "pre-upgrade", step="2")), replaced=before, running=before
    )
    assert (report.problems, report.conflicts) == ((), ())


async def test_a_webhook_that_cannot_be_called_is_named_as_a_failure_of_admission(target: Cluster) -> None:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}
    webhook = {
        "name": "away.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/validate"},
        "rules": [rule],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "widgets"}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 2,
    }
    configuration = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "away"},
        "webhooks": [webhook],
    }
    await target.client.create(configuration)
    try:
        # A webhook takes effect a moment after it is created.
        report = await eventually(
            lambda: target.attempt(manifest(config(a="1"))), lambda each: bool(each.problems), "a problem"
        )
    finally:
        await target.client.delete("admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration", "away")
    assert checks(report) == ["AdmissionFailed"]
    assert "ConfigMap widgets/settings" in report.problems[0].message
    assert "away.example.com" in report.problems[0].message
