"""The ClusterRole with which the manager rolls out certain operators, worked out from what their charts render to.

Kubernetes lets an account grant only rights that it has. So the role has what the manager itself does in a cluster,
what Helm does with the objects of the charts, and every right that the Roles among them grant.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kapsa.fleet.domain.errors import InvalidInput
from kapsa.fleet.infrastructure.clusters.granted_rights import granted_rules

__all__ = ["manager_role"]

_ALL = ("get", "list", "watch", "create", "update", "patch", "delete")
_READ = ("get", "list", "watch")
_RESOURCES = ("get", "list", "create", "update", "patch")
"""Verbs on custom resources: they are read for verdicts and health, written for proofs and migrations, never deleted."""
_RBAC = "rbac.authorization.k8s.io"
_CRDS = ("apiextensions.k8s.io", "customresourcedefinitions")

_OWN: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("", "namespaces"): ("get", "list", "create", "patch"),
    ("", "nodes"): ("list",),
    ("", "pods"): (*_READ, "create"),
    ("", "secrets"): _ALL,
    ("", "services"): ("get", "list"),
    ("apps", "deployments"): _READ,
    ("apps", "daemonsets"): _READ,
    ("apps", "statefulsets"): _READ,
    ("apps", "replicasets"): _READ,
    ("authorization.k8s.io", "subjectaccessreviews"): ("create",),
    ("coordination.k8s.io", "leases"): ("get", "list"),
    ("discovery.k8s.io", "endpointslices"): ("list",),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"): ("get", "list"),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): ("get", "list"),
    _CRDS: ("get", "list", "watch", "create", "update", "patch"),
    ("apiextensions.k8s.io", "customresourcedefinitions/status"): ("update", "patch"),
    ("helm.toolkit.fluxcd.io", "helmreleases"): ("list",),
    ("storagemigration.k8s.io", "storageversionmigrations"): ("get", "list", "create", "delete"),
}
"""The work of the manager in every cluster: releases are Secrets, health is read, CRDs are applied, never deleted."""


def manager_role(name: str, objects: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the ClusterRole for the operators whose charts render to these objects, CRDs included.

    Raises InvalidInput for a CRD or a role that is malformed.
    """
    manifest = list(objects)
    verbs: dict[tuple[str, str], set[str]] = defaultdict(set)
    for resource, needed in (*_OWN.items(), *_of_objects(manifest), *_of_custom_resources(manifest)):
        verbs[resource].update(needed)
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [*_rules(verbs), *_granted(manifest)],
    }


def _of_objects(manifest: Iterable[Mapping[str, Any]]) -> Iterator[tuple[tuple[str, str], tuple[str, ...]]]:
    """Yield what Helm needs for each object. CRDs are the manager's own work."""
    for each in manifest:
        group, _, _ = each["apiVersion"].rpartition("/")
        resource = (group, _plural(each["kind"].lower()))
        if resource != _CRDS:
            yield resource, _ALL


def _of_custom_resources(
    manifest: Iterable[Mapping[str, Any]],
) -> Iterator[tuple[tuple[str, str], tuple[str, ...]]]:
    """Yield what the manager needs for the resources of each CRD."""
    for each in manifest:
        if each["kind"] == "CustomResourceDefinition":
            yield _custom_resource(each), _RESOURCES


def _custom_resource(definition: Mapping[str, Any]) -> tuple[str, str]:
    try:
        group, plural = definition["spec"]["group"], definition["spec"]["names"]["plural"]
    except (KeyError, TypeError):
        group = plural = None
    if not isinstance(group, str) or not isinstance(plural, str):
        metadata = definition.get("metadata")
        name = metadata.get("name") if isinstance(metadata, Mapping) else None
        raise InvalidInput(
            f"CustomResourceDefinition {name or 'without a name'} has no spec.group and spec.names.plural"
        )
    return group, plural


def _granted(manifest: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rules of the Roles and ClusterRoles, each once."""
    rules: list[dict[str, Any]] = []
    for each in granted_rules(manifest):
        if each.rule not in rules:
            rules.append(each.rule)
    return rules


def _rules(verbs: Mapping[tuple[str, str], set[str]]) -> list[dict[str, Any]]:
    """Return one rule for all resources of a group that have the same verbs."""
    together: dict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    for (group, resource), needed in sorted(verbs.items()):
        together[group, tuple(verb for verb in _ALL if verb in needed)].append(resource)
    return [
        {"apiGroups": [group], "resources": resources, "verbs": list(needed)}
        for (group, needed), resources in together.items()
    ]


def _plural(singular: str) -> str:
    """Return the English plural, which is the name of every resource of Kubernetes but for `endpoints`."""
    if singular == "endpoints":
        return singular
    if singular.endswith(("s", "x", "ch", "sh")):
        return f"{singular}es"
    if singular.endswith("y") and singular[-2:-1] not in "aeiou":
        return f"{singular[:-1]}ies"
    return f"{singular}s"
