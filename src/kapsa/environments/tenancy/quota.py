"""The quota of an environment: the operator's defaults, and what its Project sets within their ceiling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kapsa.adapters.errors import Refused
from kapsa.environments.resources import Project
from kapsa.environments.settings import PREFIX, Settings
from kapsa.runtime import Change, Quantity

__all__ = ["environment_quota", "hard_limits", "is_enforced", "limits_changed", "quota_refusal"]

_FIELDS = ("cpu", "memory", "storage", "ephemeral_storage", "pods", "objects")
_SPELLED = {"ephemeral_storage": "ephemeralStorage"}
"""Fields whose name in the Project is another one."""
_COUNTED = (
    "configmaps",
    "secrets",
    "services",
    "persistentvolumeclaims",
    "deployments.apps",
    "statefulsets.apps",
    "daemonsets.apps",
    "jobs.batch",
    "cronjobs.batch",
    "horizontalpodautoscalers.autoscaling",
    "poddisruptionbudgets.policy",
    "ingresses.networking.k8s.io",
)
_FINISHED = 10
"""Finished pods that are kept, for each pod that may run: a quota of pods does not count them."""


def environment_quota(project: Project, settings: Settings) -> dict[str, Quantity]:
    """Return the limits of each environment of a project, by the name of the field. One that is absent is
    unlimited.

    The default holds for a field that the Project sets to more than the ceiling.
    """
    quota: dict[str, Quantity] = {}
    for name in _FIELDS:
        chosen, ceiling, default = _chosen(project, name), _ceiling(settings, name), _default(settings, name)
        refused = chosen is not None and ceiling is not None and chosen > ceiling
        amount = default if chosen is None or refused else chosen
        if amount is not None:
            quota[name] = amount
    return quota


def quota_refusal(project: Project, settings: Settings) -> Refused | None:
    """Return the error for a Project that sets more than the ceiling; None if it does not."""
    for name in _FIELDS:
        amount, ceiling = _chosen(project, name), _ceiling(settings, name)
        if amount is not None and ceiling is not None and amount > ceiling:
            return Refused(
                f"resources.defaultQuota.{_SPELLED.get(name, name)} of the Project is {amount}, but at most {ceiling} is allowed",
                reason="QuotaAboveCeiling",
                hint=f"Set it to less, or ask an administrator to raise {PREFIX}QUOTA_{name.upper()} or "
                f"{PREFIX}QUOTA_CEILING",
            )
    return None


def _chosen(project: Project, name: str) -> Quantity | None:
    chosen = getattr(project.spec.resources.default_quota, name, None)
    return Quantity(str(chosen)) if chosen is not None else None


def _default(settings: Settings, name: str) -> Quantity | None:
    text = getattr(settings, f"quota_{name}")
    return Quantity(text) if text else None


def _ceiling(settings: Settings, name: str) -> Quantity | None:
    default = _default(settings, name)
    return default * settings.quota_ceiling if default is not None else None


def hard_limits(quota: Mapping[str, Quantity]) -> dict[str, str]:
    """Return the limits in the form of a ResourceQuota."""
    hard: dict[str, str] = {}
    for name in ("cpu", "memory", "ephemeral_storage"):
        if name in quota:
            resource = name.replace("_", "-")
            hard[f"requests.{resource}"] = hard[f"limits.{resource}"] = str(quota[name])
    if "storage" in quota:
        hard["requests.storage"] = str(quota["storage"])
    if "pods" in quota:
        hard["pods"] = str(quota["pods"])
        hard["count/pods"] = str(quota["pods"] * _FINISHED)
    if "objects" in quota:
        hard.update({f"count/{resource}": str(quota["objects"]) for resource in _COUNTED})
    return hard


def is_enforced(quota: Mapping[str, Any]) -> bool:
    """Return whether the API server enforces a ResourceQuota: only what its status lists is limited."""
    hard, observed = quota["spec"].get("hard") or {}, (quota.get("status") or {}).get("hard") or {}
    return hard.keys() <= observed.keys() and all(
        Quantity(amount) == Quantity(observed[name]) for name, amount in hard.items()
    )


def limits_changed(change: Change) -> bool:
    """Return whether anything but the usage of a ResourceQuota changed. For a Watch: each pod changes the usage."""
    return change.old is None or change.new is None or _limits(change.old) != _limits(change.new)


def _limits(stored: Any) -> dict[str, Any]:
    quota: dict[str, Any] = stored.to_dict()
    quota["metadata"].pop("resourceVersion", None)
    (quota.get("status") or {}).pop("used", None)
    return quota
