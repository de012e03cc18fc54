"""What a Project's status says of its repository, its registry and its environments."""

from __future__ import annotations

from collections.abc import Collection

from kapsa.environments.listings import Listing
from kapsa.environments.resources import Environment, EnvironmentSummary, Project, Registry
from kapsa.runtime import Context

__all__ = ["report"]


def report(
    project: Project,
    ctx: Context[Project],
    environments: Collection[Environment],
    listing: Listing | None,
    registry: Registry | None,
) -> None:
    """Write down what there is; whether it all works is the condition Ready."""
    there = sorted(environments, key=lambda each: each.name)
    if listing is not None:
        ctx.status.latest_commit = listing.refs.branches.get(project.spec.source.branch)
    ctx.status.environments = [
        EnvironmentSummary(
            name=each.name,
            type=each.spec.type,
            ready=each.status.is_true("Ready"),
            url=each.status.url,
        )
        for each in there
        if not each.metadata.deleting
    ]
    _builds(ctx, there)
    _registry(project, ctx, registry)
    for condition in ("RepositoryAccessible", "RegistryReady"):
        found = ctx.status.condition(condition)
        if found is None or found.status != "True":
            message = found.message if found is not None else "nobody has looked at the repository yet"
            ctx.condition(
                "Ready", False, reason=found.reason if found is not None else "Pending", message=message
            )
            return
    ctx.condition("Ready", True, reason="Ready", message=f"{len(there)} environments")


def _registry(project: Project, ctx: Context[Project], registry: Registry | None) -> None:
    named = project.spec.registry.name if project.spec.registry is not None else None
    if named is None:
        ctx.condition("RegistryReady", True, reason="NotRequested", message="the project names no Registry")
    elif registry is None:
        ctx.condition(
            "RegistryReady", False, reason="RegistryMissing", message=f"there is no Registry {named}"
        )
    elif registry.status.verified:
        ctx.condition(
            "RegistryReady", True, reason="Verified", message=f"Registry {named} takes its credentials"
        )
    else:
        found = registry.status.condition("Ready")
        why = found.message if found is not None else "it was not verified yet"
        ctx.condition("RegistryReady", False, reason="NotVerified", message=f"Registry {named}: {why}")


def _builds(ctx: Context[Project], environments: Collection[Environment]) -> None:
    failed = [
        each.name
        for each in environments
        if (found := each.status.condition("BuildReady")) is not None and found.reason == "BuildFailed"
    ]
    built = [each for each in environments if each.status.image and each.status.is_true("BuildReady")]
    if failed:
        ctx.condition(
            "BuildSucceeded",
            False,
            reason="BuildFailed",
            message=f"the build failed for {', '.join(failed[:10])}: see failure in their status",
        )
    elif built:
        ctx.condition(
            "BuildSucceeded", True, reason="Built", message=f"{len(built)} environments have an image"
        )
    if built:
        newest = max(built, key=lambda each: (str(each.status.commit_seen_at or ""), each.name))
        ctx.status.latest_image = newest.status.image
