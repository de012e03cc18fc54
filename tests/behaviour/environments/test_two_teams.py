"""Two teams, one hostile, share a cluster, a Registry and a DomainPool: the hostile team gets nothing of the other's.

On the real engine the operator runs with the service account of its manifests.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from kapsa.adapters.testing.git_server import GitServer
from kapsa.adapters.testing.registry_server import RegistryServer
from kapsa.environments.names import OWNER, OWNER_UID, namespace_name
from kapsa.environments.resources import Environment, Project
from kapsa.runtime import Invalid
from tests.behaviour.environments.two_teams import HOSTILE_USER, TwoTeams, two_teams
from tests.environments.fakes import deployment, service
from tests.environments.sandbox import Sandbox

pytestmark = [pytest.mark.timeout(1200), pytest.mark.long]

MANIFESTS = {"deployment": {"type": "manifest", "path": "deploy"}}


@pytest_asyncio.fixture
async def teams(
    sandbox: Sandbox, git_server: GitServer, registry_server: RegistryServer, tmp_path: Path
) -> AsyncIterator[TwoTeams]:
    async with two_teams(sandbox, git_server, registry_server, tmp_path) as made:
        yield made


async def test_a_hostile_team_gets_no_images_hosts_keys_namespaces_or_pods_of_another(
    teams: TwoTeams,
) -> None:
    before = await the_shop_opens(teams)
    await the_hostile_team_starts(teams)
    await it_cannot_run_the_images(teams, before)
    await it_cannot_take_the_hosts(teams)
    await it_cannot_name_the_keys(teams)
    await it_cannot_wait_for_the_shared_key(teams, before)
    await it_cannot_take_the_namespaces(teams)
    await it_cannot_reach_the_pods(teams)
    await nothing_of_the_shops_is_in_its_namespaces(teams)
    await its_end_harms_nobody(teams, before)


async def the_shop_opens(teams: TwoTeams) -> Environment:
    """Deploy the shop, with a private image, a host, a secret and a preview of a pull request."""
    shop = teams.shop
    commit = shop.repository.commit({"README.md": "The shop."})
    teams.e2e.registry.push(f"{shop.namespace}/app", commit)
    await shop.project(teams.registry, secrets=[{"name": "keys"}])
    await shop.environment("one", commit, ingress={"host": f"shop.{teams.domain}"})
    ready = await shop.ready("one")
    await teams.preview(shop, teams.sandbox.number)
    await teams.preview_ends(shop, teams.sandbox.number, "Available")
    assert await teams.keys_in(shop.namespace_of("one")) == ["pull", "project"], "the shop itself has its own"
    return ready


async def the_hostile_team_starts(teams: TwoTeams) -> None:
    """Deploy an innocent environment of the hostile team: what follows is refused for a reason."""
    await teams.evil.project(teams.registry, **MANIFESTS)
    await attack(teams, "innocent", web("nginx:1"), service("web"))
    await teams.evil.ready("innocent")


def web(image: str, **pod: Any) -> dict[str, Any]:
    """Return a Deployment whose pods run an image."""
    made = copy.deepcopy(deployment("web", image))
    made["spec"]["template"]["spec"].update(pod)
    return made


async def attack(
    teams: TwoTeams, name: str, *objects: Mapping[str, Any], project: str = "app", **spec: Any
) -> None:
    """Commit these objects to a branch of the hostile team, and ask for an environment of it."""
    text = yaml.safe_dump_all([dict(each) for each in objects or (web("nginx:1"), service("web"))])
    repository = teams.evil.repository
    commit = repository.commit({"deploy/app.yaml": text, "name": name}, branch=name)
    teams.e2e.registry.push(f"{teams.evil.namespace}/app", commit)
    home = namespace_name(teams.evil.namespace, project)
    await teams.evil.environment(name, commit, project=project, namespace=home, **spec)


async def it_cannot_run_the_images(teams: TwoTeams, shops: Environment) -> None:
    repository = f"{teams.e2e.registry.endpoint}/{teams.shop.namespace}/app"
    assert shops.status.image is not None
    assert shops.status.image.startswith(f"{repository}@sha256:")
    first = {"initContainers": [{"name": "first", "image": shops.status.image}]}
    # Without a Registry, the images are those of the manifests.
    await teams.evil.project(teams.registry, name="bare", registry=None, **MANIFESTS)
    by_tag, by_digest = web(f"{repository}:{shops.status.commit_sha}"), web(shops.status.image)
    workloads = {"by-tag": by_tag, "by-digest": by_digest, "in-init": web("nginx:1", **first)}
    for name, workload in workloads.items():
        await attack(teams, name, workload, service("web"), project="bare")
    home = namespace_name(teams.evil.namespace, "bare")
    for name in workloads:
        refused = await teams.evil.ends(name, "ObjectRefused", namespace=home)
        assert refused.status.failure is not None
        assert "may not run" in refused.status.failure.message
        assert await pods(teams, name, project="bare") == []
    await teams.preview(
        teams.evil, teams.sandbox.number + 1, image=repository, tag=str(shops.status.commit_sha)
    )
    await teams.preview_ends(teams.evil, teams.sandbox.number + 1, "RegistryNotAllowed")
    for name, registry in (
        ("named", {"name": teams.registry, "imageRepository": f"{teams.shop.namespace}/app"}),
        ("unnamed", {"imageRepository": repository}),
    ):
        await teams.evil.project(teams.registry, name=name, registry=registry)
        home = namespace_name(teams.evil.namespace, name)
        commit = teams.evil.repository.commit({"name": name}, branch=name)
        teams.e2e.registry.push(f"{teams.shop.namespace}/app", commit)  # as if the shop had the same commit
        await teams.evil.environment("one", commit, project=name, namespace=home)
        await teams.evil.ends("one", "RegistryNotAllowed", namespace=home)


async def pods(teams: TwoTeams, environment: str, *, project: str = "app") -> list[str]:
    namespace = namespace_name(teams.evil.namespace, project, environment)
    listed = await teams.client.list("v1/Pod", namespace=namespace)
    return [each["metadata"]["name"] for each in listed.items]


async def it_cannot_take_the_hosts(teams: TwoTeams) -> None:
    shops, preview = (
        f"shop.{teams.domain}",
        f"pr-{teams.sandbox.number}.{teams.settings.preview_environment_domain}",
    )
    assert {shops, preview} <= set(await teams.allocations())
    await attack(teams, "host", ingress={"host": shops})
    await attack(teams, "host-for-the-shop", ingress={"host": f"shop-sale.{teams.domain}"})
    await attack(teams, "host-of-a-preview", ingress={"host": preview})
    await attack(teams, "host-above", ingress={"host": teams.domain})
    await attack(teams, "host-below", ingress={"host": f"x.{shops}"})
    alias = {"nginx.ingress.kubernetes.io/server-alias": shops}
    await attack(teams, "host-by-annotation", ingress={"annotations": alias})
    await attack(teams, "host-by-manifest", web("nginx:1"), service("web"), ingress_of(shops, preview))
    await attack(
        teams, "host-by-wildcard", web("nginx:1"), service("web"), ingress_of(shops, f"*.{teams.domain}")
    )
    for name, reason in {
        "host": "HostNotAllowed",
        "host-for-the-shop": "HostNotAllowed",
        "host-of-a-preview": "HostReserved",
        "host-above": "HostOutsidePools",
        "host-below": "HostNotAllowed",
        "host-by-annotation": "AnnotationRefused",
        "host-by-manifest": "ObjectsRefused",
        "host-by-wildcard": "ObjectsRefused",
    }.items():
        await teams.evil.ends(name, reason)
    with pytest.raises(Invalid):
        await attack(teams, "wildcard", ingress={"host": f"*.{teams.domain}"})
    await teams.preview(teams.evil, teams.sandbox.number)
    await teams.preview_ends(teams.evil, teams.sandbox.number, "NamespaceNotOurs", "HostTaken")
    holders = await teams.allocations()
    assert holders[shops] == f"{teams.shop.home}/one"
    assert holders[preview].startswith(f"{teams.shop.namespace}/")


def ingress_of(*hosts: str) -> dict[str, Any]:
    """Return an Ingress. With a single host, the operator would set its own."""
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    http = {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": "loot"},
        "spec": {"rules": [{"host": host, "http": http} for host in hosts]},
    }


async def it_cannot_name_the_keys(teams: TwoTeams) -> None:
    """Ask for Secrets of others by name, wherever a name can be given, and mount the own pull secret."""
    loot = [{"name": "loot", "secret": {"secretName": "kapsa-registry"}}]
    await attack(teams, "pull-secret", web("nginx:1", volumes=loot), service("web"))
    await attack(teams, "key-of-tls", ingress={"tls": {"secretName": "wildcard"}})
    await attack(teams, "key-by-reference", config={"secretRefs": [{"name": "keys"}]})
    await teams.evil.ends("pull-secret", "ObjectsRefused")
    await teams.evil.ready("key-of-tls")  # with a certificate of its own, in a Secret of that name
    await teams.evil.ends("key-by-reference", "SecretMissing")
    secrets = [{"name": name} for name in ("keys", "wildcard", "registry", "shop-pull")]
    await teams.evil.project(teams.registry, name="greedy", secrets=secrets, **MANIFESTS)
    home = namespace_name(teams.evil.namespace, "greedy")
    commit = teams.evil.repository.git("rev-parse", "refs/heads/innocent")
    await teams.evil.environment("one", commit, project="greedy", namespace=home)
    await teams.evil.ends("one", "SecretMissing", namespace=home)


async def it_cannot_wait_for_the_shared_key(teams: TwoTeams, shops: Environment) -> None:
    """Deploy what reads the credentials that all teams pull with, before a Registry has them, then name the Registry."""
    shop, evil, name = teams.shop, teams.evil, teams.shared_secret
    home = namespace_name(evil.namespace, "patient")
    waits = {"volumes": [{"name": "loot", "secret": {"secretName": name, "optional": True}}]}
    await evil.project(teams.registry, name="patient", registry=None, **MANIFESTS)
    await attack(teams, "early", web("nginx:1", **waits), service("web"), project="patient")
    await evil.ends("early", "Ready", namespace=home)

    await teams.open_shared_registry()
    registry = {"name": teams.shared_registry, "imageRepository": f"{shop.namespace}/app"}
    await shop.project(teams.registry, name="shared", registry=registry)
    assert shops.status.commit_sha is not None
    shops_home = namespace_name(shop.namespace, "shared")
    await shop.environment("one", shops.status.commit_sha, project="shared", namespace=shops_home)
    await shop.ends("one", "Ready", namespace=shops_home)
    assert await teams.keys_in(namespace_name(shop.namespace, "shared", "one")) == ["shared pull"]

    bare = namespace_name(evil.namespace, "bare")
    await attack(teams, "late", web("nginx:1", **waits), service("web"), project="bare")
    await evil.ends("late", "ObjectsRefused", namespace=bare)
    registry = {"name": teams.shared_registry, "imageRepository": f"{evil.namespace}/app"}
    await evil.project(teams.registry, name="patient", registry=registry, **MANIFESTS)
    await evil.ends("early", "ObjectsRefused", namespace=home)
    await teams.sandbox.event("PullSecretWithheld", "Deployment web")
    early = namespace_name(evil.namespace, "patient", "early")
    assert await teams.keys_in(early) == []
    assert not await teams.may(HOSTILE_USER, "get", "secrets", early), "nor could its people read a copy"


async def it_cannot_take_the_namespaces(teams: TwoTeams) -> None:
    """Take the name of a namespace, its labels, and the link from it to a Project."""
    shop, evil = teams.shop, teams.evil
    project: Project = await teams.client.get(Project, "app", namespace=shop.namespace)
    await evil.project(teams.registry, name="shop-app", **MANIFESTS)
    await teams.sandbox.until(
        lambda: has_reason(teams, "shop-app", "NamespaceNotOurs"),
        "the project whose namespace is the shop's is refused",
        seconds=300,
    )
    one = await shop.get("one")
    copied, linked = f"{evil.namespace}-copied", f"{evil.namespace}-linked"
    await teams.sandbox.make_namespace(copied, **{OWNER_UID: one.metadata.uid})
    early = shop.namespace_of("next")
    await teams.sandbox.make_namespace(early)
    assert one.status.commit_sha is not None
    await shop.environment("next", one.status.commit_sha)
    await shop.ends("next", "NamespaceNotOurs")
    assert "deletionTimestamp" not in (await teams.client.get("v1/Namespace", copied))["metadata"]
    await teams.sandbox.make_namespace(linked, **{OWNER_UID: project.metadata.uid})
    owned = {"metadata": {"annotations": {OWNER: f"{shop.namespace}/app"}}}
    await teams.client.patch("v1/Namespace", linked, owned)
    await evil.environment("one", one.status.commit_sha, namespace=linked)
    await evil.ends("one", "ProjectMissing", namespace=linked)
    for namespace in (copied, early, linked):
        assert await teams.keys_in(namespace) == []


async def has_reason(teams: TwoTeams, project: str, reason: str) -> bool:
    made: Project = await teams.client.get(Project, project, namespace=teams.evil.namespace)
    ready = made.status.condition("Ready")
    return ready is not None and ready.reason == reason


async def it_cannot_reach_the_pods(teams: TwoTeams) -> None:
    """Use rights, accounts and the network."""
    shop, evil = teams.shop, teams.evil
    assert await teams.may(HOSTILE_USER, "get", "secrets", evil.namespace), "it administers its own namespace"
    account = f"system:serviceaccount:{evil.namespace_of('innocent')}:default"
    for namespace in (
        shop.namespace,
        shop.home,
        shop.namespace_of("one"),
        teams.settings.namespace,
        teams.settings.build_namespace,
    ):
        for user in (HOSTILE_USER, account):
            for verb, resource, subresource in (
                ("get", "secrets", ""),
                ("list", "pods", ""),
                ("create", "pods", ""),
                ("create", "pods", "exec"),
                ("create", "pods", "portforward"),
                ("get", "pods", "log"),
                ("create", "serviceaccounts", "token"),
            ):
                allowed = await teams.may(user, verb, resource, namespace, subresource=subresource)
                assert not allowed, f"{user} may {verb} {resource}/{subresource} in {namespace}"
    policies = await teams.client.list(
        "networking.k8s.io/v1/NetworkPolicy", namespace=shop.namespace_of("one")
    )
    stranger = (await teams.client.get("v1/Namespace", evil.namespace_of("innocent")))["metadata"]["labels"]
    assert any(is_closed(each["spec"]) for each in policies.items), "all pods are closed by default"
    assert not [each for each in policies.items if lets_in(each["spec"], stranger)]
    token = [{"name": "loot", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}]
    await attack(teams, "token", web("nginx:1", volumes=token), service("web"))
    await attack(teams, "mounted", web("nginx:1", automountServiceAccountToken=True), service("web"))
    await attack(teams, "host-network", web("nginx:1", hostNetwork=True), service("web"))
    await attack(teams, "every-node", web("nginx:1", tolerations=[{"operator": "Exists"}]), service("web"))
    await attack(teams, "rights", web("nginx:1"), service("web"), role_binding(shop.namespace_of("one")))
    for name in ("token", "host-network", "every-node", "rights"):
        await evil.ends(name, "ObjectsRefused")
        assert await pods(teams, name) == []
    await evil.ready("mounted")
    for pod in (await teams.client.list("v1/Pod", namespace=evil.namespace_of("mounted"))).items:
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert not pod["spec"].get("volumes")


def is_closed(policy: Mapping[str, Any]) -> bool:
    return (
        policy["podSelector"] == {}
        and set(policy["policyTypes"]) == {"Ingress", "Egress"}
        and not (policy.get("ingress") or policy.get("egress"))
    )


def lets_in(policy: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Return whether a policy for all pods accepts traffic from a namespace with these labels."""
    if policy["podSelector"]:
        return False  # for the pods of certificate challenges, of which the shop has none
    for rule in policy.get("ingress") or ():
        if not rule.get("from"):
            return True
        for peer in rule["from"]:
            selector = peer.get("namespaceSelector")
            if "ipBlock" in peer or (selector is not None and matches(selector, labels)):
                return True
    return False


def matches(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    assert not selector.get("matchExpressions"), "the operator writes none"
    return all(labels.get(name) == value for name, value in (selector.get("matchLabels") or {}).items())


def role_binding(namespace: str) -> dict[str, Any]:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "loot", "namespace": namespace},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": HOSTILE_USER}],
    }


async def nothing_of_the_shops_is_in_its_namespaces(teams: TwoTeams) -> None:
    names = [each["metadata"]["name"] for each in (await teams.client.list("v1/Namespace")).items]
    shops = (teams.shop.namespace, f"preview-pr-{teams.sandbox.number}")
    hostile = [name for name in names if name.startswith(teams.evil.namespace) and not name.startswith(shops)]
    assert len(hostile) > 20, hostile
    for name in hostile:
        ingresses = (await teams.client.list("networking.k8s.io/v1/Ingress", namespace=name)).items
        hosts = [rule["host"] for each in ingresses for rule in each["spec"]["rules"]]
        assert not [host for host in hosts if host.startswith(("shop", "pr-", "*"))], name
        assert await teams.keys_in(name) == [], name


async def its_end_harms_nobody(teams: TwoTeams, before: Environment) -> None:
    """Delete all of the hostile team: the shop stays as it was."""
    for project in (await teams.client.list(Project, namespace=teams.evil.namespace)).items:
        await teams.client.delete(Project, project.name, namespace=teams.evil.namespace)
    for name in ("app", "bare", "shop-app", "greedy", "named", "unnamed", "patient"):
        await teams.sandbox.gone(Project, name, namespace=teams.evil.namespace, seconds=300)
    after = await teams.shop.ready("one")
    assert (after.status.url, after.status.image) == (before.status.url, before.status.image)
    assert after.status.namespace == before.status.namespace
    namespace = await teams.client.get("v1/Namespace", teams.shop.namespace_of("one"))
    assert after.status.namespace is not None
    assert namespace["metadata"]["uid"] == after.status.namespace.uid
    assert (await teams.allocations())[f"shop.{teams.domain}"] == f"{teams.shop.home}/one"
