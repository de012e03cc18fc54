"""What a Project's status says of its repository, its registry and its environments."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kapsa.environments.resources import Environment, EnvironmentSummary, Project, Registry
from kapsa.environments.sources.listings import Listing
from kapsa.runtime import Context, ModelMismatch

__all__ = ["is_readable", "report"]

_LONGEST_MESSAGE = 2048


def report(
    project: Project,
    ctx: Context[Project],
    environments: Collection[Environment],
    listing: Listing | None,
    registry: Registry | None,
    refused: Mapping[str, str],
) -> None:
    """Write down what there is; whether it all works is the condition Ready.

    `refused` are the Environments that the API server did not take, each with its words.
    """
    there = sorted(environments, key=lambda each: each.name)
    readable = {each.name: each for each in there if is_readable(each)}
    if listing is not None:
        ctx.status.latest_commit = listing.refs.branches.get(project.spec.source.branch)
    ctx.status.environments = [
        EnvironmentSummary(
            name=each.name,
            type=each.spec.type,
            ready=each.status.is_true("Ready"),
            url=each.status.url,
        )
        if each.name in readable
        else EnvironmentSummary(name=each.name)
        for each in there
        if not each.metadata.deleting
    ]
    _builds(ctx, readable.values())
    _registry(project, ctx, registry)
    for condition in ("RepositoryAccessible", "RegistryReady"):
        found = ctx.status.condition(condition)
        if found is None or found.status != "True":
            message = found.message if found is not None else "nobody has looked at the repository yet"
            ctx.condition(
                "Ready", False, reason=found.reason if found is not None else "Pending", message=message
            )
            return
    if listing is not None and (missing := _missing_branches(project, listing)):
        told = f"the repository has no branch {' and no branch '.join(missing)}: push it, or name another"
        ctx.condition("Ready", False, reason="BranchNotFound", message=told[:_LONGEST_MESSAGE])
        return
    if refused:
        told = "; ".join(f"Environment {name}: {words}" for name, words in list(refused.items())[:3])
        ctx.condition("Ready", False, reason="EnvironmentRefused", message=told[:_LONGEST_MESSAGE])
        return
    ctx.condition("Ready", True, reason="Ready", message=f"{len(there)} environments")


def _missing_branches(project: Project, listing: Listing) -> list[str]:
    """The branches that the project names and the repository does not have."""
    named = {project.spec.source.branch, *(each.branch for each in project.spec.environments)}
    return sorted(named - listing.refs.branches.keys())


def is_readable(environment: Environment) -> bool:
    """Whether it fits its model. One that does not, which an API server may store, must not be in the way of others."""
    try:
        _ = (environment.spec, environment.status)
    except ModelMismatch:
        return False
    return True


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
