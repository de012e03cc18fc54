"""The strategy of each built-in kind."""

from __future__ import annotations

from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.embedded.strategies.cluster.configuration import ConfigMapStrategy, SecretStrategy
from kapsa.devcluster.embedded.strategies.cluster.coordination import LeaseStrategy, PriorityClassStrategy
from kapsa.devcluster.embedded.strategies.cluster.devices import (
    DeviceClassStrategy,
    ResourceClaimStrategy,
    ResourceClaimTemplateStrategy,
    ResourceSliceStrategy,
)
from kapsa.devcluster.embedded.strategies.cluster.events import EventStrategy
from kapsa.devcluster.embedded.strategies.cluster.flow_control import (
    FlowSchemaStrategy,
    PriorityLevelStrategy,
)
from kapsa.devcluster.embedded.strategies.cluster.namespaces import NamespaceStrategy
from kapsa.devcluster.embedded.strategies.cluster.nodes import NodeStrategy
from kapsa.devcluster.embedded.strategies.cluster.runtime_classes import RuntimeClassStrategy
from kapsa.devcluster.embedded.strategies.cluster.service_accounts import ServiceAccountStrategy
from kapsa.devcluster.embedded.strategies.cluster.storage import (
    PersistentVolumeClaimStrategy,
    PersistentVolumeStrategy,
)
from kapsa.devcluster.embedded.strategies.cluster.storage_classes import (
    CSIDriverStrategy,
    CSINodeStrategy,
    CSIStorageCapacityStrategy,
    StorageClassStrategy,
    VolumeAttachmentStrategy,
    VolumeAttributesClassStrategy,
)
from kapsa.devcluster.embedded.strategies.custom.strategy import CustomResourceStrategy, DefinitionStrategy
from kapsa.devcluster.embedded.strategies.generic.addresses import Addresses
from kapsa.devcluster.embedded.strategies.generic.builtin import BuiltInStrategy
from kapsa.devcluster.embedded.strategies.generic.strategy import Strategy
from kapsa.devcluster.embedded.strategies.network.addresses import IPAddressStrategy, ServiceCIDRStrategy
from kapsa.devcluster.embedded.strategies.network.endpoints import EndpointSliceStrategy, EndpointsStrategy
from kapsa.devcluster.embedded.strategies.network.network_policies import NetworkPolicyStrategy
from kapsa.devcluster.embedded.strategies.network.networking import (
    IngressClassStrategy,
    IngressStrategy,
)
from kapsa.devcluster.embedded.strategies.network.services import ServiceStrategy
from kapsa.devcluster.embedded.strategies.pods.strategy import PodStrategy
from kapsa.devcluster.embedded.strategies.pods.templates import StoredPodTemplateStrategy
from kapsa.devcluster.embedded.strategies.policy.admission_policies import (
    MutatingBindingStrategy,
    MutatingPolicyStrategy,
    ValidatingBindingStrategy,
    ValidatingPolicyStrategy,
)
from kapsa.devcluster.embedded.strategies.policy.api_services import APIServiceStrategy
from kapsa.devcluster.embedded.strategies.policy.certificates import CertificateSigningRequestStrategy
from kapsa.devcluster.embedded.strategies.policy.disruptions import PodDisruptionBudgetStrategy
from kapsa.devcluster.embedded.strategies.policy.limits import LimitRangeStrategy, ResourceQuotaStrategy
from kapsa.devcluster.embedded.strategies.policy.rbac import RoleBindingStrategy, RoleStrategy
from kapsa.devcluster.embedded.strategies.policy.webhooks import WebhookConfigurationStrategy
from kapsa.devcluster.embedded.strategies.workloads.apps import (
    ControllerRevisionStrategy,
    DaemonSetStrategy,
    DeploymentStrategy,
    ReplicaSetStrategy,
    ReplicationControllerStrategy,
    StatefulSetStrategy,
)
from kapsa.devcluster.embedded.strategies.workloads.autoscaling import HorizontalPodAutoscalerStrategy
from kapsa.devcluster.embedded.strategies.workloads.batch import CronJobStrategy, JobStrategy

_RBAC = "rbac.authorization.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"

_KINDS: dict[tuple[str, str], type[BuiltInStrategy]] = {
    ("", "configmaps"): ConfigMapStrategy,
    ("", "endpoints"): EndpointsStrategy,
    ("", "events"): EventStrategy,
    ("", "limitranges"): LimitRangeStrategy,
    ("", "namespaces"): NamespaceStrategy,
    ("", "nodes"): NodeStrategy,
    ("", "persistentvolumeclaims"): PersistentVolumeClaimStrategy,
    ("", "persistentvolumes"): PersistentVolumeStrategy,
    ("", "pods"): PodStrategy,
    ("", "podtemplates"): StoredPodTemplateStrategy,
    ("", "replicationcontrollers"): ReplicationControllerStrategy,
    ("", "resourcequotas"): ResourceQuotaStrategy,
    ("", "secrets"): SecretStrategy,
    ("", "services"): ServiceStrategy,
    ("apiregistration.k8s.io", "apiservices"): APIServiceStrategy,
    ("apps", "controllerrevisions"): ControllerRevisionStrategy,
    ("apps", "daemonsets"): DaemonSetStrategy,
    ("apps", "deployments"): DeploymentStrategy,
    ("apps", "replicasets"): ReplicaSetStrategy,
    ("apps", "statefulsets"): StatefulSetStrategy,
    ("autoscaling", "horizontalpodautoscalers"): HorizontalPodAutoscalerStrategy,
    ("batch", "cronjobs"): CronJobStrategy,
    ("batch", "jobs"): JobStrategy,
    ("certificates.k8s.io", "certificatesigningrequests"): CertificateSigningRequestStrategy,
    ("coordination.k8s.io", "leases"): LeaseStrategy,
    ("discovery.k8s.io", "endpointslices"): EndpointSliceStrategy,
    ("events.k8s.io", "events"): EventStrategy,
    ("networking.k8s.io", "ingressclasses"): IngressClassStrategy,
    ("networking.k8s.io", "ingresses"): IngressStrategy,
    ("networking.k8s.io", "ipaddresses"): IPAddressStrategy,
    ("networking.k8s.io", "networkpolicies"): NetworkPolicyStrategy,
    ("networking.k8s.io", "servicecidrs"): ServiceCIDRStrategy,
    ("policy", "poddisruptionbudgets"): PodDisruptionBudgetStrategy,
    ("scheduling.k8s.io", "priorityclasses"): PriorityClassStrategy,
    ("storage.k8s.io", "csidrivers"): CSIDriverStrategy,
    ("node.k8s.io", "runtimeclasses"): RuntimeClassStrategy,
    ("storage.k8s.io", "csinodes"): CSINodeStrategy,
    ("storage.k8s.io", "csistoragecapacities"): CSIStorageCapacityStrategy,
    ("storage.k8s.io", "storageclasses"): StorageClassStrategy,
    ("storage.k8s.io", "volumeattachments"): VolumeAttachmentStrategy,
    ("storage.k8s.io", "volumeattributesclasses"): VolumeAttributesClassStrategy,
    ("resource.k8s.io", "deviceclasses"): DeviceClassStrategy,
    ("resource.k8s.io", "resourceclaims"): ResourceClaimStrategy,
    ("resource.k8s.io", "resourceslices"): ResourceSliceStrategy,
    ("resource.k8s.io", "resourceclaimtemplates"): ResourceClaimTemplateStrategy,
    ("flowcontrol.apiserver.k8s.io", "flowschemas"): FlowSchemaStrategy,
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"): PriorityLevelStrategy,
    (_RBAC, "clusterrolebindings"): RoleBindingStrategy,
    (_RBAC, "clusterroles"): RoleStrategy,
    (_RBAC, "rolebindings"): RoleBindingStrategy,
    (_RBAC, "roles"): RoleStrategy,
    ("", "serviceaccounts"): ServiceAccountStrategy,
    (_ADMISSION, "mutatingadmissionpolicies"): MutatingPolicyStrategy,
    (_ADMISSION, "mutatingadmissionpolicybindings"): MutatingBindingStrategy,
    (_ADMISSION, "validatingadmissionpolicies"): ValidatingPolicyStrategy,
    (_ADMISSION, "validatingadmissionpolicybindings"): ValidatingBindingStrategy,
    (_ADMISSION, "mutatingwebhookconfigurations"): WebhookConfigurationStrategy,
    (_ADMISSION, "validatingwebhookconfigurations"): WebhookConfigurationStrategy,
}


def strategy_for(info: ResourceInfo, addresses: Addresses) -> Strategy:
    """Return the strategy of a resource. A kind without peculiarities has the generic one."""
    if info.is_custom:
        return CustomResourceStrategy(info)
    if (info.group, info.resource) == ("apiextensions.k8s.io", "customresourcedefinitions"):
        return DefinitionStrategy(info)
    kind = _KINDS.get((info.group, info.resource))
    if kind is not None:
        return kind(info, addresses)
    return Strategy(info)
