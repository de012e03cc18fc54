"""Access of people to the namespaces that the operator creates: for those who have it in the namespace of their team.

RoleBindings in the namespace of the team decide. A subject that one of them binds to `view`, `edit` or `admin` gets
roles of ours in the namespace of a project and in those of its environments, which contain less than what it has
already. Subjects that are bound to other roles get nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kapsa.environments.names import MANAGED_BY, OPERATOR, OWNER, OWNER_UID, namespace_name
from kapsa.environments.resources import Environment, Project
from kapsa.environments.tenancy.roles import (
    BOUND_ROLES,
    CONFIGURATION_EDIT,
    ENVIRONMENTS_EDIT,
    ENVIRONMENTS_VIEW,
    PODS_EDIT,
    PODS_VIEW,
)
from kapsa.runtime import Cache, Context, GroupVersionKind, Key, PolicyRule, StoredObject, rule_for

__all__ = [
    "ACCESS_RULES",
    "ENVIRONMENT_ACCESS",
    "PROJECT_ACCESS",
    "ROLE_BINDING",
    "environments_of_binding",
    "grant_access",
    "projects_of_binding",
]

ROLE_BINDING = "rbac.authorization.k8s.io/v1/RoleBinding"
_NAMESPACE = GroupVersionKind("", "v1", "Namespace")
_GROUP = "rbac.authorization.k8s.io"
_VIEWERS, _EDITORS = frozenset({"view"}), frozenset({"edit", "admin"})

PROJECT_ACCESS: Mapping[str, frozenset[str]] = {
    ENVIRONMENTS_VIEW: _VIEWERS | {"kapsa-view"},
    ENVIRONMENTS_EDIT: _EDITORS | {"kapsa-edit", "kapsa-admin"},
    CONFIGURATION_EDIT: _EDITORS,
}
"""The roles in the namespace of a project, each with the ClusterRoles of the team whose subjects get it."""
ENVIRONMENT_ACCESS: Mapping[str, frozenset[str]] = {PODS_VIEW: _VIEWERS, PODS_EDIT: _EDITORS}
"""The same for the namespace of an environment. Who sees only the kinds of the operator sees no pods either."""

ACCESS_RULES = (
    rule_for(ROLE_BINDING, "create", "patch", "delete"),
    # Without the right to bind exactly these, the operator would need all rights in them itself.
    PolicyRule(
        group=_GROUP, resources=("clusterroles",), verbs=("bind",), names=BOUND_ROLES, namespaced=False
    ),
)
_MOST_SUBJECTS = 500


async def grant_access(
    ctx: Context[Any], namespace: str, *, team: str, access: Mapping[str, frozenset[str]], enabled: bool
) -> None:
    """Bind each role in a namespace to the subjects of the team that may have it, and to no others.

    A RoleBinding with the name of the role that somebody else created is left alone and reported.
    """
    bindings = ctx.list(ROLE_BINDING, namespace=team) if enabled else []
    for role, sources in access.items():
        if _is_foreign(ctx, namespace, role):
            note = (
                f"RoleBinding {role} in namespace {namespace} was not created by the operator and is left alone: delete "
                "it, or give it another name, so that the people of the team get this role"
            )
            ctx.event("Warning", "RoleBindingKept", note, action="GrantAccess")
            continue
        subjects = _subjects(bindings, sources)
        if len(subjects) > _MOST_SUBJECTS:
            note = f"namespace {team} binds {len(subjects)} subjects; only {_MOST_SUBJECTS} of them get {role}: use groups"
            ctx.event("Warning", "SubjectsLeftOut", note, action="GrantAccess")
        if subjects:
            manifest = _binding(ctx, namespace, role, subjects[:_MOST_SUBJECTS])
            await ctx.apply(manifest, owner=False)
        else:
            await ctx.delete(ROLE_BINDING, role, namespace=namespace)


def _is_foreign(ctx: Context[Any], namespace: str, role: str) -> bool:
    """Return whether a RoleBinding has the name of a role, and nothing in it was applied by the operator.

    Its labels prove nothing: they can be copied.
    """
    existing = ctx.get(ROLE_BINDING, role, namespace=namespace)
    return existing is not None and ctx.applied(ROLE_BINDING, role, namespace=namespace) is None


def _subjects(bindings: Iterable[Mapping[str, Any]], sources: frozenset[str]) -> list[dict[str, str]]:
    """Return the subjects that are bound to one of these ClusterRoles, each once, in a fixed order."""
    subjects = {
        (each["kind"], each.get("namespace", ""), each["name"])
        for binding in bindings
        if binding["roleRef"]["kind"] == "ClusterRole" and binding["roleRef"]["name"] in sources
        for each in binding.get("subjects") or ()
    }
    return [_subject(*each) for each in sorted(subjects)]


def _subject(kind: str, namespace: str, name: str) -> dict[str, str]:
    if kind == "ServiceAccount":
        return {"kind": kind, "name": name, "namespace": namespace}
    return {"kind": kind, "name": name, "apiGroup": _GROUP}


def _binding(ctx: Context[Any], namespace: str, role: str, subjects: list[dict[str, str]]) -> dict[str, Any]:
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "RoleBinding",
        "metadata": {
            "name": role,
            "namespace": namespace,
            "labels": {MANAGED_BY: OPERATOR, OWNER_UID: ctx.stored.uid},
            "annotations": {OWNER: f"{ctx.key.namespace}/{ctx.key.name}"},
        },
        "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": role},
        "subjects": subjects,
    }


def projects_of_binding(binding: StoredObject, cache: Cache) -> Iterable[Key]:
    """Map a RoleBinding to the Projects in its namespace, and to the Project that its namespace was created for."""
    return [*_owner(binding, cache), *(each.key for each in _projects(binding, cache))]


def environments_of_binding(binding: StoredObject, cache: Cache) -> Iterable[Key]:
    """Map a RoleBinding to the Environments of the team's Projects, and to the one whose namespace it is in."""
    homes = [namespace_name(each.namespace, each.name) for each in _projects(binding, cache)]
    environments = [each.key for home in homes for each in cache.select(Environment.gvk, namespace=home)]
    return [*_owner(binding, cache), *environments]


def _projects(binding: StoredObject, cache: Cache) -> list[StoredObject]:
    return cache.select(Project.gvk, namespace=binding.namespace)


def _owner(binding: StoredObject, cache: Cache) -> list[Key]:
    """Return the owner of the namespace that one of our bindings is in, by the namespace's annotation.

    An annotation of the binding proves nothing: its team can write any.
    """
    home = cache.get(_NAMESPACE, Key("", binding.namespace)) if binding.name in BOUND_ROLES else None
    namespace, _, name = (home.annotations().get(OWNER, "") if home is not None else "").partition("/")
    return [Key(namespace, name)] if namespace and name else []
