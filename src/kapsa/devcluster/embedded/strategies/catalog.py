"""The strategy of each built-in kind."""

from __future__ import annotations

from kapsa.devcluster.embedded.custom.strategy import CustomResourceStrategy, DefinitionStrategy
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.embedded.strategies.builtin.addresses import Addresses
from kapsa.devcluster.embedded.strategies.builtin.strategy import BuiltIn
from kapsa.devcluster.embedded.strategies.cluster.configuration import ConfigMaps, Secrets
from kapsa.devcluster.embedded.strategies.cluster.coordination import Leases, PriorityClasses
from kapsa.devcluster.embedded.strategies.cluster.events import Events
from kapsa.devcluster.embedded.strategies.cluster.namespaces import Namespaces
from kapsa.devcluster.embedded.strategies.cluster.nodes import Nodes
from kapsa.devcluster.embedded.strategies.cluster.storage import (
    PersistentVolumeClaims,
    PersistentVolumes,
    StorageClasses,
)
from kapsa.devcluster.embedded.strategies.network.endpoints import Endpoints, EndpointSlices
from kapsa.devcluster.embedded.strategies.network.networking import IngressClasses, Ingresses, NetworkPolicies
from kapsa.devcluster.embedded.strategies.network.services import Services
from kapsa.devcluster.embedded.strategies.pods.strategy import Pods
from kapsa.devcluster.embedded.strategies.policy.disruptions import PodDisruptionBudgets
from kapsa.devcluster.embedded.strategies.policy.limits import LimitRanges, ResourceQuotas
from kapsa.devcluster.embedded.strategies.policy.rbac import RoleBindings, Roles
from kapsa.devcluster.embedded.strategies.policy.webhooks import WebhookConfigurations
from kapsa.devcluster.embedded.strategies.workloads.apps import (
    ControllerRevisions,
    DaemonSets,
    Deployments,
    ReplicaSets,
    ReplicationControllers,
    StatefulSets,
)
from kapsa.devcluster.embedded.strategies.workloads.autoscaling import HorizontalPodAutoscalers
from kapsa.devcluster.embedded.strategies.workloads.batch import CronJobs, Jobs
from kapsa.devcluster.embedded.writing.strategy import Strategy

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
    ("apps", "controllerrevisions"): ControllerRevisions,
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
