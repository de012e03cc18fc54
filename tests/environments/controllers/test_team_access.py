"""The access of a team's people to the namespaces that the operator creates, by RoleBindings."""

from __future__ import annotations

from typing import Any

from kapsa.environments.settings import Settings
from kapsa.environments.tenancy.roles import people_roles
from tests.environments.sandbox import Sandbox
from tests.environments.tenant import Tenant

GROUP = "rbac.authorization.k8s.io"
ROLE_BINDING = f"{GROUP}/v1/RoleBinding"
PROJECT_EDITOR = {"kapsa-environments-edit", "kapsa-configuration-edit"}


def user(name: str) -> dict[str, str]:
    return {"kind": "User", "name": name, "apiGroup": GROUP}


async def bind(tenant: Tenant, role: str, *subjects: dict[str, str], kind: str = "ClusterRole") -> None:
    """Bind subjects to a role in the namespace of the team, as its administrator does."""
    manifest = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": f"people-{role}", "namespace": tenant.name},
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role},
        "subjects": list(subjects),
    }
    await tenant.client.apply(manifest, field_manager="person", force=True)


async def roles(tenant: Tenant, namespace: str, name: str) -> set[str]:
    """Return the roles of a subject in a namespace."""
    listed = (await tenant.client.list(ROLE_BINDING, namespace=namespace)).items
    return {
        each["roleRef"]["name"]
        for each in listed
        if any(subject["name"] == name for subject in each.get("subjects") or ())
    }


async def have(tenant: Tenant, namespace: str, expected: dict[str, set[str]]) -> None:
    """Wait until subjects have exactly these roles in a namespace."""
    seen: dict[str, Any] = {}

    async def holds() -> bool:
        seen.update({name: await roles(tenant, namespace, name) for name in expected})
        return seen == expected

    try:
        await tenant.sandbox.until(holds, f"{expected} in {namespace}", seconds=180)
    except AssertionError as error:
        raise AssertionError(f"{error}; last seen {seen}") from None


async def installed(tenant: Tenant) -> None:
    """Install the roles, without which nobody can be bound to them on the real engine."""
    for role in people_roles():
        await tenant.client.apply(role, field_manager="person", force=True)


async def test_people_of_the_team_get_less_than_they_have_in_what_the_operator_creates(
    tenant: Tenant,
) -> None:
    await installed(tenant)
    await bind(tenant, "view", user("viewer"))
    await bind(tenant, "edit", user("editor"), {"kind": "Group", "name": "editors", "apiGroup": GROUP})
    await bind(tenant, "admin", {"kind": "ServiceAccount", "name": "robot", "namespace": tenant.name})
    await bind(tenant, "kapsa-view", user("reader"))
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    editors = dict.fromkeys(("editor", "editors", "robot"), PROJECT_EDITOR)
    await have(
        tenant,
        tenant.home,
        {**editors, "viewer": {"kapsa-environments-view"}, "reader": {"kapsa-environments-view"}},
    )
    pods = {name: {"kapsa-pods-edit"} for name in editors}
    await have(tenant, tenant.namespace_of("one"), {**pods, "viewer": {"kapsa-pods-view"}, "reader": set()})


async def test_a_person_who_leaves_the_team_loses_the_access_and_a_new_one_gets_it(tenant: Tenant) -> None:
    await installed(tenant)
    await bind(tenant, "edit", user("first"))
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    await have(tenant, tenant.namespace_of("one"), {"first": {"kapsa-pods-edit"}})
    await bind(tenant, "edit", user("second"))
    for namespace, role in ((tenant.home, PROJECT_EDITOR), (tenant.namespace_of("one"), {"kapsa-pods-edit"})):
        await have(tenant, namespace, {"first": set(), "second": role})
    await tenant.client.delete(ROLE_BINDING, "people-edit", namespace=tenant.name)
    for namespace in (tenant.home, tenant.namespace_of("one")):
        await have(tenant, namespace, {"second": set()})


WORK = (
    ("patch", "catalyst.catalyst.dev", "environments"),
    ("create", "", "secrets"),
)
"""Requests of an editor in the namespace of a project."""
USE = (
    ("get", "apps", "deployments"),
    ("delete", "", "pods"),
    ("create", "", "pods/exec"),
)
"""Requests of an editor in the namespace of an environment."""
NEVER = (
    ("get", "", "secrets"),
    ("patch", "apps", "deployments"),
    ("create", "", "pods"),
    ("delete", "networking.k8s.io", "networkpolicies"),
    ("patch", "catalyst.catalyst.dev", "environments/status"),
)
"""Requests in the namespace of an environment that nobody of the team may make."""


async def allowed(tenant: Tenant, name: str, namespace: str, *requests: tuple[str, str, str]) -> list[bool]:
    """Return whether a user may do each of these, as `kubectl auth can-i` does."""
    answers = []
    for verb, group, resource in requests:
        kind, _, subresource = resource.partition("/")
        attributes = {
            "namespace": namespace,
            "verb": verb,
            "group": group,
            "resource": kind,
            "subresource": subresource,
        }
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "metadata": {},
            "spec": {"user": name, "resourceAttributes": attributes},
        }
        answers.append(bool((await tenant.client.create(review))["status"]["allowed"]))
    return answers


async def test_the_api_server_lets_an_editor_work_until_the_binding_is_withdrawn(tenant: Tenant) -> None:
    await installed(tenant)
    await bind(tenant, "edit", user(name := f"editor-{tenant.sandbox.unique}"))
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    inside = tenant.namespace_of("one")

    async def has_all() -> bool:
        return all(
            [*await allowed(tenant, name, tenant.home, *WORK), *await allowed(tenant, name, inside, *USE)]
        )

    async def has_none() -> bool:
        return not any(
            [*await allowed(tenant, name, tenant.home, *WORK), *await allowed(tenant, name, inside, *USE)]
        )

    await tenant.sandbox.until(has_all, "the editor may work in both namespaces")
    assert not any(await allowed(tenant, name, inside, *NEVER))
    await tenant.client.delete(ROLE_BINDING, "people-edit", namespace=tenant.name)
    await tenant.sandbox.until(has_none, "the editor may do nothing in either", seconds=180)


async def test_nobody_gets_access_by_other_roles_or_other_namespaces(tenant: Tenant) -> None:
    await installed(tenant)
    await tenant.sandbox.make_namespace(other := f"{tenant.name}-other")
    await bind(tenant, "edit", user("namesake"), kind="Role")
    await bind(tenant, "system:node-proxier", user("proxy"))
    stranger = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "RoleBinding",
        "metadata": {
            "name": "edit",
            "namespace": other,
            "annotations": {"catalyst.dev/owner": f"{tenant.home}/one", "catalyst.dev/team": tenant.name},
        },
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "edit"},
        "subjects": [user("stranger")],
    }
    await tenant.client.create(stranger)
    await bind(tenant, "view", user("viewer"))
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    nobody: dict[str, set[str]] = {"namesake": set(), "proxy": set(), "stranger": set()}
    await have(tenant, tenant.home, {**nobody, "viewer": {"kapsa-environments-view"}})
    await have(tenant, tenant.namespace_of("one"), {**nobody, "viewer": {"kapsa-pods-view"}})


async def test_an_annotation_of_the_binding_does_not_keep_the_access_of_a_person_who_leaves(
    tenant: Tenant,
) -> None:
    await installed(tenant)
    await bind(tenant, "admin", user("leaver"))
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    await have(tenant, tenant.namespace_of("one"), {"leaver": {"kapsa-pods-edit"}})
    note = {"metadata": {"annotations": {"catalyst.dev/owner": "x/y"}}}
    await tenant.client.patch(ROLE_BINDING, "people-admin", note, namespace=tenant.name)
    await tenant.client.delete(ROLE_BINDING, "people-admin", namespace=tenant.name)
    for namespace in (tenant.home, tenant.namespace_of("one")):
        await have(tenant, namespace, {"leaver": set()})


async def test_a_binding_that_is_widened_by_hand_is_restored(tenant: Tenant) -> None:
    await installed(tenant)
    await bind(tenant, "view", user("viewer"))
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    namespace = tenant.namespace_of("one")
    await have(tenant, namespace, {"viewer": {"kapsa-pods-view"}})
    patch = {"subjects": [user("viewer"), user("stranger")]}
    await tenant.client.patch(ROLE_BINDING, "kapsa-pods-view", patch, namespace=namespace)
    await have(tenant, namespace, {"viewer": {"kapsa-pods-view"}, "stranger": set()})


async def test_a_binding_that_somebody_else_made_is_left_alone_and_reported(tenant: Tenant) -> None:
    await installed(tenant)
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    namespace = tenant.namespace_of("one")
    by_hand = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "kapsa-pods-view", "namespace": namespace},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "kapsa-pods-view"},
        "subjects": [user("auditor")],
    }
    await tenant.client.create(by_hand)
    await tenant.sandbox.event("RoleBindingKept", f"kapsa-pods-view in namespace {namespace}")
    await bind(tenant, "view", user("viewer"))
    await have(tenant, tenant.home, {"viewer": {"kapsa-environments-view"}})
    await have(tenant, namespace, {"viewer": set(), "auditor": {"kapsa-pods-view"}})
    await tenant.client.delete(ROLE_BINDING, "kapsa-pods-view", namespace=namespace)
    await have(tenant, namespace, {"viewer": {"kapsa-pods-view"}, "auditor": set()})


async def test_an_administrator_who_manages_access_otherwise_turns_it_off(sandbox: Sandbox) -> None:
    tenant = Tenant(sandbox)
    await installed(tenant)
    await bind(tenant, "edit", user("editor"))
    await tenant.start()
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    await have(tenant, tenant.home, {"editor": PROJECT_EDITOR})
    await tenant.sandbox.harness.stop()
    await tenant.start(Settings(team_access=False))
    for namespace in (tenant.home, tenant.namespace_of("one")):
        await have(tenant, namespace, {"editor": set()})
