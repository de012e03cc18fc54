"""Failures of environments: reported clearly, isolated, and with the previous version serving."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from kapsa.adapters.errors import AuthFailed, Refused, Unreachable
from kapsa.environments.names import APPROVED_COMMIT, OWNER_UID
from kapsa.environments.resources import Environment, Project
from kapsa.environments.settings import Settings
from tests.environments.fakes import commit_of, deployment, service
from tests.environments.sandbox import Sandbox
from tests.environments.tenant import ALL_REPOSITORIES, BUILD, Tenant, image, secret, shared_registry

pytestmark = pytest.mark.virtual_time


async def value_of(tenant: Tenant, name: str, key: str, environment: str = "one") -> str | None:
    stored = await tenant.sandbox.get("v1/Secret", name, namespace=tenant.namespace_of(environment))
    return base64.b64decode(stored["data"][key]).decode() if stored is not None else None


# -- namespace -----------------------------------------------------------------------------------------------


async def test_a_namespace_of_somebody_else_is_refused_and_left_alone(tenant: Tenant) -> None:
    await tenant.project()
    theirs = await tenant.sandbox.make_namespace(tenant.namespace_of("one"), tenant="theirs")
    await tenant.environment()
    failed = await tenant.reaches("one", "NamespaceReady", "False", "NamespaceNotOurs")
    assert failed.status.phase == "Failed"
    assert failed.status.failure is not None
    assert failed.status.failure.step == "namespace"
    await tenant.client.delete(Environment, "one", namespace=tenant.home)
    await tenant.sandbox.gone(Environment, "one", namespace=tenant.home)
    left = await tenant.sandbox.get("v1/Namespace", tenant.namespace_of("one"), namespace="")
    assert left["metadata"]["uid"] == theirs["metadata"]["uid"]
    assert "deletionTimestamp" not in left["metadata"]


async def test_once_that_namespace_is_gone_the_environment_comes_up(tenant: Tenant) -> None:
    await tenant.project()
    await tenant.sandbox.make_namespace(tenant.namespace_of("one"))
    await tenant.environment()
    await tenant.reaches("one", "NamespaceReady", "False", "NamespaceNotOurs")
    await tenant.client.delete("v1/Namespace", tenant.namespace_of("one"))
    await tenant.ready()


async def test_an_environment_elsewhere_than_in_its_projects_namespace_gets_nothing(tenant: Tenant) -> None:
    await tenant.project()
    await tenant.sandbox.make_namespace("elsewhere")
    spec = {"projectRef": {"name": "app"}, "source": {"commitSha": commit_of("one")}}
    await tenant.sandbox.apply(Environment, "one", spec, namespace="elsewhere")
    await tenant.clock.sleep(60)
    environment = await tenant.client.get(Environment, "one", namespace="elsewhere")
    condition = environment.status.condition("Ready")
    assert condition is not None
    assert condition.reason == "ProjectMissing"
    assert environment.status.namespace is None


async def test_a_namespace_that_does_not_go_is_reported_with_what_blocks_it(tenant: Tenant) -> None:
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    held = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "held", "finalizers": ["example.com/hold"]},
    }
    await tenant.client.create(held, namespace=tenant.namespace_of("one"))
    await tenant.client.delete(Environment, "one", namespace=tenant.home)
    await tenant.clock.sleep(120)
    waiting = await tenant.get()
    condition = waiting.status.condition("Ready")
    assert condition is not None
    assert condition.reason == "Terminating"
    assert "example.com/hold" in condition.message
    assert (waiting.status.phase, waiting.status.url) == ("Pending", None)
    await tenant.sandbox.harness.assert_event("DeletionBlocked", text="example.com/hold")
    patch = {"metadata": {"finalizers": None}}
    await tenant.client.patch("v1/ConfigMap", "held", patch, namespace=tenant.namespace_of("one"))
    await tenant.sandbox.gone(Environment, "one", namespace=tenant.home, seconds=120)


async def test_an_environment_is_deleted_even_if_its_project_is_gone(tenant: Tenant) -> None:
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    await tenant.client.delete(Project, "app", namespace=tenant.name)
    await tenant.client.patch(Project, "app", {"metadata": {"finalizers": None}}, namespace=tenant.name)
    await tenant.client.delete(Environment, "one", namespace=tenant.home, missing_ok=True)
    await tenant.sandbox.gone(Environment, "one", namespace=tenant.home, seconds=300)
    await tenant.sandbox.gone("v1/Namespace", tenant.namespace_of("one"), namespace="", seconds=300)


# -- policy --------------------------------------------------------------------------------------------------


async def test_quota_limits_and_network_policies_are_put_back(tenant: Tenant) -> None:
    await tenant.project(resources={"defaultQuota": {"cpu": "2", "memory": "1Gi", "pods": 5}})
    await tenant.environment()
    await tenant.ready()
    namespace = tenant.namespace_of("one")
    await tenant.client.patch(
        "v1/ResourceQuota", "kapsa-quota", {"spec": {"hard": {"pods": "99"}}}, namespace=namespace
    )
    await tenant.client.delete(
        "networking.k8s.io/v1/NetworkPolicy", "kapsa-default-deny", namespace=namespace
    )
    await tenant.client.patch(
        "networking.k8s.io/v1/Ingress", "kapsa", {"spec": {"ingressClassName": "other"}}, namespace=namespace
    )
    await tenant.clock.sleep(30)
    quota = await tenant.client.get("v1/ResourceQuota", "kapsa-quota", namespace=namespace)
    assert quota["spec"]["hard"]["pods"] == "5"
    assert await tenant.sandbox.get(
        "networking.k8s.io/v1/NetworkPolicy", "kapsa-default-deny", namespace=namespace
    )
    ingress = await tenant.client.get("networking.k8s.io/v1/Ingress", "kapsa", namespace=namespace)
    assert ingress["spec"]["ingressClassName"] == "nginx"


async def test_no_token_is_mounted_and_the_namespace_enforces_pod_security(tenant: Tenant) -> None:
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    account = await tenant.client.get("v1/ServiceAccount", "default", namespace=tenant.namespace_of("one"))
    assert account["automountServiceAccountToken"] is False
    namespace = await tenant.client.get("v1/Namespace", tenant.namespace_of("one"))
    labels = namespace["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "baseline"
    assert labels["catalyst.dev/team"] == tenant.name
    assert labels[OWNER_UID] == (await tenant.get()).metadata.uid


# -- secrets -------------------------------------------------------------------------------------------------


async def test_secrets_are_copied_and_follow_their_source(tenant: Tenant) -> None:
    await secret(tenant, "settings", tenant.name, KEY="first")
    await tenant.project(secrets=[{"name": "settings"}])
    await tenant.environment()
    await tenant.ready()
    assert await value_of(tenant, "settings", "KEY") == "first"
    await secret(tenant, "settings", tenant.name, KEY="second")
    await tenant.clock.sleep(10)
    assert await value_of(tenant, "settings", "KEY") == "second"


async def test_a_missing_secret_is_named_and_waited_for(tenant: Tenant) -> None:
    await tenant.project(secrets=[{"name": "settings"}])
    await tenant.environment()
    failed = await tenant.reaches("one", "NamespaceReady", "False", "SecretMissing")
    assert failed.status.failure is not None
    assert failed.status.failure.object == "Secret settings"
    await secret(tenant, "settings", tenant.name, KEY="value")
    await tenant.ready()


async def test_a_fork_gets_no_secret_until_its_commit_is_approved_and_a_push_revokes_it(
    tenant: Tenant,
) -> None:
    await secret(tenant, "settings", tenant.name, KEY="value")
    await tenant.project(secrets=[{"name": "settings"}])
    source = {"commitSha": commit_of("fork"), "prNumber": 7}
    await tenant.environment(source=source)
    await tenant.reaches("one", "Ready", "False", "ApprovalRequired")
    assert await value_of(tenant, "settings", "KEY") is None
    approve = {"metadata": {"annotations": {APPROVED_COMMIT: commit_of("fork")}}}
    await tenant.client.patch(Environment, "one", approve, namespace=tenant.home)
    await tenant.clock.sleep(30)
    assert await value_of(tenant, "settings", "KEY") == "value"
    await tenant.environment(source={"commitSha": commit_of("push"), "prNumber": 7})
    await tenant.clock.sleep(30)
    assert await value_of(tenant, "settings", "KEY") is None


async def test_a_pull_request_whose_commit_a_branch_has_is_trusted(tenant: Tenant) -> None:
    await secret(tenant, "settings", tenant.name, KEY="value")
    await tenant.project(secrets=[{"name": "settings"}])
    commit = tenant.systems.git.push("feature/login")
    await tenant.environment(source={"commitSha": commit, "prNumber": 7})
    await tenant.ready()
    assert await value_of(tenant, "settings", "KEY") == "value"


async def test_the_pull_secret_comes_from_the_registry_and_holds_no_other(tenant: Tenant) -> None:
    await shared_registry(tenant, repositories=ALL_REPOSITORIES)
    tenant.systems.images.push(f"{tenant.registry_host}/org/app:{commit_of('one')}")
    await tenant.project(
        registry={"name": tenant.registry, "imageRepository": "org/app"}, deployment={"type": "image"}
    )
    await tenant.environment()
    ready = await tenant.ready()
    pull = await tenant.client.get("v1/Secret", "kapsa-registry", namespace=tenant.namespace_of("one"))
    assert pull["type"] == "kubernetes.io/dockerconfigjson"
    account = await tenant.client.get("v1/ServiceAccount", "default", namespace=tenant.namespace_of("one"))
    assert account["imagePullSecrets"] == [{"name": "kapsa-registry"}]
    assert "word-to-pull" not in str(ready.to_dict())


# -- build ---------------------------------------------------------------------------------------------------


def crash_builds(tenant: Tenant, log: str = "") -> None:
    workloads = tenant.sandbox.harness.cluster.workloads
    workloads.crash("kapsa-builds/*", exit_code=1)
    if log:
        workloads.logs("kapsa-builds/*", log)


async def test_an_image_that_is_there_is_deployed_by_its_digest_without_a_build(tenant: Tenant) -> None:
    digest = tenant.systems.images.push(image("one"))
    await tenant.project(**BUILD)
    await tenant.environment()
    ready = await tenant.ready()
    assert ready.status.image == f"registry.example.com/org/app@{digest}"
    assert (await tenant.client.list("batch/v1/Job")).items == []


async def test_an_image_that_is_missing_is_built_and_then_deployed(tenant: Tenant) -> None:
    await tenant.project(**BUILD)
    tenant.sandbox.harness.cluster.workloads.delay(finish=30)
    await tenant.environment()
    building = await tenant.reaches("one", "BuildReady", "False", "Building")
    assert building.status.phase == "Building"
    (job,) = (await tenant.client.list("batch/v1/Job", namespace="kapsa-builds")).items
    assert job["metadata"]["labels"]["catalyst.dev/commit"] == commit_of("one")
    tenant.systems.images.push(image("one"))
    await tenant.ready()
    await tenant.sandbox.gone("batch/v1/Job", job["metadata"]["name"], namespace="kapsa-builds")


async def test_a_failed_build_keeps_the_old_version_serving_and_says_why(tenant: Tenant) -> None:
    tenant.systems.images.push(image("one"))
    await tenant.project(**BUILD)
    await tenant.environment()
    serving = (await tenant.ready()).status.image
    crash_builds(tenant, "step 1\npassword=hunter2-hunter2\nCOPY failed: no such file\n")
    await tenant.environment(commit="two")
    failed = await tenant.reaches("one", "BuildReady", "False", "BuildFailed")
    assert failed.status.phase == "Failed"
    assert failed.status.image == serving
    assert failed.status.is_true("DeploymentReady")
    failure = failed.status.failure
    assert failure is not None
    assert failure.step == "build"
    assert "COPY failed" in failure.log_tail
    assert "hunter2" not in failure.log_tail
    (web,) = (await tenant.client.list("apps/v1/Deployment", namespace=tenant.namespace_of("one"))).items
    assert web["spec"]["template"]["spec"]["containers"][0]["image"] == serving


async def test_a_superseded_build_is_cancelled_and_its_late_result_dropped(tenant: Tenant) -> None:
    await tenant.project(**BUILD)
    tenant.sandbox.harness.cluster.workloads.delay(finish=300)
    await tenant.environment()
    await tenant.reaches("one", "BuildReady", "False", "Building")
    await tenant.environment(commit="two")
    await tenant.clock.sleep(30)
    (job,) = (await tenant.client.list("batch/v1/Job", namespace="kapsa-builds")).items
    assert job["metadata"]["labels"]["catalyst.dev/commit"] == commit_of("two")
    tenant.systems.images.push(image("one"))
    await tenant.clock.sleep(60)
    assert (await tenant.get()).status.image is None


async def test_a_registry_in_trouble_leads_to_no_build(tenant: Tenant) -> None:
    await tenant.project(**BUILD)
    tenant.systems.images.error = Unreachable("registry.example.com answers with 503")
    await tenant.environment()
    await tenant.reaches("one", "BuildReady", "False", "Unreachable")
    tenant.systems.images.error = AuthFailed("registry.example.com does not take the credentials")
    await tenant.reaches("one", "BuildReady", "False", "AuthFailed")
    assert (await tenant.client.list("batch/v1/Job")).items == []
    tenant.systems.images.error = None
    tenant.systems.images.push(image("one"))
    await tenant.ready(seconds=300)


async def test_a_forks_commit_is_built_only_once_it_is_approved(tenant: Tenant) -> None:
    await tenant.project(**BUILD)
    await tenant.environment(source={"commitSha": commit_of("fork"), "prNumber": 7})
    waiting = await tenant.reaches("one", "BuildReady", "False", "ApprovalRequired")
    assert APPROVED_COMMIT in str(waiting.status.condition("BuildReady"))
    assert (await tenant.client.list("batch/v1/Job")).items == []
    approve = {"metadata": {"annotations": {APPROVED_COMMIT: commit_of("fork")}}}
    await tenant.client.patch(Environment, "one", approve, namespace=tenant.home)
    await tenant.clock.sleep(10)
    assert len((await tenant.client.list("batch/v1/Job", namespace="kapsa-builds")).items) == 1


# -- render and apply ----------------------------------------------------------------------------------------


async def test_an_object_that_the_operator_keeps_itself_is_refused_by_name(tenant: Tenant) -> None:
    await tenant.project()
    account: dict[str, Any] = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    tenant.systems.renderer.objects = [account]
    await tenant.environment()
    failed = await tenant.reaches("one", "DeploymentReady", "False", "ObjectRefused")
    assert failed.status.failure is not None
    assert failed.status.failure.object == "ServiceAccount default"


async def test_a_failure_is_bounded_and_without_secrets_or_control_characters(tenant: Tenant) -> None:
    await tenant.project()
    tenant.systems.renderer.error = Refused(f"\x1b[2Jpassword=hunter2-hunter2 {'far too long ' * 1000}")
    await tenant.environment()
    failed = await tenant.reaches("one", "DeploymentReady", "False", "Refused")
    failure = failed.status.failure
    assert failure is not None
    assert (failure.step, failure.reason) == ("render", "Refused")
    assert len(failure.message) <= 2048
    status = str(failed.to_dict()["status"])
    assert "hunter2" not in status
    assert "\x1b" not in status


async def test_what_the_api_server_does_not_accept_is_named(tenant: Tenant) -> None:
    await tenant.project()
    tenant.systems.renderer.objects = [deployment("web", "app:1", replicas=-1), service("web")]
    await tenant.environment()
    failed = await tenant.reaches("one", "DeploymentReady", "False", "Rejected")
    assert failed.status.failure is not None
    assert failed.status.failure.object == "Deployment web"


async def test_pods_that_crash_fail_the_rollout_with_the_end_of_their_log(tenant: Tenant) -> None:
    await tenant.project()
    workloads = tenant.sandbox.harness.cluster.workloads
    workloads.crash(f"{tenant.namespace_of('one')}/*", exit_code=1)
    workloads.logs(f"{tenant.namespace_of('one')}/*", "no database\n")
    await tenant.environment()
    failed = await tenant.reaches("one", "DeploymentReady", "False", "ProgressDeadlineExceeded", seconds=900)
    assert failed.status.failure is not None
    assert failed.status.failure.step == "apply"
    assert "no database" in failed.status.failure.log_tail


async def test_drift_of_a_rendered_object_is_corrected(tenant: Tenant) -> None:
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    await tenant.client.scale("apps/v1/Deployment", "web", 5, namespace=tenant.namespace_of("one"))
    await tenant.clock.sleep(30)
    web = await tenant.client.get("apps/v1/Deployment", "web", namespace=tenant.namespace_of("one"))
    assert web["spec"]["replicas"] == 1


async def test_a_suspended_environment_keeps_everything_and_resumes(tenant: Tenant) -> None:
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    await tenant.environment(suspended=True)
    asleep = await tenant.reaches("one", "Ready", "False", "Suspended")
    assert asleep.status.phase == "Pending"
    web = await tenant.client.get("apps/v1/Deployment", "web", namespace=tenant.namespace_of("one"))
    assert web["spec"]["replicas"] == 0
    assert await tenant.sandbox.get(
        "networking.k8s.io/v1/Ingress", "kapsa", namespace=tenant.namespace_of("one")
    )
    await tenant.environment(suspended=False)
    await tenant.ready()


# -- route and time ------------------------------------------------------------------------------------------


async def test_a_host_that_is_taken_is_refused_and_free_again_after_its_holder(tenant: Tenant) -> None:
    await tenant.project()
    await tenant.environment("first", ingress={"host": "shop.preview.catalyst.dev"})
    await tenant.ready("first")
    await tenant.environment("second", ingress={"host": "shop.preview.catalyst.dev"})
    failed = await tenant.reaches("second", "IngressReady", "False", "HostTaken")
    assert failed.status.phase == "Failed"
    assert (await tenant.get("first")).status.phase == "Ready"
    await tenant.client.delete(Environment, "first", namespace=tenant.home)
    await tenant.ready("second", seconds=300)


async def test_tls_is_ready_when_the_certificate_is(tenant: Tenant) -> None:
    tenant.systems.domains.issuer = ("ClusterIssuer", "letsencrypt")
    await install_certificates(tenant)
    await tenant.project()
    await tenant.environment()
    await tenant.reaches("one", "TLSReady", "False", "CertificatePending")
    ingress = await tenant.client.get(
        "networking.k8s.io/v1/Ingress", "kapsa", namespace=tenant.namespace_of("one")
    )
    assert ingress["metadata"]["annotations"]["cert-manager.io/cluster-issuer"] == "letsencrypt"
    certificate = {
        "apiVersion": "cert-manager.io/v1",
        "kind": "Certificate",
        "metadata": {"name": "kapsa-tls", "namespace": tenant.namespace_of("one")},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    await tenant.client.create(certificate)
    await tenant.ready()


async def install_certificates(tenant: Tenant) -> None:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "certificates.cert-manager.io"},
        "spec": {
            "group": "cert-manager.io",
            "scope": "Namespaced",
            "names": {"kind": "Certificate", "plural": "certificates", "singular": "certificate"},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
            ],
        },
    }
    await tenant.client.create(definition)
    await tenant.clock.sleep(120)


async def test_annotations_that_configure_the_ingress_controller_are_refused(tenant: Tenant) -> None:
    await tenant.project()
    snippet = {"nginx.ingress.kubernetes.io/server-snippet": "return 200;"}
    await tenant.environment(ingress={"annotations": snippet})
    failed = await tenant.reaches("one", "IngressReady", "False", "AnnotationRefused")
    assert failed.status.failure is not None
    assert "server-snippet" in failed.status.failure.message


@pytest.mark.long
async def test_an_environment_expires_after_its_ttl_and_a_commit_extends_it(tenant: Tenant) -> None:
    await tenant.project()
    await tenant.environment(ttl="1h")
    await tenant.ready()
    await tenant.clock.sleep(3000)
    await tenant.environment(commit="two", ttl="1h")
    await tenant.clock.sleep(3000)
    assert (await tenant.ready()).status.expires_at is not None
    await tenant.sandbox.gone(Environment, "one", namespace=tenant.home, seconds=700)


async def test_ready_means_reachable_where_that_is_asked_for(sandbox: Sandbox) -> None:
    tenant = Tenant(sandbox)
    tenant.systems.prober.code = 503
    await tenant.start(Settings(verify_routes=True))
    await tenant.project()
    await tenant.environment()
    await tenant.reaches("one", "IngressReady", "False", "Unreachable")
    tenant.systems.prober.code = 200
    await tenant.ready()


async def test_a_steady_environment_causes_no_write(tenant: Tenant) -> None:
    await secret(tenant, "settings", tenant.name, KEY="value")
    await tenant.project(secrets=[{"name": "settings"}])
    await tenant.environment()
    await tenant.ready()
    await tenant.sandbox.at_rest()
    before = len(tenant.sandbox.writes())
    await tenant.clock.sleep(3600)
    assert [str(call) for call in tenant.sandbox.writes()[before:]] == []
