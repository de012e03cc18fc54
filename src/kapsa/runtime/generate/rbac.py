"""The smallest RBAC that an operator needs, derived from its declaration.

Everything here is a pure function of `OperatorRights`, which an `Operator` collects from the `owns`,
`watches` and finalizers of its controllers, its lease, its events and its webhooks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from kapsa.runtime.client.dispatch import Call
from kapsa.runtime.resources.definition import pluralize
from kapsa.runtime.resources.metadata import GroupVersionKind
from kapsa.runtime.resources.resource import CustomResource

__all__ = [
    "ControllerRights",
    "Grant",
    "GroupResource",
    "OperatorRights",
    "PolicyRule",
    "WebhookRights",
    "grants",
    "rbac_manifests",
    "rule_for",
]

Scope = Literal["auto", "Role", "ClusterRole"]
READ = ("get", "list", "watch")
KEEP = (*READ, "create", "patch")
OWN = (*KEEP, "delete")
_VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "bind")
_IRREGULAR = {"Endpoints": "endpoints", "PodMetrics": "pods", "NodeMetrics": "nodes"}
_CLUSTER_SCOPED = {
    "": {"Namespace", "Node", "PersistentVolume"},
    "apiextensions.k8s.io": {"CustomResourceDefinition"},
    "apiregistration.k8s.io": {"APIService"},
    "certificates.k8s.io": {"CertificateSigningRequest"},
    "flowcontrol.apiserver.k8s.io": {"FlowSchema", "PriorityLevelConfiguration"},
    "gateway.networking.k8s.io": {"GatewayClass"},
    "cert-manager.io": {"ClusterIssuer"},
    "networking.k8s.io": {"IngressClass", "IPAddress", "ServiceCIDR"},
    "node.k8s.io": {"RuntimeClass"},
    "rbac.authorization.k8s.io": {"ClusterRole", "ClusterRoleBinding"},
    "resource.k8s.io": {"DeviceClass", "ResourceSlice"},
    "scheduling.k8s.io": {"PriorityClass"},
    "snapshot.storage.k8s.io": {"VolumeSnapshotClass", "VolumeSnapshotContent"},
    "storage.k8s.io": {"CSIDriver", "CSINode", "StorageClass", "VolumeAttachment", "VolumeAttributesClass"},
    "admissionregistration.k8s.io": {
        "MutatingWebhookConfiguration",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingWebhookConfiguration",
    },
}


class GroupResource(msgspec.Struct, frozen=True, order=True):
    """A resource as RBAC refers to it."""

    group: str
    resource: str
    """The plural, such as `deployments`."""
    namespaced: bool = True

    @classmethod
    def of(cls, kind: str | GroupVersionKind | type[CustomResource[Any, Any]]) -> GroupResource:
        """Return the resource of a kind without discovery: plurals are regular with few exceptions."""
        if isinstance(kind, type):
            definition = kind.definition
            return cls(definition.group, definition.plural, definition.namespaced)
        gvk = GroupVersionKind.parse(kind) if isinstance(kind, str) else kind
        plural = _IRREGULAR.get(gvk.kind) or pluralize(gvk.kind.lower())
        return cls(gvk.group, plural, gvk.kind not in _CLUSTER_SCOPED.get(gvk.group, ()))


class PolicyRule(msgspec.Struct, frozen=True, kw_only=True):
    """Verbs on resources of one group, optionally limited to objects with certain names."""

    group: str = ""
    resources: tuple[str, ...]
    """Plurals, and subresources such as `pods/log`."""
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()
    namespaced: bool = True
    """False for cluster-scoped resources."""

    def covers(self, call: Call) -> bool:
        """Return whether this rule allows the call, by the rules of the API server."""
        resource = f"{call.resource}/{call.subresource}" if call.subresource else call.resource
        return (
            call.verb in self.verbs
            and call.group == self.group
            and resource in self.resources
            and (not self.names or call.name in self.names)
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the rule in the form of a Role."""
        rule: dict[str, Any] = {
            "apiGroups": [self.group],
            "resources": list(self.resources),
            "verbs": list(self.verbs),
        }
        if self.names:
            rule["resourceNames"] = list(self.names)
        return rule

    def __str__(self) -> str:
        names = f" named {', '.join(self.names)}" if self.names else ""
        group = f" in {self.group}" if self.group else ""
        return f"{', '.join(self.verbs)} on {', '.join(self.resources)}{group}{names}"


def rule_for(
    kind: str | type[CustomResource[Any, Any]], *verbs: str, names: Sequence[str] = ()
) -> PolicyRule:
    """Return a rule for a right that nothing else declares, such as `rule_for("v1/Secret", "get")`."""
    unknown = [verb for verb in verbs if verb not in _VERBS]
    if unknown or not verbs:
        problem = f"unknown verbs {', '.join(unknown)}" if unknown else "no verb"
        raise ValueError(f"{problem}: use {', '.join(_VERBS)}")
    target = GroupResource.of(kind)
    return PolicyRule(
        group=target.group,
        resources=(target.resource,),
        verbs=tuple(verbs),
        names=tuple(names),
        namespaced=target.namespaced,
    )


_EVENTS = PolicyRule(group="events.k8s.io", resources=("events",), verbs=("create", "patch"))


class ControllerRights(msgspec.Struct, frozen=True, kw_only=True):
    """The rights that one controller declares."""

    resource: GroupResource
    status: bool = True
    """True if it writes the status."""
    finalizer: bool = False
    """True if it sets a finalizer on its resources."""
    owns: tuple[GroupResource, ...] = ()
    keeps: tuple[GroupResource, ...] = ()
    """Owned as well, but never deleted by the controller."""
    watches: tuple[GroupResource, ...] = ()
    rules: tuple[PolicyRule, ...] = ()
    """Further rights, such as reading a Secret."""


class WebhookRights(msgspec.Struct, frozen=True, kw_only=True):
    """The rights to keep the webhooks of an operator registered."""

    validating: str = ""
    """The name of the ValidatingWebhookConfiguration; empty without validating webhooks."""
    mutating: str = ""
    """The name of the MutatingWebhookConfiguration; empty without mutating webhooks."""
    former_validating: str = ""
    """The name of a ValidatingWebhookConfiguration to delete, since its last webhook was dropped."""
    former_mutating: str = ""
    """The name of a MutatingWebhookConfiguration to delete."""
    conversion: tuple[str, ...] = ()
    """The CRDs whose conversion the operator serves."""
    secret: str = ""
    """The Secret for the certificates; empty if they are mounted."""
    secret_namespace: str = ""
    """The namespace of the Secret; that of the operator by default."""


class OperatorRights(msgspec.Struct, frozen=True, kw_only=True):
    """The rights that an operator declares."""

    controllers: tuple[ControllerRights, ...]
    namespaces: tuple[str, ...] = ()
    """The watched namespaces; empty for all."""
    events: bool = True
    lease: str = ""
    """The name of the lease; empty without leader election."""
    lease_namespace: str = ""
    """The namespace of the lease; that of the operator by default."""
    sharded: bool = False
    """True if replicas share the keys: they then keep a lease for each shard and for each replica."""
    webhooks: WebhookRights = WebhookRights()
    cluster_uid: bool = False
    """True if the operator works in several clusters, and reads the UID of each to work there under one name."""


class Grant(msgspec.Struct, frozen=True):
    """Rules that apply in one namespace, or in all of them if it is None."""

    namespace: str | None
    rules: tuple[PolicyRule, ...]

    def covers(self, call: Call) -> bool:
        """Return whether one of the rules allows the call in its namespace."""
        return (self.namespace is None or self.namespace == call.namespace) and any(
            rule.covers(call) for rule in self.rules
        )


def grants(rights: OperatorRights, *, namespace: str, scope: Scope = "auto") -> list[Grant]:
    """Return the grants that an operator needs. `namespace` is the operator's own.

    An operator that watches certain namespaces gets roles there. Cluster-scoped resources and
    `scope="ClusterRole"` need grants in the whole cluster.
    """
    if scope == "Role" and not rights.namespaces:
        raise ValueError(
            "an operator that watches all namespaces needs a ClusterRole; set its namespaces to use a Role"
        )
    everywhere: list[PolicyRule] = _webhook_rules(rights.webhooks)
    per_namespace: list[PolicyRule] = []
    confined = bool(rights.namespaces) and scope != "ClusterRole"
    for rule in _working_rules(rights):
        (per_namespace if confined and rule.namespaced else everywhere).append(rule)
    if scope == "Role" and everywhere:
        raise ValueError(f"a Role cannot grant {everywhere[0]}: it applies to the whole cluster")
    by_namespace = {name: list(per_namespace) for name in rights.namespaces if per_namespace}
    for name, rules in _rules_in_fixed_namespaces(rights, namespace):
        by_namespace.setdefault(name, []).extend(rules)
    cluster_wide = [Grant(None, _merged(everywhere))] if everywhere else []
    remaining = {name: _merged(_beyond(rules, everywhere)) for name, rules in sorted(by_namespace.items())}
    return cluster_wide + [Grant(name, merged) for name, merged in remaining.items() if merged]


def _beyond(rules: Iterable[PolicyRule], granted: Sequence[PolicyRule]) -> list[PolicyRule]:
    """Return the rights of these rules that are not granted in the whole cluster already."""
    held = {
        (rule.group, resource, verb)
        for rule in granted
        if not rule.names
        for resource in rule.resources
        for verb in rule.verbs
    }
    return [
        msgspec.structs.replace(rule, resources=(resource,), verbs=verbs)
        for rule in rules
        for resource in rule.resources
        if (verbs := tuple(verb for verb in rule.verbs if (rule.group, resource, verb) not in held))
    ]


def _working_rules(rights: OperatorRights) -> list[PolicyRule]:
    rules = [rule for controller in rights.controllers for rule in _controller_rules(controller)]
    if rights.events:
        rules.append(_EVENTS)
    if rights.cluster_uid:
        rules.append(rule_for("v1/Namespace", "get", names=("kube-system",)))
    return rules


def _controller_rules(controller: ControllerRights) -> list[PolicyRule]:
    resource = controller.resource
    rules = [_rule(resource, READ)]
    if controller.finalizer:
        rules.append(_rule(resource, ("patch",)))
    if controller.status:
        rules.append(_rule(resource, ("patch",), "status"))
    if controller.owns or controller.keeps:
        # The OwnerReferencesPermissionEnforcement admission plugin requires this for an owner reference that
        # blocks the owner's deletion.
        rules.append(_rule(resource, ("update",), "finalizers"))
    rules += [_rule(target, OWN) for target in controller.owns]
    rules += [_rule(target, KEEP) for target in controller.keeps]
    rules += [_rule(target, READ) for target in controller.watches]
    return [*rules, *controller.rules]


def _rule(target: GroupResource, verbs: tuple[str, ...], subresource: str = "") -> PolicyRule:
    name = f"{target.resource}/{subresource}" if subresource else target.resource
    return PolicyRule(group=target.group, resources=(name,), verbs=verbs, namespaced=target.namespaced)


def _rules_in_fixed_namespaces(rights: OperatorRights, home: str) -> list[tuple[str, list[PolicyRule]]]:
    """Return the rights in certain namespaces, whichever namespaces are watched."""
    kept = []
    if rights.events and not all(controller.resource.namespaced for controller in rights.controllers):
        kept.append(("default", [_EVENTS]))  # events about cluster-scoped objects are there
    if rights.lease and rights.sharded:
        # Names of replicas are not known in advance, and a list cannot be limited to names.
        verbs = ("create", "delete", "get", "list", "patch", "update")
        rule = PolicyRule(group="coordination.k8s.io", resources=("leases",), verbs=verbs)
        kept.append((rights.lease_namespace or home, [rule]))
    elif rights.lease:
        rules = _kept_object("coordination.k8s.io", "leases", rights.lease, ("get", "update"))
        kept.append((rights.lease_namespace or home, rules))
    if rights.webhooks.secret:
        rules = _kept_object("", "secrets", rights.webhooks.secret, ("get", "update"))
        kept.append((rights.webhooks.secret_namespace or home, rules))
    return kept


def _kept_object(
    group: str, resource: str, name: str, verbs: tuple[str, ...], *, namespaced: bool = True
) -> list[PolicyRule]:
    """Return the rights to a single object. A create cannot be limited to a name: the object has none yet."""
    return [
        PolicyRule(group=group, resources=(resource,), verbs=("create",), namespaced=namespaced),
        PolicyRule(
            group=group,
            resources=(resource,),
            verbs=verbs,
            names=(name,),
            namespaced=namespaced,
        ),
    ]


def _webhook_rules(webhooks: WebhookRights) -> list[PolicyRule]:
    rules = []
    for resource, name, former in (
        ("validatingwebhookconfigurations", webhooks.validating, webhooks.former_validating),
        ("mutatingwebhookconfigurations", webhooks.mutating, webhooks.former_mutating),
    ):
        group = "admissionregistration.k8s.io"
        if name:
            rules += _kept_object(group, resource, name, ("get", "patch"), namespaced=False)
        if former:
            rules.append(
                PolicyRule(
                    group=group,
                    resources=(resource,),
                    verbs=("get", "delete"),
                    names=(former,),
                    namespaced=False,
                )
            )
    if webhooks.conversion:
        rules.append(
            PolicyRule(
                group="apiextensions.k8s.io",
                resources=("customresourcedefinitions",),
                verbs=("get", "patch"),
                names=webhooks.conversion,
                namespaced=False,
            )
        )
    return rules


def _merged(rules: Iterable[PolicyRule]) -> tuple[PolicyRule, ...]:
    """Merge rules: one for each group, set of verbs and names."""
    verbs: dict[tuple[str, str, tuple[str, ...], bool], set[str]] = {}
    for rule in rules:
        for resource in rule.resources:
            key = (rule.group, resource, tuple(sorted(rule.names)), rule.namespaced)
            verbs.setdefault(key, set()).update(rule.verbs)
    resources: dict[tuple[str, tuple[str, ...], tuple[str, ...], bool], list[str]] = {}
    for (group, resource, names, namespaced), granted in verbs.items():
        unnamed = verbs.get((group, resource, (), namespaced), set()) if names else set()
        if left := granted - unnamed:
            ordered = tuple(verb for verb in _VERBS if verb in left)
            resources.setdefault((group, ordered, names, namespaced), []).append(resource)
    merged = [
        PolicyRule(
            group=group, resources=tuple(sorted(plurals)), verbs=ordered, names=names, namespaced=namespaced
        )
        for (group, ordered, names, namespaced), plurals in resources.items()
    ]
    return tuple(sorted(merged, key=lambda rule: (rule.group, rule.resources, rule.names)))


def rbac_manifests(
    rights: OperatorRights, *, name: str, namespace: str, scope: Scope = "auto"
) -> list[dict[str, Any]]:
    """Return the service account, its roles and their bindings, in the order to create them."""
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name):
        raise ValueError(f"invalid service account name {name!r}: use lower case letters, digits and dashes")
    account = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    manifests: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}
    ]
    for grant in grants(rights, namespace=namespace, scope=scope):
        manifests += _role_and_binding(grant, name, account)
    return manifests


def _role_and_binding(grant: Grant, name: str, account: dict[str, str]) -> list[dict[str, Any]]:
    kind = "ClusterRole" if grant.namespace is None else "Role"
    metadata = {"name": name} if grant.namespace is None else {"name": name, "namespace": grant.namespace}
    api = "rbac.authorization.k8s.io"
    return [
        {
            "apiVersion": f"{api}/v1",
            "kind": kind,
            "metadata": metadata,
            "rules": [rule.to_dict() for rule in grant.rules],
        },
        {
            "apiVersion": f"{api}/v1",
            "kind": f"{kind}Binding",
            "metadata": metadata,
            "roleRef": {"apiGroup": api, "kind": kind, "name": name},
            "subjects": [account],
        },
    ]
