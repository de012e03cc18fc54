"""Previews: which branches and pull requests get one, which wait, and which go. Pure decisions from what was listed.

A preview goes only after two complete listings in a row without its branch, and never more than 30 % of a project's previews at
once unless somebody says so. A listing without the project's own branch is that of another repository, or of a broken one: nothing
goes because of it.

Git servers go on listing pull requests that were closed long ago. So a pull request counts as open while a branch of the
repository is at its commit, or, if it comes from a fork, from when it first appears until its time is up.
"""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Collection, Sequence
from datetime import datetime

import msgspec

from kapsa.adapters.git.client import Refs
from kapsa.environments.names import sanitize
from kapsa.environments.resources import PreviewEnvironments, Project, QueuedPreview, TrackedBranch

__all__ = ["ALLOW_MASS_DELETION", "PreviewPlan", "Tracking", "matches", "plan", "preview_name", "track"]

ALLOW_MASS_DELETION = "catalyst.dev/allow-mass-deletion"
"""An annotation of a Project, "true" while any number of its previews may go at once."""
MISSING_LISTINGS = 2
DELETED_AT_ONCE = 0.3
_NAME_LIMIT = 40
_TRACKED_LIMIT = 1000


class Tracking(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the branches that previews are for, up to a listing."""

    tracked: Sequence[TrackedBranch] = ()
    last_pull_request: int | None = None
    """The highest number of a pull request that was ever listed; None before the first listing."""
    kept_by_brake: Sequence[str] = ()
    """Previews that would go if fewer went at once."""


class PreviewPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Which previews are to be there now."""

    active: Sequence[TrackedBranch]
    queue: Sequence[QueuedPreview]
    """Those that wait until others go."""
    next_expiry: datetime | None = None
    """When the next one's time is up."""


def preview_name(branch: str = "", *, pull_request: int | None = None) -> str:
    """The name of the Environment of a branch or a pull request. Two branches never share one.

    >>> preview_name("login")
    'login'
    >>> preview_name(pull_request=42)
    'pr-42'
    """
    if pull_request is not None:
        return f"pr-{pull_request}"
    clean = sanitize(branch)
    if clean == branch and len(clean) <= _NAME_LIMIT and not clean.startswith("pr-"):
        return clean
    # What had to be changed could meet another's name: the hash of the raw one tells them apart.
    digest = hashlib.sha256(branch.encode()).hexdigest()[:6]
    return f"{clean[: _NAME_LIMIT - 7].strip('-') or 'branch'}-{digest}"


def matches(branch: str, previews: PreviewEnvironments) -> bool:
    """Whether a branch gets a preview, by the project's globs."""
    chosen = previews.branches
    included = not chosen.include or any(fnmatch.fnmatchcase(branch, glob) for glob in chosen.include)
    return included and not any(fnmatch.fnmatchcase(branch, glob) for glob in chosen.exclude)


def track(
    project: Project,
    refs: Refs,
    known: Tracking,
    existing: Collection[str],
    *,
    now: datetime,
    again: bool = False,
) -> Tracking:
    """Take in a complete listing. `existing` are the names of the previews that are there.

    `again` is for one that was taken in before and is looked at anew, since the project has changed: what it lacks has been
    counted.
    """
    before = {each.name: each for each in known.tracked}
    highest = max([known.last_pull_request or 0, *refs.pull_requests])
    found = {each.name: _aged(each, before.get(each.name)) for each in _chosen(project, refs, known, now)}
    missing = [each for name, each in before.items() if name not in found and not _is_listed(each, refs)]
    if project.spec.source.branch in refs.branches and not again:
        missing = [msgspec.structs.replace(each, missing=each.missing + 1) for each in missing]
    going = [each for each in missing if each.missing >= MISSING_LISTINGS]
    if not project.spec.preview_environments.enabled:
        missing = going = []
    kept = _brake(project, going, existing)
    stay = [each for each in missing if each not in going or each.name in kept]
    tracked = _bounded([*found.values(), *stay])
    return Tracking(tracked=tracked, last_pull_request=highest, kept_by_brake=kept)


def plan(
    project: Project, tracked: Sequence[TrackedBranch], existing: Collection[str], *, now: datetime
) -> PreviewPlan:
    """Which of the tracked branches have a preview now. Those that have one keep their place."""
    previews = project.spec.preview_environments
    chosen = tracked if previews.enabled else ()  # also while the repository cannot be listed
    alive = [each for each in chosen if each.seen_at + previews.ttl.delta > now]
    alive.sort(key=lambda each: (each.name not in existing, each.seen_at, each.name))
    room = previews.max_active if previews.max_active is not None else len(alive)
    queue = [
        QueuedPreview(name=each.name, branch=each.branch or f"pull request {each.pr_number}", position=place)
        for place, each in enumerate(alive[room:], start=1)
    ]
    expiries = [each.seen_at + previews.ttl.delta for each in alive]
    return PreviewPlan(active=alive[:room], queue=queue, next_expiry=min(expiries, default=None))


def _chosen(project: Project, refs: Refs, known: Tracking, now: datetime) -> list[TrackedBranch]:
    """The branches and pull requests of a listing that get a preview, as if each were new."""
    previews = project.spec.preview_environments
    if not previews.enabled:
        return []
    permanent = {project.spec.source.branch, *(each.branch for each in project.spec.environments)}
    found = [
        TrackedBranch(name=preview_name(branch), branch=branch, commit=commit, seen_at=now)
        for branch, commit in refs.branches.items()
        if branch not in permanent and matches(branch, previews)
    ]
    if previews.pull_requests:
        found += _pull_requests(project, refs, known, {each.commit for each in found}, now)
    taken = {each.name for each in project.spec.environments}
    return [each for each in found if each.name not in taken]


def _pull_requests(
    project: Project, refs: Refs, known: Tracking, shown: Collection[str], now: datetime
) -> list[TrackedBranch]:
    """The pull requests that are open, as far as that can be told, and that no branch's preview shows already."""
    before = {each.pr_number: each for each in known.tracked if each.pr_number is not None}
    # The first listing ever has all that were ever closed: nobody can tell those from the open ones of forks.
    last = known.last_pull_request
    heads = {commit: branch for branch, commit in sorted(refs.branches.items(), reverse=True)}
    permanent = {project.spec.source.branch, *(each.branch for each in project.spec.environments)}
    found = []
    for number, commit in refs.pull_requests.items():
        branch = heads.get(commit, "")
        if commit in shown or branch in permanent:
            continue
        tracked = before.get(number)
        from_fork = not branch
        if from_fork and tracked is None and (last is None or number <= last):
            continue
        if from_fork and tracked is not None and tracked.branch:
            continue  # its branch is gone: it was merged or closed
        found.append(
            TrackedBranch(
                name=preview_name(pull_request=number),
                branch=branch,
                pr_number=number,
                commit=commit,
                seen_at=now,
            )
        )
    return found


def _aged(new: TrackedBranch, known: TrackedBranch | None) -> TrackedBranch:
    """A branch that is still at the commit at which it was first seen has been so since then."""
    if known is None or known.commit != new.commit:
        return new
    return msgspec.structs.replace(new, seen_at=known.seen_at)


def _is_listed(known: TrackedBranch, refs: Refs) -> bool:
    """Whether it is still there and just not chosen any more: then somebody changed the project, and it goes at once."""
    if known.pr_number is not None:
        return known.pr_number in refs.pull_requests and not known.branch
    return known.branch in refs.branches


def _brake(project: Project, going: Sequence[TrackedBranch], existing: Collection[str]) -> list[str]:
    """Those that may not go yet, because too many would go at once."""
    if project.metadata.annotations.get(ALLOW_MASS_DELETION) == "true":
        return []
    there = [each.name for each in going if each.name in existing]
    allowed = max(1, int(len(existing) * DELETED_AT_ONCE))
    return there[allowed:]


def _bounded(tracked: Sequence[TrackedBranch]) -> list[TrackedBranch]:
    """A repository with more branches than anybody previews: the newest are kept."""
    newest = sorted(tracked, key=lambda each: each.seen_at, reverse=True)[:_TRACKED_LIMIT]
    return sorted(newest, key=lambda each: each.name)
