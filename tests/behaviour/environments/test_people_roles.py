"""The roles for people and programs, as `kubectl auth can-i` shows them on either engine."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from kapsa.devcluster import DevCluster
from kapsa.environments.installation import crds
from kapsa.environments.operator import make_operator
from kapsa.environments.settings import Settings
from kapsa.environments.tenancy.roles import BOUND_ROLES, people_roles
from kapsa.runtime import Client, ClientError, Forbidden
from tests.behaviour.clients.kubectl import Kubectl
from tests.environments.service_account import act_as_service_account
from tests.eventually import eventually

PROJECTS, ENVIRONMENTS = "projects.catalyst.catalyst.dev", "environments.catalyst.catalyst.dev"
PREVIEWS = "previewenvironments.devops.orima.com"
ALL = (PROJECTS, ENVIRONMENTS, PREVIEWS)


@pytest_asyncio.fixture
async def kubectl(cluster: DevCluster, tmp_path: Path) -> AsyncIterator[Kubectl]:
    """kubectl in a namespace of a cluster with the kinds and the roles."""
    namespace = f"people-{uuid.uuid4().hex[:8]}"
    async with Client.connect(kubeconfig=cluster.kubeconfig) as client:
        for manifest in (*crds(), *people_roles()):
            await client.apply(manifest, force=True)
        await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})

        async def served() -> bool:
            try:
                for kind in ("Project", "Environment"):
                    await client.list(f"catalyst.catalyst.dev/v1alpha1/{kind}", namespace=namespace)
                await client.list("devops.orima.com/v1/PreviewEnvironment", namespace=namespace)
            except ClientError:
                return False
            return True

        await eventually(served, bool, "the kinds are served", seconds=90)
        yield Kubectl(cluster, namespace, tmp_path)
        await client.delete("v1/Namespace", namespace)


async def bind(kubectl: Kubectl, role: str, user: str) -> None:
    await kubectl("create", "rolebinding", f"{role}-{user}", f"--clusterrole={role}", f"--user={user}")


async def can(kubectl: Kubectl, user: str, verb: str, resource: str, *more: str) -> bool:
    code, answer, problem = await kubectl.run("auth", "can-i", verb, resource, "--as", user, *more)
    assert answer in ("yes\n", "no\n"), problem
    assert code == (0 if answer == "yes\n" else 1)
    return answer == "yes\n"


async def eventually_can(kubectl: Kubectl, user: str, verb: str, resource: str, *more: str) -> None:
    """Wait until the API server has seen the binding, and its controller has aggregated the roles."""

    async def allowed() -> bool:
        return await can(kubectl, user, verb, resource, *more)

    await eventually(allowed, bool, f"{user} may {verb} {resource}", seconds=90)


@pytest.mark.long
async def test_viewers_editors_and_admins_of_a_namespace_are_those_of_its_projects(kubectl: Kubectl) -> None:
    for role in ("view", "edit", "admin"):
        await bind(kubectl, role, role)
    for resource in ALL:
        await eventually_can(kubectl, "view", "list", resource)
        await eventually_can(kubectl, "edit", "patch", resource)
        await eventually_can(kubectl, "admin", "deletecollection", resource)
        assert not await can(kubectl, "view", "create", resource)
        assert not await can(kubectl, "edit", "deletecollection", resource)
    assert await can(kubectl, "edit", "list", ENVIRONMENTS)
    for user in ("edit", "admin"):
        assert not await can(kubectl, user, "patch", ENVIRONMENTS, "--subresource=status")
    assert not await can(kubectl, "admin", "list", "domainpools.kapsa-project.io", "-A")


@pytest.mark.long
async def test_a_web_application_creates_and_reads_environments_and_nothing_else(kubectl: Kubectl) -> None:
    await bind(kubectl, "kapsa-web-application", "portal")
    await eventually_can(kubectl, "portal", "create", ENVIRONMENTS)
    for verb in ("get", "list", "watch"):
        assert await can(kubectl, "portal", verb, ENVIRONMENTS)
    for verb in ("update", "patch", "delete", "deletecollection"):
        assert not await can(kubectl, "portal", verb, ENVIRONMENTS)
    for resource in (PROJECTS, PREVIEWS, "secrets", "pods"):
        assert not await can(kubectl, "portal", "list", resource)
    assert not await can(kubectl, "portal", "create", PROJECTS)
    namespace = "kube-system"
    assert not await can(kubectl, "portal", "create", ENVIRONMENTS, f"--namespace={namespace}")


@pytest.mark.long
async def test_a_developer_uses_pods_of_an_environment_but_cannot_change_its_walls(kubectl: Kubectl) -> None:
    await bind(kubectl, "kapsa-pods-edit", "developer")
    await bind(kubectl, "kapsa-pods-view", "viewer")
    await eventually_can(kubectl, "developer", "create", "pods", "--subresource=exec")
    await eventually_can(kubectl, "viewer", "get", "pods", "--subresource=log")
    assert await can(kubectl, "developer", "delete", "pods")
    assert not await can(kubectl, "viewer", "create", "pods", "--subresource=exec")
    for user in ("developer", "viewer"):
        assert await can(kubectl, user, "list", "networkpolicies.networking.k8s.io")
        assert not await can(kubectl, user, "get", "secrets")
        assert not await can(kubectl, user, "create", "pods")
        assert not await can(kubectl, user, "patch", "networkpolicies.networking.k8s.io")
        assert not await can(kubectl, user, "patch", "deployments.apps")


@pytest.mark.long
async def test_a_developer_writes_environments_and_their_configuration_in_the_namespace_of_a_project(
    kubectl: Kubectl,
) -> None:
    await bind(kubectl, "kapsa-environments-edit", "developer")
    await bind(kubectl, "kapsa-configuration-edit", "developer")
    await bind(kubectl, "kapsa-environments-view", "viewer")
    await eventually_can(kubectl, "developer", "patch", ENVIRONMENTS)
    await eventually_can(kubectl, "developer", "create", "secrets")
    await eventually_can(kubectl, "viewer", "list", ENVIRONMENTS)
    assert not await can(kubectl, "viewer", "patch", ENVIRONMENTS)
    assert not await can(kubectl, "viewer", "list", "secrets")
    for resource in (PROJECTS, PREVIEWS, "pods", "rolebindings.rbac.authorization.k8s.io"):
        assert not await can(kubectl, "developer", "create", resource)


async def test_the_operator_can_bind_its_own_roles_and_no_others(cluster: DevCluster, tmp_path: Path) -> None:
    settings = Settings(namespace=f"operator-{uuid.uuid4().hex[:8]}")
    kubeconfig = await act_as_service_account(cluster, make_operator(settings), settings, tmp_path)
    async with (
        Client.connect(kubeconfig=cluster.kubeconfig) as admin,
        Client.connect(kubeconfig=kubeconfig) as operator,
    ):
        for role in people_roles():
            await admin.apply(role, force=True)

        async def bound(role: str) -> str:
            try:
                await operator.create(binding(settings.namespace, role), dry_run=True)
            except Forbidden as error:
                return str(error)
            return ""

        for role in BOUND_ROLES:
            await eventually(
                lambda role=role: bound(role),  # type: ignore[misc]
                lambda refusal: not refusal,
                f"the operator can bind {role}",
                seconds=90,
            )
        for role in ("view", "admin", "cluster-admin"):
            assert "attempting to grant RBAC permissions not currently held" in await bound(role)


def binding(namespace: str, role: str) -> dict[str, Any]:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": role, "namespace": namespace},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "jane"}],
    }


def rules_of(role: str) -> list[dict[str, Any]]:
    (matching,) = (each for each in people_roles() if each["metadata"]["name"] == role)
    rules: list[dict[str, Any]] = matching["rules"]
    return rules


def test_no_role_can_write_a_status_or_change_what_the_operator_puts_into_a_namespace() -> None:
    walls = {"networkpolicies", "resourcequotas", "limitranges", "serviceaccounts", "roles", "rolebindings"}
    for role in people_roles():
        for rule in role["rules"]:
            written = set(rule["verbs"]) - {"get", "list", "watch"}
            assert "*" not in [*rule["resources"], *rule["verbs"], *rule["apiGroups"]]
            if written:
                assert not [each for each in rule["resources"] if each.endswith("/status")]
                assert not walls & set(rule["resources"])


def test_the_roles_for_the_namespace_of_an_environment_read_no_secret_and_create_no_pod() -> None:
    for role in ("kapsa-pods-view", "kapsa-pods-edit"):
        for rule in rules_of(role):
            assert "secrets" not in rule["resources"]
            assert not ("pods" in rule["resources"] and {"create", "update", "patch"} & set(rule["verbs"]))
