"""kubectl's commands about users and rights, on either engine."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kapsa.devcluster import DevCluster
from tests.behaviour.clients.kubectl import Kubectl
from tests.eventually import eventually

NUMBERS = itertools.count(1)
ROLE = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: NAMESPACE}
rules:
- {apiGroups: [""], resources: [pods], verbs: [get, list]}
"""


@pytest.fixture
async def kubectl(cluster: DevCluster, tmp_path: Path) -> AsyncIterator[Kubectl]:
    namespace = f"auth-{os.getpid()}-{next(NUMBERS)}"
    tool = Kubectl(cluster, namespace, tmp_path)
    await tool.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    yield tool
    await tool("delete", "namespace", namespace, "--wait=false")


async def test_reconciled_rights_are_listed_and_enforced(kubectl: Kubectl):
    role = ROLE.replace("NAMESPACE", kubectl.namespace)  # reconcile does not use --namespace
    reconciled = await kubectl("auth", "reconcile", "-f", "-", given=role)
    assert "role.rbac.authorization.k8s.io/reader reconciled" in reconciled
    assert "reconciled" in await kubectl("auth", "reconcile", "-f", "-", given=role)
    await kubectl("create", "rolebinding", "reader", "--role=reader", "--user=jane")

    async def can_list() -> str:
        return (await kubectl.run("auth", "can-i", "list", "pods", "--as", "jane"))[1]

    await eventually(can_list, lambda answer: answer == "yes\n", "jane can list pods")
    code, answer, _ = await kubectl.run("auth", "can-i", "delete", "pods", "--as", "jane")
    assert (code, answer) == (1, "no\n")
    assert "pods " in await kubectl("auth", "can-i", "--list", "--as", "jane")
    assert await kubectl("get", "pods", "--as", "jane") == ""
    code, _, problem = await kubectl.run("get", "secrets", "--as", "jane")
    assert (code, problem) == (
        1,
        (
            'Error from server (Forbidden): secrets is forbidden: User "jane" cannot list resource "secrets" in API '
            f'group "" in the namespace "{kubectl.namespace}"\n'
        ),
    )


async def test_whoami_reports_the_user(kubectl: Kubectl):
    assert "kubernetes-admin" in await kubectl("auth", "whoami")
    answer = await kubectl("auth", "whoami", "--as", "jane", "--as-group", "team", "-o", "yaml")
    assert "username: jane" in answer
    assert "- team" in answer


async def test_a_created_token_is_a_token_of_the_account(kubectl: Kubectl):
    await kubectl("create", "serviceaccount", "robot")
    token = (await kubectl("create", "token", "robot", "--duration=15m")).strip()
    assert token.count(".") == 2
    review = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token},
    }
    answer = await kubectl("create", "-f", "-", "-o", "yaml", given=review)
    assert f"username: system:serviceaccount:{kubectl.namespace}:robot" in answer
