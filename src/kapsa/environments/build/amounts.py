"""Amounts of CPU, memory and disk for builds: the most for one container, and the share of a team.

All builds share one quota. A build beyond it waits without a pod, among all others that wait. So a team starts no
build that would only wait, and none above half of the quota while another team builds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kapsa.adapters.errors import Refused
from kapsa.environments.resources.workload import ResourceRequirements
from kapsa.environments.settings import Settings
from kapsa.runtime import Quantity

__all__ = [
    "DEFAULT_LIMITS",
    "DEFAULT_REQUESTS",
    "build_quota",
    "build_resources",
    "has_used_its_share",
    "largest",
]

DEFAULT_LIMITS: Mapping[str, str] = {"cpu": "2", "memory": "4Gi", "ephemeral-storage": "20Gi"}
DEFAULT_REQUESTS: Mapping[str, str] = {"cpu": "100m", "memory": "256Mi", "ephemeral-storage": "1Gi"}
_LARGEST_PART, _TEAM_PART = 4, 2
"""A container has a quarter of the quota at most, a team half of it while another team builds."""


def build_quota(settings: Settings) -> dict[str, str]:
    """Return the amounts that all builds together may request."""
    return {
        "cpu": settings.build_quota_cpu,
        "memory": settings.build_quota_memory,
        "ephemeral-storage": settings.build_quota_ephemeral_storage,
    }


def largest(settings: Settings) -> dict[str, str]:
    """Return the most for one container: a quarter of the quota, or the default limit if that is more."""
    return {
        name: str(min(Quantity(total), max(Quantity(total) / _LARGEST_PART, Quantity(DEFAULT_LIMITS[name]))))
        for name, total in build_quota(settings).items()
    }


def build_resources(resources: ResourceRequirements, settings: Settings) -> dict[str, dict[str, str]]:
    """Return the resources of a container that builds. A limit that is not set is never below the request.

    Raises `Refused` when they are more than one container may have: its pod would never be created.
    """
    requests = {name: str(amount) for name, amount in resources.requests.items()}
    limits = {name: str(amount) for name, amount in resources.limits.items()}
    for name, amount in requests.items():
        if (
            name in DEFAULT_LIMITS
            and name not in limits
            and Quantity(amount) > Quantity(DEFAULT_LIMITS[name])
        ):
            limits[name] = amount
    for name, most in largest(settings).items():
        if name in limits and Quantity(limits[name]) > Quantity(most):
            raise Refused(
                f"build.resources has {limits[name]} {name}, but one build may have at most {most}",
                hint="Lower build.resources of the Project, or ask an administrator to raise "
                f"KAPSA_BUILD_QUOTA_{name.replace('-', '_').upper()}, of which one build may have a quarter",
            )
    return {key: amounts for key, amounts in (("requests", requests), ("limits", limits)) if amounts}


def has_used_its_share(settings: Settings, builds: Iterable[Mapping[str, Any]], *, alone: bool) -> bool:
    """Return whether the running builds of a team request its share: the quota if it is alone, else half of it."""
    amounts, part = [_requested(build) for build in builds], 1 if alone else _TEAM_PART
    return part * len(amounts) >= settings.build_quota_pods or any(
        part * sum(each[name] for each in amounts) >= Quantity(total).value
        for name, total in build_quota(settings).items()
    )


def _requested(build: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a Job or a kpack Image requests. The containers of a Job run one after another."""
    if build["kind"] == "Job":
        pod = build["spec"]["template"]["spec"]
        every = [each.get("resources") or {} for each in (*pod.get("initContainers", ()), *pod["containers"])]
    else:
        every = [build["spec"].get("build", {}).get("resources") or {}]
    return {name: max(_request(each, name) for each in every) for name in DEFAULT_REQUESTS}


def _request(resources: Mapping[str, Any], name: str) -> Any:
    amounts = {**DEFAULT_REQUESTS, **(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return Quantity(amounts[name]).value
