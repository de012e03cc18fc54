"""RBAC on the embedded engine, without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kapsa.devcluster import DevCluster, Request, RequestUser

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLES, BINDINGS = f"{RBAC}/namespaces/default/roles", f"{RBAC}/namespaces/default/rolebindings"
PODS = "/api/v1/namespaces/default/pods"
JANE = RequestUser(username="jane", groups=("system:authenticated",))


class Session:
    """Requests to one cluster, as different users."""

    def __init__(self, cluster: DevCluster) -> None:
        self._cluster = cluster

    async def send(
        self, method: str, path: str, body: Any = None, user: RequestUser | None = None, **headers: str
    ) -> tuple[int, dict[str, Any]]:
        sent = {"content-type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
        content = b"" if body is None else json.dumps(body).encode()
        reply = await self._cluster.handle(
            Request(method=method, path=path, body=content, headers=sent, user=user)
        )
        assert isinstance(reply.body, bytes)
        return reply.status, json.loads(reply.body)

    async def grant(self, role: str, *rules: dict[str, Any], user: str = "jane") -> None:
        status, _ = await self.send("POST", ROLES, {"metadata": {"name": role}, "rules": list(rules)})
        assert status == 201
        await self.bind("Role", role, user)

    async def bind(self, kind: str, role: str, user: str = "jane") -> None:
        body = {
            "metadata": {"name": role},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
            "subjects": [{"kind": "User", "name": user}],
        }
        status, _ = await self.send("POST", BINDINGS, body)
        assert status == 201


@pytest.fixture
async def session() -> AsyncIterator[Session]:
    async with DevCluster(http=False) as cluster:
        yield Session(cluster)


def rule(*verbs: str, resource: str = "pods") -> dict[str, Any]:
    return {"apiGroups": [""], "resources": [resource], "verbs": list(verbs)}


async def test_a_request_without_a_user_is_the_administrators(session: Session):
    assert (await session.send("GET", PODS))[0] == 200


async def test_another_user_needs_a_role(session: Session):
    status, denied = await session.send("GET", PODS, user=JANE)
    assert (status, denied["message"]) == (
        403,
        'pods is forbidden: User "jane" cannot list resource "pods" in API group "" in the namespace "default"',
    )
    await session.grant("reader", rule("list"))
    assert (await session.send("GET", PODS, user=JANE))[0] == 200


async def test_a_decision_does_not_outlive_its_binding(session: Session):
    await session.grant("reader", rule("list"))
    assert (await session.send("GET", PODS, user=JANE))[0] == 200
    await session.send("DELETE", f"{BINDINGS}/reader")
    assert (await session.send("GET", PODS, user=JANE))[0] == 403


async def test_rules_are_read_from_scratch_after_a_compaction():
    async with DevCluster(http=False, controllers=False) as cluster:
        session = Session(cluster)
        assert (await session.send("GET", PODS, user=JANE))[0] == 403
        await session.grant("reader", rule("list"))
        cluster.server.backend.store.compact()
        assert (await session.send("GET", PODS, user=JANE))[0] == 200


async def test_the_default_roles_are_aggregated_from_the_start(session: Session):
    await session.bind("ClusterRole", "view")
    assert (await session.send("GET", PODS, user=JANE))[0] == 200
    assert (await session.send("GET", PODS.replace("pods", "secrets"), user=JANE))[0] == 403


async def test_without_controllers_nothing_is_aggregated():
    async with DevCluster(http=False, controllers=False) as cluster:
        session = Session(cluster)
        await session.bind("ClusterRole", "view")
        assert (await session.send("GET", PODS, user=JANE))[0] == 403


async def test_a_labelled_cluster_role_joins_the_roles_that_aggregate_it(session: Session):
    await session.bind("ClusterRole", "view")
    labels = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    extra = {"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["list"]}
    body = {"metadata": {"name": "widgets", "labels": labels}, "rules": [extra]}
    assert (await session.send("POST", f"{RBAC}/clusterroles", body))[0] == 201
    asked = {"verb": "list", "group": "example.com", "resource": "widgets", "namespace": "default"}
    review = {"spec": {"user": "jane", "resourceAttributes": asked}}
    for name in ("view", "edit", "admin"):
        await until_the_role_has(session, name, extra)
    _, answer = await session.send("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    assert answer["status"] == {
        "allowed": True,
        "reason": 'RBAC: allowed by RoleBinding "view/default" of ClusterRole "view" to User "jane"',
    }


async def until_the_role_has(session: Session, name: str, rule: dict[str, Any]) -> None:
    for _ in range(1000):
        if rule in (await session.send("GET", f"{RBAC}/clusterroles/{name}"))[1]["rules"]:
            return
        await asyncio.sleep(0)
    raise AssertionError(f"{name} does not get the rule")


async def test_a_user_cannot_grant_rights_that_they_lack(session: Session):
    group = "rbac.authorization.k8s.io"
    await session.grant("author", {"apiGroups": [group], "resources": ["roles"], "verbs": ["create"]})
    status, denied = await session.send(
        "POST", ROLES, {"metadata": {"name": "own"}, "rules": [rule("get", "list")]}, user=JANE
    )
    assert status == 403
    assert denied["message"].endswith(
        'not currently held:\n{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}'
    )


async def test_the_administrator_can_act_as_another_user(session: Session):
    status, review = await session.send(
        "POST",
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        {},
        impersonate_user="jane",
        impersonate_group="a\nb, c",
        impersonate_extra_scopes="x",
    )
    assert status == 201
    assert review["status"]["userInfo"] == {
        "username": "jane",
        "groups": ["a", "b, c", "system:authenticated"],
        "extra": {"scopes": ["x"]},
    }


async def test_another_user_cannot_impersonate_without_the_right(session: Session):
    status, denied = await session.send("GET", PODS, user=JANE, impersonate_user="bob")
    assert (status, denied["message"]) == (
        403,
        (
            'pods is forbidden: User "jane" cannot impersonate-on:user-info:list resource "pods" in API group "" '
            'in the namespace "default"'
        ),
    )


async def test_a_user_with_the_right_impersonates_one_user(session: Session):
    body = {
        "metadata": {"name": "actor"},
        "rules": [
            {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"], "resourceNames": ["bob"]}
        ],
    }
    await session.send("POST", f"{RBAC}/clusterroles", body)
    bound = {
        "metadata": {"name": "actor"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "actor"},
        "subjects": [{"kind": "User", "name": "jane"}],
    }
    await session.send("POST", f"{RBAC}/clusterrolebindings", bound)
    await session.grant("reader", rule("list"), user="bob")
    assert (await session.send("GET", PODS, user=JANE, impersonate_user="bob"))[0] == 200
    assert (await session.send("GET", PODS, user=JANE, impersonate_user="eve"))[0] == 403


async def test_groups_without_a_user_are_a_bad_request(session: Session):
    status, answer = await session.send("GET", PODS, impersonate_group="team")
    assert (status, answer["reason"]) == (400, "BadRequest")


async def test_a_path_needs_a_right_too(session: Session):
    assert (await session.send("GET", "/apis", user=JANE))[0] == 200
    status, denied = await session.send("GET", "/metrics", user=JANE)
    assert (status, denied["message"]) == (403, 'forbidden: User "jane" cannot get path "/metrics"')


async def test_a_decision_about_one_name_is_not_taken_for_another(session: Session) -> None:
    await session.grant("first", {**rule("get", resource="configmaps"), "resourceNames": ["a"]})
    path = "/api/v1/namespaces/default/configmaps"
    for _ in range(2):
        for name, status in (("b", 403), ("a", 404), ("c", 403)):
            assert (await session.send("GET", f"{path}/{name}", user=JANE))[0] == status
    await session.grant("second", rule("get", resource="configmaps"))
    for _ in range(2):
        for name in "bac":
            assert (await session.send("GET", f"{path}/{name}", user=JANE))[0] == 404
    await session.send("DELETE", f"{BINDINGS}/second")
    assert (await session.send("GET", f"{path}/b", user=JANE))[0] == 403
    assert (await session.send("GET", f"{path}/a", user=JANE))[0] == 404
