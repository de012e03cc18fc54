"""The kinds: what people and programs ask the environments operator for.

Project and Environment are the developers', DomainPool and Registry the administrators'; PreviewEnvironment runs one
image for one pull request and knows nothing of the others.
"""

from kapsa.environments.resources.domain_pool import (
    Allocation,
    AllocationPolicy,
    CertManager,
    DomainCount,
    DomainPool,
    DomainPoolSpec,
    DomainPoolStatus,
    IssuerReference,
)
from kapsa.environments.resources.duration import Duration
from kapsa.environments.resources.environment import (
    Environment,
    EnvironmentConfig,
    EnvironmentIngress,
    EnvironmentRuntime,
    EnvironmentSource,
    EnvironmentSpec,
    EnvironmentStatus,
    Failure,
    IngressTls,
    NamespaceStatus,
)
from kapsa.environments.resources.preview_environment import (
    PreviewEnvironment,
    PreviewEnvironmentSpec,
    PreviewEnvironmentStatus,
)
from kapsa.environments.resources.project import (
    BranchFilter,
    Build,
    Credentials,
    Deployment,
    EnvironmentSummary,
    PermanentEnvironment,
    PreviewEnvironments,
    Project,
    ProjectDomain,
    ProjectRegistry,
    ProjectResources,
    ProjectSecret,
    ProjectSource,
    ProjectSpec,
    ProjectStatus,
    QueuedPreview,
    Quota,
    ServiceTarget,
)
from kapsa.environments.resources.references import LocalReference, SecretReference
from kapsa.environments.resources.registry import (
    ImagePullSecret,
    Registry,
    RegistryAuth,
    RegistrySpec,
    RegistryStatus,
)
from kapsa.environments.resources.workload import (
    Autoscaling,
    EnvVar,
    Port,
    Probe,
    Probes,
    ResourceAmounts,
    ResourceRequirements,
)

__all__ = [
    "KINDS",
    "Allocation",
    "AllocationPolicy",
    "Autoscaling",
    "BranchFilter",
    "Build",
    "CertManager",
    "Credentials",
    "Deployment",
    "DomainCount",
    "DomainPool",
    "DomainPoolSpec",
    "DomainPoolStatus",
    "Duration",
    "EnvVar",
    "Environment",
    "EnvironmentConfig",
    "EnvironmentIngress",
    "EnvironmentRuntime",
    "EnvironmentSource",
    "EnvironmentSpec",
    "EnvironmentStatus",
    "EnvironmentSummary",
    "Failure",
    "ImagePullSecret",
    "IngressTls",
    "IssuerReference",
    "LocalReference",
    "NamespaceStatus",
    "PermanentEnvironment",
    "Port",
    "PreviewEnvironment",
    "PreviewEnvironmentSpec",
    "PreviewEnvironmentStatus",
    "PreviewEnvironments",
    "Probe",
    "Probes",
    "Project",
    "ProjectDomain",
    "ProjectRegistry",
    "ProjectResources",
    "ProjectSecret",
    "ProjectSource",
    "ProjectSpec",
    "ProjectStatus",
    "QueuedPreview",
    "Quota",
    "Registry",
    "RegistryAuth",
    "RegistrySpec",
    "RegistryStatus",
    "ResourceAmounts",
    "ResourceRequirements",
    "SecretReference",
    "ServiceTarget",
]

KINDS = (Project, Environment, DomainPool, Registry, PreviewEnvironment)
"""All of them, as CRDs are made of."""
