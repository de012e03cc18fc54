"""The status of a Project: its repository, its registry and its environments."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping

from kapsa.adapters.errors import Refused
from kapsa.adapters.oci.image_reference import ImageReference
from kapsa.environments.build.missing_build import NOT_BUILT, missing_build
from kapsa.environments.images.repository_rules import registry_refusal
from kapsa.environments.resources import Environment, EnvironmentSummary, Project, Registry, TeamNamespace
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
    team: TeamNamespace,
) -> None:
    """Write the summary of the project to the status, and set the condition Ready.

    `refused` are the Environments that the API server rejected, each with its message.
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
    _builds(project, ctx, readable.values())
    _registry(project, ctx, registry, team)
    for condition in ("RepositoryAccessible", "RegistryReady"):
        current = ctx.status.condition(condition)
        if current is None or current.status != "True":
            message = current.message if current is not None else "the repository has not been polled yet"
            ctx.condition(
                "Ready", False, reason=current.reason if current is not None else "Pending", message=message
            )
            return
    if listing is not None and (missing := _missing_branches(project, listing)):
        message = (
            f"the repository has no branch {', '.join(missing)}: push it, or name another in the Project"
        )
        ctx.condition("Ready", False, reason="BranchNotFound", message=message[:_LONGEST_MESSAGE])
        return
    if refused:
        message = "; ".join(f"Environment {name}: {words}" for name, words in list(refused.items())[:3])
        ctx.condition("Ready", False, reason="EnvironmentRefused", message=message[:_LONGEST_MESSAGE])
        return
    ctx.condition("Ready", True, reason="Ready", message=f"{len(there)} environments")


def _missing_branches(project: Project, listing: Listing) -> list[str]:
    """Return the branches that the project names and the repository lacks."""
    named = {project.spec.source.branch, *(each.branch for each in project.spec.environments)}
    return sorted(named - listing.refs.branches.keys())


def is_readable(environment: Environment) -> bool:
    """Return whether the Environment fits its model.

    The API server may store one that does not; it must not block others.
    """
    try:
        _ = (environment.spec, environment.status)
    except ModelMismatch:
        return False
    return True


def _registry(
    project: Project, ctx: Context[Project], registry: Registry | None, team: TeamNamespace
) -> None:
    named = project.spec.registry.name if project.spec.registry is not None else None
    if named is None:
        ctx.condition("RegistryReady", True, reason="NotRequested", message="the Project uses no Registry")
    elif registry is None:
        ctx.condition(
            "RegistryReady", False, reason="RegistryMissing", message=f"Registry {named} does not exist"
        )
    elif refusal := registry_refusal(registry, team, _image(project, registry)):
        ctx.condition("RegistryReady", False, reason="RegistryNotAllowed", message=refusal)
    elif registry.status.verified:
        ctx.condition(
            "RegistryReady", True, reason="Verified", message=f"Registry {named} accepts its credentials"
        )
    else:
        ready = registry.status.condition("Ready")
        why = ready.message if ready is not None else "not verified yet"
        ctx.condition("RegistryReady", False, reason="NotVerified", message=f"Registry {named}: {why}")


def _image(project: Project, registry: Registry) -> ImageReference | None:
    """Return the repository of the project's images; None if its name is not valid, which the build reports."""
    assert project.spec.registry is not None
    with contextlib.suppress(Refused):
        return ImageReference.within(registry.spec.endpoint, project.spec.registry.image_repository)
    return None


def _builds(project: Project, ctx: Context[Project], environments: Collection[Environment]) -> None:
    if why := missing_build(project):
        ctx.condition("BuildSucceeded", None, reason=NOT_BUILT, message=why)
        return
    failed = [
        each.name
        for each in environments
        if (build := each.status.condition("BuildReady")) is not None and build.reason == "BuildFailed"
    ]
    built = [each for each in environments if each.status.image and each.status.is_true("BuildReady")]
    if failed:
        ctx.condition(
            "BuildSucceeded",
            False,
            reason="BuildFailed",
            message=f"the build failed for {', '.join(failed[:10])}: see status.failure of each",
        )
    elif built:
        ctx.condition(
            "BuildSucceeded", True, reason="Built", message=f"{len(built)} environments have an image"
        )
    if built:
        newest = max(built, key=lambda each: (str(each.status.commit_seen_at or ""), each.name))
        ctx.status.latest_image = newest.status.image
