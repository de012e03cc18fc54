"""The names of kube-apiserver's admission plugins, and the part of this engine that each stands for."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from kapsa.devcluster.embedded.backend import Admission

__all__ = ["PluginNameError", "check_enabled_plugins", "without_plugins"]

_CLASSES = {
    "CertificateApproval": "CertificateRights",
    "CertificateSigning": "CertificateRights",
    "CertificateSubjectRestriction": "CertificateSubjects",
    "DefaultIngressClass": "DefaultIngressClass",
    "DefaultStorageClass": "DefaultStorageClass",
    "LimitRanger": "LimitRanger",
    "MutatingAdmissionPolicy": "MutatingPolicies",
    "MutatingAdmissionWebhook": "WebhookAdmission",
    "NamespaceLifecycle": "NamespaceLifecycle",
    "NodeDeclaredFeatureValidator": "NodeDeclaredFeatureValidator",
    "PersistentVolumeClaimResize": "ClaimResize",
    "PodResizeValidator": "PodResizeValidator",
    "PodSecurity": "PodSecurity",
    "PodTopologyLabels": "TopologyLabels",
    "Priority": "Priorities",
    "ResourceQuota": "ResourceQuotas",
    "RuntimeClass": "RuntimeClasses",
    "ServiceAccount": "ServiceAccounts",
    "TaintNodesByCondition": "NodeTaints",
    "ValidatingAdmissionPolicy": "ValidatingPolicies",
    "ValidatingAdmissionWebhook": "WebhookAdmission",
}
_PERMANENT = frozenset({"DefaultTolerationSeconds", "StorageObjectInUseProtection"})
"""Part of the strategies of their kinds, so they cannot be disabled."""
_IDLE = frozenset(
    {"ClusterTrustBundleAttest", "JobValidation", "PodGroupProtection", "PodGroupWorkloadExists"}
)
"""Enabled by default, but without effect: the feature gates of their kinds are off in 1.36."""
_OFF = frozenset(
    {
        "AlwaysAdmit",
        "AlwaysDeny",
        "AlwaysPullImages",
        "DenyServiceExternalIPs",
        "EventRateLimit",
        "ExtendedResourceToleration",
        "ImagePolicyWebhook",
        "LimitPodHardAntiAffinityTopology",
        "NamespaceAutoProvision",
        "NamespaceExists",
        "NodeRestriction",
        "OwnerReferencesPermissionEnforcement",
        "PodNodeSelector",
        "PodTolerationRestriction",
    }
)
"""Off by default, and not implemented here."""


class PluginNameError(ValueError):
    """A plugin that this engine cannot enable or disable."""


def check_enabled_plugins(names: AbstractSet[str]) -> None:
    """Raise PluginNameError if one of the plugins does not run here."""
    for name in sorted(names):
        if name in _OFF:
            raise PluginNameError(
                f"plugin {name} is not implemented by this engine; use the real kube-apiserver"
            )
        _check_exists(name)


def without_plugins(chain: list[Admission], names: AbstractSet[str]) -> list[Admission]:
    """Return the chain without these plugins. Raises PluginNameError for one that cannot be left out."""
    for name in sorted(names):
        _check_exists(name)
        if name in _PERMANENT:
            raise PluginNameError(
                f"plugin {name} cannot be disabled in this engine; use the real kube-apiserver"
            )
        partners = {each for each, part in _CLASSES.items() if part == _CLASSES.get(name)}
        if missing := sorted(partners - names):
            raise PluginNameError(f"plugin {name} can be disabled only together with {', '.join(missing)}")
    gone = {_CLASSES.get(name) for name in names}
    return [plugin for plugin in chain if type(plugin).__name__ not in gone]


def _check_exists(name: str) -> None:
    if name not in _CLASSES and name not in _PERMANENT | _IDLE | _OFF:
        raise PluginNameError(f'plugin "{name}" is unknown')
