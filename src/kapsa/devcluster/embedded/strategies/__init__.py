"""What sets each built-in kind apart on its way to storage.

:func:`strategy_for` finds the strategy of a kind. A module holds one family of kinds: their defaults that OpenAPI
does not carry, the status they begin with, what they allocate, what may not change, and the rules of the hand-written
validation of the real server, in its words.
"""

from __future__ import annotations

from ..crd_strategy import CustomResourceStrategy, DefinitionStrategy
from ..registry import ResourceInfo
from ..strategy import Strategy
from .addresses import Addresses
from .autoscaling import HorizontalPodAutoscalers
from .batch import CronJobs, Jobs
from .builtin import BuiltIn
from .configuration import ConfigMaps, Secrets
from .coordination import Leases, PriorityClasses
from .discovery import Endpoints, EndpointSlices
from .events import Events
from .limits import LimitRanges, ResourceQuotas
from .namespaces import Namespaces
from .networking import IngressClasses, Ingresses, NetworkPolicies
from .nodes import Nodes
from .pods import Pods
from .policy import PodDisruptionBudgets
from .rbac import RoleBindings, Roles
from .services import Services
from .storage import PersistentVolumeClaims, PersistentVolumes, StorageClasses
from .webhooks import WebhookConfigurations
from .workloads import DaemonSets, Deployments, ReplicaSets, ReplicationControllers, StatefulSets

__all__ = ["Addresses", "BuiltIn", "strategy_for"]

_RBAC = "rbac.authorization.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"

_KINDS: dict[tuple[str, str], type[BuiltIn]] = {
    ("", "configmaps"): ConfigMaps,
    ("", "endpoints"): Endpoints,
    ("", "events"): Events,
    ("", "limitranges"): LimitRanges,
    ("", "namespaces"): Namespaces,
    ("", "nodes"): Nodes,
    ("", "persistentvolumeclaims"): PersistentVolumeClaims,
    ("", "persistentvolumes"): PersistentVolumes,
    ("", "pods"): Pods,
    ("", "replicationcontrollers"): ReplicationControllers,
    ("", "resourcequotas"): ResourceQuotas,
    ("", "secrets"): Secrets,
    ("", "services"): Services,
    ("apps", "daemonsets"): DaemonSets,
    ("apps", "deployments"): Deployments,
    ("apps", "replicasets"): ReplicaSets,
    ("apps", "statefulsets"): StatefulSets,
    ("autoscaling", "horizontalpodautoscalers"): HorizontalPodAutoscalers,
    ("batch", "cronjobs"): CronJobs,
    ("batch", "jobs"): Jobs,
    ("coordination.k8s.io", "leases"): Leases,
    ("discovery.k8s.io", "endpointslices"): EndpointSlices,
    ("events.k8s.io", "events"): Events,
    ("networking.k8s.io", "ingressclasses"): IngressClasses,
    ("networking.k8s.io", "ingresses"): Ingresses,
    ("networking.k8s.io", "networkpolicies"): NetworkPolicies,
    ("policy", "poddisruptionbudgets"): PodDisruptionBudgets,
    ("scheduling.k8s.io", "priorityclasses"): PriorityClasses,
    ("storage.k8s.io", "storageclasses"): StorageClasses,
    (_RBAC, "clusterrolebindings"): RoleBindings,
    (_RBAC, "clusterroles"): Roles,
    (_RBAC, "rolebindings"): RoleBindings,
    (_RBAC, "roles"): Roles,
    (_ADMISSION, "mutatingwebhookconfigurations"): WebhookConfigurations,
    (_ADMISSION, "validatingwebhookconfigurations"): WebhookConfigurations,
}


def strategy_for(info: ResourceInfo, addresses: Addresses) -> Strategy:
    """The strategy of a resource; custom resources and plain kinds get the plain one."""
    if info.is_custom:
        return CustomResourceStrategy(info)
    if (info.group, info.resource) == ("apiextensions.k8s.io", "customresourcedefinitions"):
        return DefinitionStrategy(info)
    kind = _KINDS.get((info.group, info.resource))
    if kind is not None:
        return kind(info, addresses)
    return Strategy(info)
