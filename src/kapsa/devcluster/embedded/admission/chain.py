"""The admission chain of a default kube-apiserver, in its order."""

from __future__ import annotations

from kapsa.devcluster.embedded.admission.namespace_lifecycle import NamespaceLifecycle
from kapsa.devcluster.embedded.admission.plugins.app_armor import AppArmorAnnotations
from kapsa.devcluster.embedded.admission.plugins.certificates import (
    CertificateAuthor,
    CertificateRights,
    CertificateSubjects,
)
from kapsa.devcluster.embedded.admission.plugins.claim_resize import ClaimResize
from kapsa.devcluster.embedded.admission.plugins.default_classes import (
    DefaultIngressClass,
    DefaultStorageClass,
)
from kapsa.devcluster.embedded.admission.plugins.limit_ranges import LimitRanger
from kapsa.devcluster.embedded.admission.plugins.node_taints import NodeTaints
from kapsa.devcluster.embedded.admission.plugins.pod_resize import (
    NodeDeclaredFeatureValidator,
    PodResizeValidator,
)
from kapsa.devcluster.embedded.admission.plugins.priorities import Priorities
from kapsa.devcluster.embedded.admission.plugins.runtime_classes import RuntimeClasses
from kapsa.devcluster.embedded.admission.plugins.service_accounts import ServiceAccounts
from kapsa.devcluster.embedded.admission.plugins.topology_labels import TopologyLabels
from kapsa.devcluster.embedded.admission.pod_security.admission import PodSecurity
from kapsa.devcluster.embedded.admission.policies.plugins import MutatingPolicies, ValidatingPolicies
from kapsa.devcluster.embedded.admission.quota.admission import ResourceQuotas, StatusWriter
from kapsa.devcluster.embedded.admission.webhooks import WebhookAdmission
from kapsa.devcluster.embedded.authorization.authorizer import Authorizer
from kapsa.devcluster.embedded.authorization.creation import CreationCheck
from kapsa.devcluster.embedded.backend import Admission, Backend

__all__ = ["admission_chain"]


def admission_chain(
    backend: Backend, authorizer: Authorizer, webhooks: WebhookAdmission, write_status: StatusWriter
) -> list[Admission]:
    """Return the plugins in the order in which they are called.

    DefaultTolerationSeconds and StorageObjectInUseProtection need no other object, and are part of the strategies of
    their kinds. `write_status` writes the usage of quotas.
    """
    return [
        NamespaceLifecycle(backend),
        LimitRanger(backend),
        ServiceAccounts(backend),
        NodeTaints(backend),
        PodSecurity(backend),
        Priorities(backend),
        DefaultStorageClass(backend),
        ClaimResize(backend),
        RuntimeClasses(backend),
        CertificateRights(backend, authorizer),
        CertificateSubjects(backend),
        DefaultIngressClass(backend),
        TopologyLabels(backend),
        NodeDeclaredFeatureValidator(backend),
        PodResizeValidator(backend),
        CreationCheck(authorizer),
        MutatingPolicies(backend, authorizer),
        ValidatingPolicies(backend, authorizer),
        webhooks,
        AppArmorAnnotations(backend),
        CertificateAuthor(backend),
        ResourceQuotas(backend, write_status),
    ]
