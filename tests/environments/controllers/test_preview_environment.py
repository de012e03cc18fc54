"""PreviewEnvironments: what is made, what follows a change, what goes, and what is told about it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kapsa.devcluster import FaultPlan
from kapsa.devcluster.faults import Answer, Rule
from kapsa.environments.controllers.preview_environment import (
    CHILDREN,
    DEPLOYMENT,
    INGRESS,
    NETWORK_POLICY,
    SERVICE,
    PreviewEnvironmentController,
    failed_rollout,
    rolled_out,
)
from kapsa.environments.metrics import EnvironmentMetrics
from kapsa.environments.names import OWNER_UID
from kapsa.environments.resources import PreviewEnvironment
from kapsa.environments.settings import Settings
from kapsa.runtime import Operator
from kapsa.runtime.audit import Audit
from kapsa.runtime.rbac import grants
from kapsa.runtime.testing import Harness, RecordedCall, Scenario, crash_at_every_write
from tests.environments.stage import Stage

NAMESPACE = "v1/Namespace"


def make_operator(settings: Settings | None = None) -> Operator:
    metrics = EnvironmentMetrics()
    controller = PreviewEnvironmentController(settings or Settings(), metrics.previews)
    return Operator(controllers=[controller], collect=metrics.collect)


def spec(number: int, **more: Any) -> dict[str, Any]:
    return {
        "pr_number": number,
        "branch_name": f"feature/{number}",
        "image": "youruser/my-app",
        "image_tag": "a3f9c2d",
        **more,
    }


class Preview:
    """One preview of a test."""

    def __init__(self, stage: Stage, number: int | None = None, name: str = "") -> None:
        self.stage = stage
        self.number = stage.number if number is None else number
        self.name = name or f"pr-{self.number}-env"
        self.place = f"preview-pr-{self.number}"

    async def ask(self, **more: Any) -> PreviewEnvironment:
        found: PreviewEnvironment = await self.stage.apply(
            PreviewEnvironment, self.name, spec(self.number, **more)
        )
        return found

    async def ready(self) -> PreviewEnvironment:
        found: PreviewEnvironment = await self.stage.condition(PreviewEnvironment, self.name)
        return found

    async def child(self, kind: str, suffix: str) -> Any:
        return await self.stage.get(kind, f"pr-{self.number}-{suffix}", namespace=self.place)

    async def children(self) -> dict[str, Any]:
        names = {NETWORK_POLICY: "netpol", DEPLOYMENT: "app", SERVICE: "svc", INGRESS: "ingress"}
        return {kind: await self.child(kind, suffix) for kind, suffix in names.items()}

    async def delete(self) -> None:
        await self.stage.client.delete(PreviewEnvironment, self.name, namespace=self.stage.namespace)

    async def gone(self) -> None:
        await self.stage.gone(NAMESPACE, self.place, namespace="")
        await self.stage.gone(PreviewEnvironment, self.name)


async def test_a_preview_gets_its_namespace_deployment_service_ingress_and_policy(stage: Stage) -> None:
    await stage.start(make_operator())
    preview = Preview(stage)
    asked = await preview.ask()
    found = await preview.ready()
    n = preview.number
    namespace = await stage.get(NAMESPACE, preview.place)
    assert (
        namespace["metadata"]["labels"] | {"managed-by": "preview-operator", "pr-number": str(n)}
        == (namespace["metadata"]["labels"])
    )
    assert namespace["metadata"]["labels"][OWNER_UID] == asked.metadata.uid
    made = await preview.children()
    assert all(made.values())
    (container,) = made[DEPLOYMENT]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "youruser/my-app:a3f9c2d"
    assert container["ports"][0]["containerPort"] == 8000
    assert container["resources"] == {
        "requests": {"cpu": "100m", "memory": "128Mi"},
        "limits": {"cpu": "250m", "memory": "256Mi"},
    }
    for probe in ("livenessProbe", "readinessProbe"):
        assert (container[probe]["httpGet"]["path"], container[probe]["httpGet"]["port"]) == ("/", 8000)
    (port,) = made[SERVICE]["spec"]["ports"]
    assert (made[SERVICE]["spec"]["type"], port["port"], port["targetPort"]) == ("ClusterIP", 80, 8000)
    host = f"pr-{n}.preview.orimatest.com"
    ingress = made[INGRESS]
    assert ingress["metadata"]["annotations"]["cert-manager.io/cluster-issuer"] == "letsencrypt-prod"
    assert ingress["spec"]["ingressClassName"] == "nginx"
    assert ingress["spec"]["tls"] == [{"hosts": [host], "secretName": f"pr-{n}-tls"}]
    (rule,) = ingress["spec"]["rules"]
    backend = rule["http"]["paths"][0]["backend"]["service"]
    assert (rule["host"], backend["name"], backend["port"]["number"]) == (host, f"pr-{n}-svc", 80)
    assert found.status.phase == "Ready"
    assert found.status.url == f"https://{host}"
    assert found.status.image == "youruser/my-app:a3f9c2d"
    assert found.status.namespace is not None
    assert found.status.namespace.uid == namespace["metadata"]["uid"]


async def test_a_preview_is_reached_by_the_ingress_controller_alone_and_reaches_nothing_of_the_cluster(
    stage: Stage,
) -> None:
    settings = Settings(ingress_namespace="gates", api_server_cidrs=("203.0.113.7/32", "2001:db8::7/128"))
    await stage.start(make_operator(settings))
    preview = Preview(stage)
    await preview.ask()
    await preview.ready()
    policy = (await preview.child(NETWORK_POLICY, "netpol"))["spec"]
    assert (policy["podSelector"], policy["policyTypes"]) == ({}, ["Ingress", "Egress"])
    same: dict[str, Any] = {"podSelector": {}}
    gates = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "gates"}}}
    # Next to the application's port the one at which cert-manager proves that the host is ours.
    ports = [{"protocol": "TCP", "port": port} for port in (8000, 8089)]
    assert policy["ingress"] == [{"from": [same]}, {"from": [gates], "ports": ports}]
    within, dns, outside = policy["egress"]
    assert within == {"to": [same]}
    assert dns == {"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]}
    four, six = (each["ipBlock"] for each in outside["to"])
    assert (four["cidr"], six["cidr"]) == ("0.0.0.0/0", "::/0")
    assert {"10.0.0.0/8", "169.254.0.0/16", "203.0.113.7/32"} <= set(four["except"])
    assert {"fc00::/7", "fe80::/10", "2001:db8::7/128"} <= set(six["except"])


async def test_a_preview_is_nobody_to_the_api_server_and_its_namespace_enforces_pod_security(
    stage: Stage,
) -> None:
    await stage.start(make_operator())
    preview = Preview(stage)
    await preview.ask()
    await preview.ready()
    deployment = await preview.child(DEPLOYMENT, "app")
    assert deployment["spec"]["template"]["spec"]["automountServiceAccountToken"] is False
    labels = (await stage.get(NAMESPACE, preview.place))["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "baseline"


async def test_without_an_issuer_the_ingress_controllers_own_certificate_is_used(stage: Stage) -> None:
    await stage.start(make_operator(Settings(preview_environment_issuer="")))
    preview = Preview(stage)
    await preview.ask()
    await preview.ready()
    ingress = await preview.child(INGRESS, "ingress")
    assert not any(name.startswith("cert-manager.io/") for name in ingress["metadata"]["annotations"])
    assert ingress["spec"]["tls"] == [{"hosts": [f"pr-{preview.number}.preview.orimatest.com"]}]


async def test_domain_issuer_and_class_can_be_set(stage: Stage) -> None:
    settings = Settings.from_environment(
        {
            "KAPSA_PREVIEW_ENVIRONMENT_DOMAIN": "try.example.org",
            "KAPSA_PREVIEW_ENVIRONMENT_ISSUER": "internal",
            "KAPSA_INGRESS_CLASS": "traefik",
        }
    )
    await stage.start(make_operator(settings))
    preview = Preview(stage)
    await preview.ask()
    assert (await preview.ready()).status.url == f"https://pr-{preview.number}.try.example.org"
    ingress = await preview.child(INGRESS, "ingress")
    assert ingress["metadata"]["annotations"]["cert-manager.io/cluster-issuer"] == "internal"
    assert ingress["spec"]["ingressClassName"] == "traefik"


async def test_a_new_tag_rolls_out_and_touches_nothing_else(stage: Stage) -> None:
    await stage.start(make_operator())
    preview = Preview(stage)
    await preview.ask()
    await preview.ready()
    await stage.at_rest()
    before = len(stage.writes())
    await preview.ask(image_tag="b1c2d3e")
    assert (await preview.ready()).status.image == "youruser/my-app:b1c2d3e"
    deployment = await preview.child(DEPLOYMENT, "app")
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "youruser/my-app:b1c2d3e"
    await stage.at_rest()
    written = {each.call.resource for each in stage.writes()[before:]}
    assert written == {"deployments", "previewenvironments"}


async def test_an_update_that_finds_nothing_makes_everything_again(stage: Stage) -> None:
    await stage.start(make_operator())
    preview = Preview(stage)
    await preview.ask()
    await preview.ready()
    await stage.harness.stop()
    old = {kind: found["metadata"]["uid"] for kind, found in (await preview.children()).items()}
    for kind, found in (await preview.children()).items():
        await stage.client.delete(kind, found["metadata"]["name"], namespace=preview.place)
    await preview.ask(image_tag="b1c2d3e")
    await stage.start(make_operator())

    async def all_are_back() -> bool:
        found = await preview.children()
        return all(each and each["metadata"]["uid"] != old[kind] for kind, each in found.items())

    await stage.until(all_are_back, "all children are made again, the NetworkPolicy included")
    await preview.ready()


@pytest.mark.parametrize("kind", CHILDREN)
async def test_a_child_that_somebody_deletes_is_made_again(stage: Stage, kind: str) -> None:
    await stage.start(make_operator())
    preview = Preview(stage)
    await preview.ask()
    await preview.ready()
    found = (await preview.children())[kind]
    await stage.client.delete(kind, found["metadata"]["name"], namespace=preview.place)

    async def back() -> bool:
        new = (await preview.children())[kind]
        return new is not None and new["metadata"]["uid"] != found["metadata"]["uid"]

    await stage.until(back, f"{kind} is made again")


async def test_what_somebody_changes_is_put_back(stage: Stage) -> None:
    await stage.start(make_operator())
    preview = Preview(stage)
    await preview.ask()
    await preview.ready()
    await stage.client.patch(
        NETWORK_POLICY, f"pr-{preview.number}-netpol", {"spec": {"egress": [{}]}}, namespace=preview.place
    )
    await stage.client.patch(NAMESPACE, preview.place, {"metadata": {"labels": {"pr-number": "7", "x": "y"}}})

    async def put_back() -> bool:
        policy = await preview.child(NETWORK_POLICY, "netpol")
        labels = (await stage.get(NAMESPACE, preview.place))["metadata"]["labels"]
        return (
            len(policy["spec"]["egress"]) == 3
            and labels["pr-number"] == str(preview.number)
            and labels["x"] == "y"
        )

    await stage.until(put_back, "our fields are put back and others' stay")


async def test_deleting_a_preview_deletes_its_namespace_with_all_in_it(stage: Stage) -> None:
    await stage.start(make_operator())
    preview = Preview(stage)
    await preview.ask()
    await preview.ready()
    await preview.delete()
    await preview.gone()
    assert not any((await preview.children()).values())


async def test_a_restart_writes_nothing_and_keeps_the_gauge_right(stage: Stage) -> None:
    await stage.start(make_operator())
    one, two = Preview(stage), Preview(stage, stage.number + 1)
    await one.ask()
    await two.ask()
    await one.ready()
    await two.ready()
    await stage.at_rest()
    active = stage.metrics()["preview_environments_active"]
    await stage.harness.stop()
    before = len(stage.writes())
    await stage.start(make_operator())
    await stage.clock.sleep(5)
    assert stage.writes()[before:] == []
    assert stage.metrics()["preview_environments_active"] == active
    await two.delete()
    await two.gone()
    assert stage.metrics()["preview_environments_active"] == active - 1


@pytest.mark.virtual_time
async def test_a_preview_goes_within_a_second_of_its_time(stage: Stage) -> None:
    await stage.start(make_operator())
    preview = Preview(stage)
    asked = await preview.ask(ttl_seconds=3600)
    assert asked.metadata.creation_timestamp is not None
    due = asked.metadata.creation_timestamp + timedelta(seconds=3600)
    assert (await preview.ready()).status.expires_at == due
    await stage.clock.sleep((due - stage.clock.now()).total_seconds() - 1)
    assert (await stage.get(PreviewEnvironment, preview.name)).metadata.deletion_timestamp is None
    await stage.clock.sleep(2)
    deleted = await stage.get(PreviewEnvironment, preview.name)
    assert deleted is None or deleted.metadata.deletion_timestamp is not None
    await preview.gone()
    assert stage.metrics()["preview_environments_expired_total"] == 1
    assert stage.metrics()["preview_environments_active"] == 0


@pytest.mark.virtual_time
async def test_a_time_that_is_changed_counts_from_the_creation(stage: Stage) -> None:
    await stage.start(make_operator())
    preview = Preview(stage)
    await preview.ask(ttl_seconds=60)
    await preview.ready()
    await preview.ask(ttl_seconds=600)
    await stage.clock.sleep(300)
    assert (await preview.ready()).metadata.deletion_timestamp is None
    await preview.ask(ttl_seconds=120)
    await preview.gone()
    assert stage.metrics()["preview_environments_expired_total"] == 1


@pytest.mark.virtual_time
async def test_a_time_that_ran_out_while_the_operator_was_away_is_up_at_once(stage: Stage) -> None:
    await stage.start(make_operator())
    preview = Preview(stage)
    await preview.ask(ttl_seconds=60)
    await preview.ready()
    await stage.harness.stop()
    await stage.clock.sleep(7200)
    await stage.start(make_operator())
    await preview.gone()


async def test_two_pull_requests_live_side_by_side(stage: Stage) -> None:
    await stage.start(make_operator())
    one, two = Preview(stage), Preview(stage, stage.number + 1)
    await one.ask()
    await two.ask(image_tag="other")
    urls = {(await one.ready()).status.url, (await two.ready()).status.url}
    assert len(urls) == 2
    await one.delete()
    await one.gone()
    assert all((await two.children()).values())
    assert (await two.ready()).status.phase == "Ready"


async def test_a_foreign_namespace_is_refused_and_left_alone(stage: Stage) -> None:
    preview = Preview(stage)
    foreign = await stage.make_namespace(preview.place, team="other")
    await stage.start(make_operator())
    await preview.ask()
    found = await stage.condition(PreviewEnvironment, preview.name, "False", reason="NamespaceNotOurs")
    assert found.status.phase == "Failed"
    assert f"namespace {preview.place} belongs to somebody else" in found.status.condition("Ready").message
    assert not any((await preview.children()).values())
    await preview.delete()
    await stage.gone(PreviewEnvironment, preview.name)
    kept = await stage.get(NAMESPACE, preview.place)
    assert kept["metadata"]["uid"] == foreign["metadata"]["uid"]
    assert "deletionTimestamp" not in kept["metadata"]
    assert kept["metadata"]["labels"].get("managed-by") is None
    await stage.client.delete(NAMESPACE, preview.place)


async def test_a_preview_is_made_once_the_foreign_namespace_is_gone(stage: Stage) -> None:
    preview = Preview(stage)
    await stage.make_namespace(preview.place)
    await stage.start(make_operator())
    await preview.ask()
    await stage.condition(PreviewEnvironment, preview.name, "False", reason="NamespaceNotOurs")
    await stage.client.delete(NAMESPACE, preview.place)
    await preview.ready()


async def test_a_second_preview_of_one_pull_request_waits_for_the_first(stage: Stage) -> None:
    await stage.start(make_operator())
    first, second = Preview(stage), Preview(stage, name="again")
    await first.ask()
    await first.ready()
    await second.ask(image_tag="other")
    refused = await stage.condition(PreviewEnvironment, "again", "False", reason="NamespaceNotOurs")
    assert f"belongs to {stage.namespace}/{first.name}" in refused.status.condition("Ready").message
    assert (await first.ready()).status.image == "youruser/my-app:a3f9c2d"
    await first.delete()
    await stage.gone(PreviewEnvironment, first.name)
    assert (await second.ready()).status.image == "youruser/my-app:other"


async def test_a_namespace_that_was_replaced_is_not_ours_whatever_its_labels_say(stage: Stage) -> None:
    await stage.start(make_operator())
    preview = Preview(stage)
    asked = await preview.ask()
    await preview.ready()
    await stage.harness.stop()
    await stage.client.delete(NAMESPACE, preview.place)
    await stage.gone(NAMESPACE, preview.place, namespace="")
    forged = await stage.make_namespace(preview.place, **{OWNER_UID: asked.metadata.uid})
    await stage.start(make_operator())
    found = await stage.condition(PreviewEnvironment, preview.name, "False", reason="NamespaceNotOurs")
    assert "is not the one that was made" in found.status.condition("Ready").message
    await preview.delete()
    await stage.gone(PreviewEnvironment, preview.name)
    kept = await stage.get(NAMESPACE, preview.place)
    assert kept["metadata"]["uid"] == forged["metadata"]["uid"]
    assert "deletionTimestamp" not in kept["metadata"]
    await stage.client.delete(NAMESPACE, preview.place)


async def test_a_namespace_that_somebody_deletes_is_made_again(stage: Stage) -> None:
    await stage.start(make_operator())
    preview = Preview(stage)
    await preview.ask()
    old = (await preview.ready()).status.namespace
    assert old is not None
    await stage.client.delete(NAMESPACE, preview.place)

    async def remade() -> bool:
        found = await stage.get(PreviewEnvironment, preview.name)
        new = found.status.namespace
        return new is not None and new.uid != old.uid and found.status.is_true("Ready")

    await stage.until(remade, "the namespace is made again")
    assert all((await preview.children()).values())


async def test_a_namespace_that_does_not_go_is_reported_with_what_blocks_it(stage: Stage) -> None:
    await stage.start(make_operator(Settings(deletion_report_after=2)))
    preview = Preview(stage)
    await preview.ask()
    await preview.ready()
    stuck = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "stuck", "namespace": preview.place, "finalizers": ["example.com/never"]},
    }
    await stage.client.create(stuck)
    await preview.delete()

    async def reported() -> bool:
        found = await stage.get(PreviewEnvironment, preview.name)
        condition = found.status.condition("Ready")
        return condition.reason == "NamespaceTerminating" and "example.com/never" in condition.message

    await stage.until(reported, "the condition names the finalizer that blocks")
    await stage.client.patch(
        "v1/ConfigMap", "stuck", {"metadata": {"finalizers": None}}, namespace=preview.place
    )
    await preview.gone()


async def test_the_six_metrics_have_their_names_and_labels(stage: Stage) -> None:
    await stage.start(make_operator())
    preview = Preview(stage)
    await preview.ask()
    await preview.ready()
    await stage.at_rest()
    told = stage.metrics()
    assert told[f'preview_environments_created_total{{branch_name="feature/{preview.number}"}}'] == 1
    assert told[f'preview_environments_reconcile_total{{pr_number="{preview.number}"}}'] >= 1
    assert told["preview_environments_active"] >= 1
    assert told["preview_environments_expired_total"] == 0
    assert told["preview_environment_creation_duration_seconds_count"] == 1
    bounds = [
        name.split('"')[1]
        for name in told
        if name.startswith("preview_environment_creation_duration_seconds_b")
    ]
    assert bounds == ["1.0", "2.0", "5.0", "10.0", "20.0", "30.0", "60.0", "+Inf"]


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("resource", "step"),
    [("deployments", "deployment"), ("services", "service"), ("ingresses", "ingress")],
)
async def test_a_failure_is_counted_by_its_step_and_overcome(
    stage: Stage, faults: FaultPlan, resource: str, step: str
) -> None:
    faults.add(Rule(action=Answer(code=500), verb="write", resource=resource, client="operator", nth=1))
    await stage.start(make_operator())
    preview = Preview(stage)
    await preview.ask()
    await preview.ready()
    assert stage.metrics()[f'preview_environments_failed_total{{step="{step}"}}'] == 1


@pytest.mark.virtual_time
async def test_a_failed_update_is_counted_as_one(stage: Stage, faults: FaultPlan) -> None:
    await stage.start(make_operator())
    preview = Preview(stage)
    await preview.ask()
    await preview.ready()
    faults.add(Rule(action=Answer(code=500), verb="write", resource="deployments", client="operator", nth=1))
    await preview.ask(image_tag="newer")
    await preview.ready()
    assert stage.metrics()['preview_environments_failed_total{step="update"}'] == 1


async def touched(preview: Preview) -> None:
    """A reconcile for no reason."""
    patch = {"metadata": {"annotations": {"example.com/touched": "1"}}}
    await preview.stage.client.patch(
        PreviewEnvironment, preview.name, patch, namespace=preview.stage.namespace
    )
    await preview.stage.at_rest()


@pytest.mark.virtual_time
async def test_a_rollout_that_fails_is_told_and_counted_once(stage: Stage) -> None:
    preview = Preview(stage)
    stage.harness.cluster.workloads.crash(f"{preview.place}/*", exit_code=1)
    await stage.start(make_operator())
    await preview.ask()
    await stage.clock.sleep(700)
    found = await stage.condition(PreviewEnvironment, preview.name, "False", reason="RolloutFailed")
    assert found.status.phase == "Failed"
    await touched(preview)
    assert stage.metrics()['preview_environments_failed_total{step="deployment"}'] == 1
    assert (
        f'preview_environments_created_total{{branch_name="feature/{preview.number}"}}' not in stage.metrics()
    )


@pytest.mark.virtual_time
async def test_a_namespace_in_the_way_is_counted_once(stage: Stage) -> None:
    preview = Preview(stage)
    await stage.make_namespace(preview.place)
    await stage.start(make_operator())
    await preview.ask()
    await stage.condition(PreviewEnvironment, preview.name, "False", reason="NamespaceNotOurs")
    await touched(preview)
    assert stage.metrics()['preview_environments_failed_total{step="namespace"}'] == 1


@pytest.mark.parametrize(
    ("changed", "done"),
    [
        ({}, True),
        ({"observedGeneration": 1}, False),
        ({"updatedReplicas": 0}, False),
        ({"availableReplicas": 0}, False),
        ({"replicas": 2}, False),
    ],
)
def test_a_rollout_is_done_when_the_present_version_alone_is_available(
    changed: dict[str, int], done: bool
) -> None:
    counts = {"observedGeneration": 2, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1}
    deployment = {"metadata": {"generation": 2}, "spec": {"replicas": 1}, "status": {**counts, **changed}}
    assert rolled_out(deployment) is done


def test_a_rollout_has_failed_when_its_deployment_says_so() -> None:
    stuck = {"type": "Progressing", "status": "False", "message": "deadline exceeded"}
    refused = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}
    assert failed_rollout({"status": {"conditions": [stuck]}}) == "deadline exceeded"
    assert failed_rollout({"status": {"conditions": [refused]}}) == "exceeded quota"
    assert failed_rollout({"status": {"conditions": [{"type": "Available", "status": "False"}]}}) == ""


async def test_the_declared_rights_are_enough_and_none_is_too_many(stage: Stage) -> None:
    operator, audit = make_operator(), Audit()

    def observe(recorded: RecordedCall) -> None:
        audit(recorded.call, recorded.status, 0)

    stage.harness.observers.append(observe)
    await stage.start(operator)
    preview = Preview(stage)
    await preview.ask(ttl_seconds=60)
    await preview.ready()
    await stage.client.patch(NAMESPACE, preview.place, {"metadata": {"labels": {"pr-number": "7"}}})
    await stage.gone(PreviewEnvironment, preview.name, seconds=120)
    surplus = audit.verify(grants(operator.rights(), namespace="default", scope="ClusterRole"))
    assert {each for each in surplus if "events" not in each and "leases" not in each} == set()


# -- crash at every write ------------------------------------------------------------------------------------------


def scenario(*, expires: bool) -> Scenario:
    manifest = {
        "apiVersion": PreviewEnvironment.api_version,
        "kind": PreviewEnvironment.kind,
        "metadata": {"name": "pr-42-env", "namespace": "default"},
        "spec": spec(42, **({"ttl_seconds": 60} if expires else {})),
    }

    async def prepare(harness: Harness) -> None:
        await harness.install(PreviewEnvironment)
        await harness.apply(manifest)

    return Scenario(operator=make_operator, prepare=prepare, ignore=["pods"])


@pytest.mark.virtual_time
@pytest.mark.parametrize("expires", [False, True], ids=["created", "expired"])
async def test_a_crash_at_any_write_changes_nothing_in_the_end(expires: bool, record_property: Any) -> None:
    report = await crash_at_every_write(scenario(expires=expires))
    record_property("sweep", f"preview {'expired' if expires else 'created'}: {report}")
    assert not report.failures, str(report)
    assert report.points >= 3 * 6
