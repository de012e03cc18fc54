"""What goes wrong with environments: said clearly, nothing of others touched, and the version that serves goes on serving."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from kapsa.adapters.errors import AuthFailed, Refused, Unreachable
from kapsa.environments.names import APPROVED_COMMIT, OWNER_UID
from kapsa.environments.resources import Environment, Project, Registry
from kapsa.environments.settings import Settings
from tests.environments.outside_world import commit_of, deployment, service
from tests.environments.stage import Stage
from tests.environments.team import BUILD, Team, image, secret

pytestmark = pytest.mark.virtual_time


async def value_of(team: Team, name: str, key: str, environment: str = "one") -> str | None:
    found = await team.stage.get("v1/Secret", name, namespace=team.place(environment))
    return base64.b64decode(found["data"][key]).decode() if found is not None else None


# -- namespace -------------------------------------------------------------------------------------------------


async def test_a_namespace_of_somebody_else_is_refused_and_left_alone(team: Team) -> None:
    await team.project()
    theirs = await team.stage.make_namespace(team.place("one"), team="theirs")
    await team.environment()
    failed = await team.reaches("one", "NamespaceReady", "False", "NamespaceNotOurs")
    assert failed.status.phase == "Failed"
    assert failed.status.failure is not None
    assert failed.status.failure.step == "namespace"
    await team.client.delete(Environment, "one", namespace=team.home)
    await team.stage.gone(Environment, "one", namespace=team.home)
    left = await team.stage.get("v1/Namespace", team.place("one"), namespace="")
    assert left["metadata"]["uid"] == theirs["metadata"]["uid"]
    assert "deletionTimestamp" not in left["metadata"]


async def test_once_that_namespace_is_gone_the_environment_comes_up(team: Team) -> None:
    await team.project()
    await team.stage.make_namespace(team.place("one"))
    await team.environment()
    await team.reaches("one", "NamespaceReady", "False", "NamespaceNotOurs")
    await team.client.delete("v1/Namespace", team.place("one"))
    await team.ready()


async def test_an_environment_elsewhere_than_in_its_projects_namespace_gets_nothing(team: Team) -> None:
    await team.project()
    await team.stage.make_namespace("elsewhere")
    spec = {"projectRef": {"name": "app"}, "source": {"commitSha": commit_of("one")}}
    await team.stage.apply(Environment, "one", spec, namespace="elsewhere")
    await team.clock.sleep(60)
    found = await team.client.get(Environment, "one", namespace="elsewhere")
    condition = found.status.condition("Ready")
    assert condition is not None
    assert condition.reason == "ProjectMissing"
    assert found.status.namespace is None


async def test_a_namespace_that_does_not_go_is_reported_with_what_blocks_it(team: Team) -> None:
    await team.project()
    await team.environment()
    await team.ready()
    held = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "held", "finalizers": ["example.com/hold"]},
    }
    await team.client.create(held, namespace=team.place("one"))
    await team.client.delete(Environment, "one", namespace=team.home)
    await team.clock.sleep(120)
    waiting = await team.get()
    condition = waiting.status.condition("Ready")
    assert condition is not None
    assert condition.reason == "Terminating"
    assert "example.com/hold" in condition.message
    assert (waiting.status.phase, waiting.status.url) == ("Pending", None)
    await team.stage.harness.assert_event("DeletionBlocked", text="example.com/hold")
    patch = {"metadata": {"finalizers": None}}
    await team.client.patch("v1/ConfigMap", "held", patch, namespace=team.place("one"))
    await team.stage.gone(Environment, "one", namespace=team.home, seconds=120)


async def test_an_environment_goes_though_its_project_is_gone_already(team: Team) -> None:
    await team.project()
    await team.environment()
    await team.ready()
    await team.client.delete(Project, "app", namespace=team.name)
    await team.client.patch(Project, "app", {"metadata": {"finalizers": None}}, namespace=team.name)
    await team.client.delete(Environment, "one", namespace=team.home, missing_ok=True)
    await team.stage.gone(Environment, "one", namespace=team.home, seconds=300)
    await team.stage.gone("v1/Namespace", team.place("one"), namespace="", seconds=300)


# -- policy ----------------------------------------------------------------------------------------------------


async def test_quota_limits_and_network_policies_are_put_back(team: Team) -> None:
    await team.project(resources={"defaultQuota": {"cpu": "2", "memory": "1Gi", "pods": 5}})
    await team.environment()
    await team.ready()
    place = team.place("one")
    await team.client.patch(
        "v1/ResourceQuota", "kapsa-quota", {"spec": {"hard": {"pods": "99"}}}, namespace=place
    )
    await team.client.delete("networking.k8s.io/v1/NetworkPolicy", "kapsa-default-deny", namespace=place)
    await team.client.patch(
        "networking.k8s.io/v1/Ingress", "kapsa", {"spec": {"ingressClassName": "other"}}, namespace=place
    )
    await team.clock.sleep(30)
    quota = await team.client.get("v1/ResourceQuota", "kapsa-quota", namespace=place)
    assert quota["spec"]["hard"]["pods"] == "5"
    assert await team.stage.get("networking.k8s.io/v1/NetworkPolicy", "kapsa-default-deny", namespace=place)
    ingress = await team.client.get("networking.k8s.io/v1/Ingress", "kapsa", namespace=place)
    assert ingress["spec"]["ingressClassName"] == "nginx"


async def test_no_token_is_mounted_and_the_namespace_enforces_pod_security(team: Team) -> None:
    await team.project()
    await team.environment()
    await team.ready()
    account = await team.client.get("v1/ServiceAccount", "default", namespace=team.place("one"))
    assert account["automountServiceAccountToken"] is False
    namespace = await team.client.get("v1/Namespace", team.place("one"))
    labels = namespace["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "baseline"
    assert labels["catalyst.dev/team"] == team.name
    assert labels[OWNER_UID] == (await team.get()).metadata.uid


# -- secrets ---------------------------------------------------------------------------------------------------


async def test_secrets_are_copied_and_follow_their_source(team: Team) -> None:
    await secret(team, "settings", team.name, KEY="first")
    await team.project(secrets=[{"name": "settings"}])
    await team.environment()
    await team.ready()
    assert await value_of(team, "settings", "KEY") == "first"
    await secret(team, "settings", team.name, KEY="second")
    await team.clock.sleep(10)
    assert await value_of(team, "settings", "KEY") == "second"


async def test_a_missing_secret_is_named_and_waited_for(team: Team) -> None:
    await team.project(secrets=[{"name": "settings"}])
    await team.environment()
    failed = await team.reaches("one", "NamespaceReady", "False", "SecretMissing")
    assert failed.status.failure is not None
    assert failed.status.failure.object == "Secret settings"
    await secret(team, "settings", team.name, KEY="value")
    await team.ready()


async def test_a_fork_gets_no_secret_until_its_commit_is_approved_and_a_push_revokes_it(team: Team) -> None:
    await secret(team, "settings", team.name, KEY="value")
    await team.project(secrets=[{"name": "settings"}])
    source = {"commitSha": commit_of("fork"), "prNumber": 7}
    await team.environment(source=source)
    await team.ready()
    assert await value_of(team, "settings", "KEY") is None
    approve = {"metadata": {"annotations": {APPROVED_COMMIT: commit_of("fork")}}}
    await team.client.patch(Environment, "one", approve, namespace=team.home)
    await team.clock.sleep(30)
    assert await value_of(team, "settings", "KEY") == "value"
    await team.environment(source={"commitSha": commit_of("push"), "prNumber": 7})
    await team.clock.sleep(30)
    assert await value_of(team, "settings", "KEY") is None


async def test_a_pull_request_whose_commit_a_branch_has_is_trusted(team: Team) -> None:
    await secret(team, "settings", team.name, KEY="value")
    await team.project(secrets=[{"name": "settings"}])
    commit = team.outside.git.push("feature/login")
    await team.environment(source={"commitSha": commit, "prNumber": 7})
    await team.ready()
    assert await value_of(team, "settings", "KEY") == "value"


async def test_the_pull_secret_comes_from_the_registry_and_holds_no_other(team: Team) -> None:
    await team.stage.make_namespace("kapsa-system")
    await secret(team, "login", "kapsa-system", username="robot", password="very-secret-word")
    registry = {"endpoint": "registry.example.com", "auth": {"secretRef": {"name": "login"}}}
    await team.stage.apply(Registry, "main", registry)
    team.outside.images.push(image("one"))
    await team.project(registry={"name": "main", "imageRepository": "org/app"}, deployment={"type": "image"})
    await team.environment()
    ready = await team.ready()
    pull = await team.client.get("v1/Secret", "kapsa-registry", namespace=team.place("one"))
    assert pull["type"] == "kubernetes.io/dockerconfigjson"
    account = await team.client.get("v1/ServiceAccount", "default", namespace=team.place("one"))
    assert account["imagePullSecrets"] == [{"name": "kapsa-registry"}]
    assert "very-secret-word" not in str(ready.to_dict())


# -- build -----------------------------------------------------------------------------------------------------


def crash_builds(team: Team, log: str = "") -> None:
    workloads = team.stage.harness.cluster.workloads
    workloads.crash("kapsa-builds/*", exit_code=1)
    if log:
        workloads.logs("kapsa-builds/*", log)


async def test_an_image_that_is_there_is_deployed_by_its_digest_without_a_build(team: Team) -> None:
    digest = team.outside.images.push(image("one"))
    await team.project(**BUILD)
    await team.environment()
    ready = await team.ready()
    assert ready.status.image == f"registry.example.com/org/app@{digest}"
    assert (await team.client.list("batch/v1/Job")).items == []


async def test_an_image_that_is_missing_is_built_and_then_deployed(team: Team) -> None:
    await team.project(**BUILD)
    team.stage.harness.cluster.workloads.delay(finish=30)
    await team.environment()
    building = await team.reaches("one", "BuildReady", "False", "Building")
    assert building.status.phase == "Building"
    (job,) = (await team.client.list("batch/v1/Job", namespace="kapsa-builds")).items
    assert job["metadata"]["labels"]["catalyst.dev/commit"] == commit_of("one")
    team.outside.images.push(image("one"))
    await team.ready()
    await team.stage.gone("batch/v1/Job", job["metadata"]["name"], namespace="kapsa-builds")


async def test_a_failed_build_keeps_the_old_version_serving_and_says_why(team: Team) -> None:
    team.outside.images.push(image("one"))
    await team.project(**BUILD)
    await team.environment()
    serving = (await team.ready()).status.image
    crash_builds(team, "step 1\npassword=hunter2-hunter2\nCOPY failed: no such file\n")
    await team.environment(commit="two")
    failed = await team.reaches("one", "BuildReady", "False", "BuildFailed")
    assert failed.status.phase == "Failed"
    assert failed.status.image == serving
    assert failed.status.is_true("DeploymentReady")
    failure = failed.status.failure
    assert failure is not None
    assert failure.step == "build"
    assert "COPY failed" in failure.log_tail
    assert "hunter2" not in failure.log_tail
    (web,) = (await team.client.list("apps/v1/Deployment", namespace=team.place("one"))).items
    assert web["spec"]["template"]["spec"]["containers"][0]["image"] == serving


async def test_a_superseded_build_is_cancelled_and_its_late_result_dropped(team: Team) -> None:
    await team.project(**BUILD)
    team.stage.harness.cluster.workloads.delay(finish=300)
    await team.environment()
    await team.reaches("one", "BuildReady", "False", "Building")
    await team.environment(commit="two")
    await team.clock.sleep(30)
    (job,) = (await team.client.list("batch/v1/Job", namespace="kapsa-builds")).items
    assert job["metadata"]["labels"]["catalyst.dev/commit"] == commit_of("two")
    team.outside.images.push(image("one"))
    await team.clock.sleep(60)
    assert (await team.get()).status.image is None


async def test_a_registry_in_trouble_leads_to_no_build(team: Team) -> None:
    await team.project(**BUILD)
    team.outside.images.error = Unreachable("registry.example.com answers with 503")
    await team.environment()
    await team.reaches("one", "BuildReady", "False", "Unreachable")
    team.outside.images.error = AuthFailed("registry.example.com does not take the credentials")
    await team.reaches("one", "BuildReady", "False", "AuthFailed")
    assert (await team.client.list("batch/v1/Job")).items == []
    team.outside.images.error = None
    team.outside.images.push(image("one"))
    await team.ready(seconds=300)


async def test_a_forks_commit_is_built_only_once_it_is_approved(team: Team) -> None:
    await team.project(**BUILD)
    await team.environment(source={"commitSha": commit_of("fork"), "prNumber": 7})
    waiting = await team.reaches("one", "BuildReady", "False", "ApprovalRequired")
    assert APPROVED_COMMIT in str(waiting.status.condition("BuildReady"))
    assert (await team.client.list("batch/v1/Job")).items == []
    approve = {"metadata": {"annotations": {APPROVED_COMMIT: commit_of("fork")}}}
    await team.client.patch(Environment, "one", approve, namespace=team.home)
    await team.clock.sleep(10)
    assert len((await team.client.list("batch/v1/Job", namespace="kapsa-builds")).items) == 1


# -- render and apply ------------------------------------------------------------------------------------------


async def test_an_object_that_the_operator_keeps_itself_is_refused_by_name(team: Team) -> None:
    await team.project()
    account: dict[str, Any] = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    team.outside.renderer.objects = [account]
    await team.environment()
    failed = await team.reaches("one", "DeploymentReady", "False", "ObjectRefused")
    assert failed.status.failure is not None
    assert failed.status.failure.object == "ServiceAccount default"


async def test_a_failure_is_told_in_few_words_without_secrets_or_control_characters(team: Team) -> None:
    await team.project()
    team.outside.renderer.error = Refused(f"\x1b[2Jpassword=hunter2-hunter2 {'far too long ' * 1000}")
    await team.environment()
    failed = await team.reaches("one", "DeploymentReady", "False", "Refused")
    failure = failed.status.failure
    assert failure is not None
    assert (failure.step, failure.reason) == ("render", "Refused")
    assert len(failure.message) <= 2048
    told = str(failed.to_dict()["status"])
    assert "hunter2" not in told
    assert "\x1b" not in told


async def test_what_the_api_server_does_not_accept_is_named(team: Team) -> None:
    await team.project()
    team.outside.renderer.objects = [deployment("web", "app:1", replicas=-1), service("web")]
    await team.environment()
    failed = await team.reaches("one", "DeploymentReady", "False", "Rejected")
    assert failed.status.failure is not None
    assert failed.status.failure.object == "Deployment web"


async def test_pods_that_crash_fail_the_rollout_with_the_end_of_their_log(team: Team) -> None:
    await team.project()
    workloads = team.stage.harness.cluster.workloads
    workloads.crash(f"{team.place('one')}/*", exit_code=1)
    workloads.logs(f"{team.place('one')}/*", "no database\n")
    await team.environment()
    failed = await team.reaches("one", "DeploymentReady", "False", "ProgressDeadlineExceeded", seconds=900)
    assert failed.status.failure is not None
    assert failed.status.failure.step == "apply"
    assert "no database" in failed.status.failure.log_tail


async def test_drift_of_a_rendered_object_is_corrected(team: Team) -> None:
    await team.project()
    await team.environment()
    await team.ready()
    await team.client.scale("apps/v1/Deployment", "web", 5, namespace=team.place("one"))
    await team.clock.sleep(30)
    web = await team.client.get("apps/v1/Deployment", "web", namespace=team.place("one"))
    assert web["spec"]["replicas"] == 1


async def test_a_suspended_environment_sleeps_with_everything_kept_and_wakes_again(team: Team) -> None:
    await team.project()
    await team.environment()
    await team.ready()
    await team.environment(suspended=True)
    asleep = await team.reaches("one", "Ready", "False", "Suspended")
    assert asleep.status.phase == "Pending"
    web = await team.client.get("apps/v1/Deployment", "web", namespace=team.place("one"))
    assert web["spec"]["replicas"] == 0
    assert await team.stage.get("networking.k8s.io/v1/Ingress", "kapsa", namespace=team.place("one"))
    await team.environment(suspended=False)
    await team.ready()


# -- route and time --------------------------------------------------------------------------------------------


async def test_a_host_that_is_taken_is_refused_and_free_again_after_its_holder(team: Team) -> None:
    await team.project()
    await team.environment("first", ingress={"host": "shop.preview.catalyst.dev"})
    await team.ready("first")
    await team.environment("second", ingress={"host": "shop.preview.catalyst.dev"})
    failed = await team.reaches("second", "IngressReady", "False", "HostTaken")
    assert failed.status.phase == "Failed"
    assert (await team.get("first")).status.phase == "Ready"
    await team.client.delete(Environment, "first", namespace=team.home)
    await team.ready("second", seconds=300)


async def test_tls_is_ready_when_the_certificate_is(team: Team) -> None:
    team.outside.domains.issuer = ("ClusterIssuer", "letsencrypt")
    await install_certificates(team)
    await team.project()
    await team.environment()
    await team.reaches("one", "TLSReady", "False", "CertificatePending")
    ingress = await team.client.get("networking.k8s.io/v1/Ingress", "kapsa", namespace=team.place("one"))
    assert ingress["metadata"]["annotations"]["cert-manager.io/cluster-issuer"] == "letsencrypt"
    certificate = {
        "apiVersion": "cert-manager.io/v1",
        "kind": "Certificate",
        "metadata": {"name": "kapsa-tls", "namespace": team.place("one")},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    await team.client.create(certificate)
    await team.ready()


async def install_certificates(team: Team) -> None:
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
    await team.client.create(definition)
    await team.clock.sleep(120)


async def test_annotations_that_configure_the_ingress_controller_are_refused(team: Team) -> None:
    await team.project()
    snippet = {"nginx.ingress.kubernetes.io/server-snippet": "return 200;"}
    await team.environment(ingress={"annotations": snippet})
    failed = await team.reaches("one", "IngressReady", "False", "AnnotationRefused")
    assert failed.status.failure is not None
    assert "server-snippet" in failed.status.failure.message


async def test_an_environment_goes_when_its_time_is_up_and_a_commit_gives_it_more(team: Team) -> None:
    await team.project()
    await team.environment(ttl="1h")
    await team.ready()
    await team.clock.sleep(3000)
    await team.environment(commit="two", ttl="1h")
    await team.clock.sleep(3000)
    assert (await team.ready()).status.expires_at is not None
    await team.stage.gone(Environment, "one", namespace=team.home, seconds=700)


async def test_ready_means_reachable_where_that_is_asked_for(stage: Stage) -> None:
    team = Team(stage)
    team.outside.prober.code = 503
    await team.start(Settings(verify_routes=True))
    await team.project()
    await team.environment()
    await team.reaches("one", "IngressReady", "False", "Unreachable")
    team.outside.prober.code = 200
    await team.ready()


async def test_a_steady_environment_causes_no_write(team: Team) -> None:
    await secret(team, "settings", team.name, KEY="value")
    await team.project(secrets=[{"name": "settings"}])
    await team.environment()
    await team.ready()
    await team.stage.at_rest()
    before = len(team.stage.writes())
    await team.clock.sleep(3600)
    assert [str(call) for call in team.stage.writes()[before:]] == []
