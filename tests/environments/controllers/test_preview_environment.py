"""PreviewEnvironments: creation, changes and deletion."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kapsa.environments.controllers.preview_environment import (
    CHILDREN,
    DEPLOYMENT,
    INGRESS,
    NETWORK_POLICY,
    SERVICE,
    failed_rollout,
    rolled_out,
)
from kapsa.environments.names import OWNER_UID
from kapsa.environments.resources import DomainPool, PreviewEnvironment, Registry
from kapsa.environments.settings import Settings
from kapsa.runtime import Audit, grants
from kapsa.runtime.testing import Harness, RecordedCall, Sample, Scenario, crash_at_every_write
from tests.environments.announced_address import PUBLIC_ADDRESS, announce, closed
from tests.environments.previews import NAMESPACE, Preview, make_operator, spec
from tests.environments.sandbox import Sandbox


async def test_a_preview_gets_its_namespace_deployment_service_ingress_and_policy(sandbox: Sandbox) -> None:
    await sandbox.start(make_operator())
    preview = Preview(sandbox)
    asked = await preview.ask()
    resource = await preview.ready()
    n = preview.number
    namespace = await sandbox.get(NAMESPACE, preview.namespace)
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
        "requests": {"cpu": "100m", "memory": "128Mi", "ephemeral-storage": "128Mi"},
        "limits": {"cpu": "250m", "memory": "256Mi", "ephemeral-storage": "2Gi"},
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
    assert resource.status.phase == "Ready"
    assert resource.status.url == f"https://{host}"
    assert resource.status.image == "youruser/my-app:a3f9c2d"
    assert resource.status.namespace is not None
    assert resource.status.namespace.uid == namespace["metadata"]["uid"]


async def test_a_preview_is_reached_by_the_ingress_controller_alone_and_reaches_nothing_of_the_cluster(
    sandbox: Sandbox,
) -> None:
    settings = Settings(ingress_namespace="gates", api_server_cidrs=("203.0.113.7/32", "2001:db8::7/128"))
    await sandbox.start(make_operator(settings))
    preview = Preview(sandbox)
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
    assert dns["ports"] == [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]
    system = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}
    assert dns["to"] == [system, {"ipBlock": {"cidr": "169.254.20.10/32"}}], "not at any address"
    four, six = (each["ipBlock"] for each in outside["to"])
    assert (four["cidr"], six["cidr"]) == ("0.0.0.0/0", "::/0")
    assert {"10.0.0.0/8", "169.254.0.0/16", "203.0.113.7/32"} <= set(four["except"])
    assert {"fc00::/7", "fe80::/10", "2001:db8::7/128"} <= set(six["except"])


@pytest.mark.virtual_time
async def test_a_preview_does_not_reach_a_public_address_that_the_api_server_announces(
    sandbox: Sandbox,
) -> None:
    await announce(sandbox)
    await sandbox.start(make_operator())
    preview = Preview(sandbox)
    await preview.ask()
    await preview.ready()
    assert f"{PUBLIC_ADDRESS}/32" in closed(
        (await preview.child(NETWORK_POLICY, "netpol"))["spec"]["egress"][2]
    )

    async def follows() -> bool:
        policy = (await preview.child(NETWORK_POLICY, "netpol"))["spec"]
        return "203.0.114.8/32" in closed(policy["egress"][2])

    await announce(sandbox, "203.0.114.8")
    await sandbox.until(follows, "the policy has the new address")


async def test_a_preview_is_nobody_to_the_api_server_and_its_namespace_enforces_pod_security(
    sandbox: Sandbox,
) -> None:
    await sandbox.start(make_operator())
    preview = Preview(sandbox)
    await preview.ask()
    await preview.ready()
    deployment = await preview.child(DEPLOYMENT, "app")
    assert deployment["spec"]["template"]["spec"]["automountServiceAccountToken"] is False
    labels = (await sandbox.get(NAMESPACE, preview.namespace))["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "baseline"


async def test_without_an_issuer_the_ingress_controllers_own_certificate_is_used(sandbox: Sandbox) -> None:
    await sandbox.start(make_operator(Settings(preview_environment_issuer="")))
    preview = Preview(sandbox)
    await preview.ask()
    await preview.ready()
    ingress = await preview.child(INGRESS, "ingress")
    assert not any(name.startswith("cert-manager.io/") for name in ingress["metadata"]["annotations"])
    assert ingress["spec"]["tls"] == [{"hosts": [f"pr-{preview.number}.preview.orimatest.com"]}]


async def test_domain_issuer_and_class_can_be_set(sandbox: Sandbox) -> None:
    settings = Settings.from_environment(
        {
            "KAPSA_PREVIEW_ENVIRONMENT_DOMAIN": "try.example.org",
            "KAPSA_PREVIEW_ENVIRONMENT_ISSUER": "internal",
            "KAPSA_INGRESS_CLASS": "traefik",
        }
    )
    await sandbox.start(make_operator(settings))
    preview = Preview(sandbox)
    await preview.ask()
    assert (await preview.ready()).status.url == f"https://pr-{preview.number}.try.example.org"
    ingress = await preview.child(INGRESS, "ingress")
    assert ingress["metadata"]["annotations"]["cert-manager.io/cluster-issuer"] == "internal"
    assert ingress["spec"]["ingressClassName"] == "traefik"


async def test_a_new_tag_rolls_out_and_touches_nothing_else(sandbox: Sandbox) -> None:
    await sandbox.start(make_operator())
    preview = Preview(sandbox)
    await preview.ask()
    await preview.ready()
    await sandbox.at_rest()
    before = len(sandbox.writes())
    await preview.ask(image_tag="b1c2d3e")
    assert (await preview.ready()).status.image == "youruser/my-app:b1c2d3e"
    deployment = await preview.child(DEPLOYMENT, "app")
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "youruser/my-app:b1c2d3e"
    await sandbox.at_rest()
    written = {each.call.resource for each in sandbox.writes()[before:]}
    assert written == {"deployments", "previewenvironments"}


async def test_an_update_that_finds_nothing_makes_everything_again(sandbox: Sandbox) -> None:
    await sandbox.start(make_operator())
    preview = Preview(sandbox)
    await preview.ask()
    await preview.ready()
    await sandbox.harness.stop()
    old = {kind: child["metadata"]["uid"] for kind, child in (await preview.children()).items()}
    for kind, child in (await preview.children()).items():
        await sandbox.client.delete(kind, child["metadata"]["name"], namespace=preview.namespace)
    await preview.ask(image_tag="b1c2d3e")
    await sandbox.start(make_operator())

    async def all_are_back() -> bool:
        child = await preview.children()
        return all(each and each["metadata"]["uid"] != old[kind] for kind, each in child.items())

    await sandbox.until(all_are_back, "all children are made again, the NetworkPolicy included")
    await preview.ready()


@pytest.mark.parametrize("kind", CHILDREN)
async def test_a_child_that_somebody_deletes_is_made_again(sandbox: Sandbox, kind: str) -> None:
    await sandbox.start(make_operator())
    preview = Preview(sandbox)
    await preview.ask()
    await preview.ready()
    child = (await preview.children())[kind]
    await sandbox.client.delete(kind, child["metadata"]["name"], namespace=preview.namespace)

    async def back() -> bool:
        new = (await preview.children())[kind]
        return new is not None and new["metadata"]["uid"] != child["metadata"]["uid"]

    await sandbox.until(back, f"{kind} is made again")


async def test_what_somebody_changes_is_put_back(sandbox: Sandbox) -> None:
    await sandbox.start(make_operator())
    preview = Preview(sandbox)
    await preview.ask()
    await preview.ready()
    await sandbox.client.patch(
        NETWORK_POLICY, f"pr-{preview.number}-netpol", {"spec": {"egress": [{}]}}, namespace=preview.namespace
    )
    await sandbox.client.patch(
        NAMESPACE, preview.namespace, {"metadata": {"labels": {"pr-number": "7", "x": "y"}}}
    )

    async def put_back() -> bool:
        policy = await preview.child(NETWORK_POLICY, "netpol")
        labels = (await sandbox.get(NAMESPACE, preview.namespace))["metadata"]["labels"]
        return (
            len(policy["spec"]["egress"]) == 3
            and labels["pr-number"] == str(preview.number)
            and labels["x"] == "y"
        )

    await sandbox.until(put_back, "our fields are put back and others' stay")


async def test_deleting_a_preview_deletes_its_namespace_with_all_in_it(sandbox: Sandbox) -> None:
    await sandbox.start(make_operator())
    preview = Preview(sandbox)
    await preview.ask()
    await preview.ready()
    await preview.delete()
    await preview.gone()
    assert not any((await preview.children()).values())


async def test_a_restart_writes_nothing_and_keeps_the_gauge_right(sandbox: Sandbox) -> None:
    await sandbox.start(make_operator())
    one, two = Preview(sandbox), Preview(sandbox, sandbox.number + 1)
    await one.ask()
    await two.ask()
    await one.ready()
    await two.ready()
    await sandbox.at_rest()
    active = sandbox.metrics()["preview_environments_active"]
    await sandbox.harness.stop()
    before = len(sandbox.writes())
    await sandbox.start(make_operator())
    await sandbox.clock.sleep(5)
    assert sandbox.writes()[before:] == []
    assert sandbox.metrics()["preview_environments_active"] == active
    await two.delete()
    await two.gone()
    assert sandbox.metrics()["preview_environments_active"] == active - 1


@pytest.mark.virtual_time
async def test_a_preview_goes_within_a_second_of_its_time(sandbox: Sandbox) -> None:
    await sandbox.start(make_operator())
    preview = Preview(sandbox)
    asked = await preview.ask(ttl_seconds=3600)
    assert asked.metadata.creation_timestamp is not None
    due = asked.metadata.creation_timestamp + timedelta(seconds=3600)
    assert (await preview.ready()).status.expires_at == due
    await sandbox.clock.sleep((due - sandbox.clock.now()).total_seconds() - 1)
    assert (await sandbox.get(PreviewEnvironment, preview.name)).metadata.deletion_timestamp is None
    await sandbox.clock.sleep(2)
    deleted = await sandbox.get(PreviewEnvironment, preview.name)
    assert deleted is None or deleted.metadata.deletion_timestamp is not None
    await preview.gone()
    assert sandbox.metrics()["preview_environments_expired_total"] == 1
    assert sandbox.metrics()["preview_environments_active"] == 0


@pytest.mark.virtual_time
async def test_a_time_that_is_changed_counts_from_the_creation(sandbox: Sandbox) -> None:
    await sandbox.start(make_operator())
    preview = Preview(sandbox)
    await preview.ask(ttl_seconds=60)
    await preview.ready()
    await preview.ask(ttl_seconds=600)
    await sandbox.clock.sleep(300)
    assert (await preview.ready()).metadata.deletion_timestamp is None
    await preview.ask(ttl_seconds=120)
    await preview.gone()
    assert sandbox.metrics()["preview_environments_expired_total"] == 1


@pytest.mark.virtual_time
async def test_a_time_that_ran_out_while_the_operator_was_away_is_up_at_once(sandbox: Sandbox) -> None:
    await sandbox.start(make_operator())
    preview = Preview(sandbox)
    await preview.ask(ttl_seconds=60)
    await preview.ready()
    await sandbox.harness.stop()
    await sandbox.clock.sleep(7200)
    await sandbox.start(make_operator())
    await preview.gone()


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


async def test_the_declared_rights_are_enough_and_none_is_too_many(sandbox: Sandbox) -> None:
    domain = f"{sandbox.unique}.example.com"
    operator, audit = make_operator(Settings(preview_environment_domain=domain)), Audit()

    def observe(recorded: RecordedCall) -> None:
        audit(recorded.call, recorded.status, 0)

    sandbox.harness.observers.append(observe)
    await sandbox.start(operator)
    preview = Preview(sandbox)
    await preview.ask(ttl_seconds=60)
    await preview.ready()
    pool = {"baseDomains": [domain]}
    await sandbox.apply(DomainPool, sandbox.unique, {**pool, "allowedNamespaces": {"names": ["others"]}})
    await sandbox.condition(PreviewEnvironment, preview.name, "False", reason="DomainPoolNotAllowed")
    await sandbox.apply(DomainPool, sandbox.unique, pool)
    await preview.ready()
    await sandbox.client.patch(NAMESPACE, preview.namespace, {"metadata": {"labels": {"pr-number": "7"}}})
    await sandbox.gone(PreviewEnvironment, preview.name, seconds=120)
    surplus = audit.verify(grants(operator.rights(), namespace="default", scope="ClusterRole"))
    assert {each for each in surplus if "events" not in each and "leases" not in each} == set()


# -- crash at every write ------------------------------------------------------------------------------------


def scenario(*, expires: bool) -> Scenario:
    manifest = {
        "apiVersion": PreviewEnvironment.api_version,
        "kind": PreviewEnvironment.kind,
        "metadata": {"name": "pr-42-env", "namespace": "default"},
        "spec": spec(42, **({"ttl_seconds": 60} if expires else {})),
    }

    async def prepare(harness: Harness) -> None:
        await harness.install(PreviewEnvironment, DomainPool, Registry)
        await harness.apply(manifest)

    return Scenario(operator=make_operator, prepare=prepare, ignore=["pods"])


@pytest.mark.virtual_time
@pytest.mark.parametrize("expires", [False, True], ids=["created", "expired"])
async def test_a_crash_at_any_write_changes_nothing_in_the_end(
    expires: bool, sample: Sample | None, record_property: Any
) -> None:
    report = await crash_at_every_write(scenario(expires=expires), sample=sample)
    record_property("sweep", f"preview {'expired' if expires else 'created'}: {report}")
    assert not report.failures, str(report)
    assert report.total >= (36 if expires else 24)
