"""Previews: the branches and pull requests that get one, wait, or lose theirs, by pure functions.

A preview is deleted only after two complete listings in a row without its branch, and at most 30 % of a
project's previews are deleted at once, unless the Project allows more. A listing without the project's own
branch comes from a wrong or broken repository, and nothing is deleted because of it.

The TTL counts from the last commit, so branches that have been quiet for longer get no preview. A commit's time is
the word of its author: one in the future counts as now.

Git servers keep listing pull requests that were closed long ago. So a pull request counts as open while a
branch of the repository is at its commit or, if it comes from a fork, from its first appearance until its TTL
expires.
"""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import msgspec

from kapsa.adapters.git.client import Refs
from kapsa.environments.expiry import DELETED_AT_ONCE
from kapsa.environments.names import sanitize
from kapsa.environments.resources import PreviewEnvironments, Project, QueuedPreview, TrackedBranch

__all__ = [
    "ALLOW_MASS_DELETION",
    "PreviewPlan",
    "Tracking",
    "matches",
    "new_commits",
    "plan",
    "preview_name",
    "track",
]

ALLOW_MASS_DELETION = "catalyst.dev/allow-mass-deletion"
"""An annotation of a Project: "true" allows any number of its previews to be deleted at once."""
MISSING_LISTINGS = 2
_NAME_LIMIT = 40
_TRACKED_LIMIT = 1000
_SHARE_OF_STRANGERS = 3
"""The share of previews for forks that nobody has approved, as a divisor."""
_NO_TIMES: Mapping[str, datetime] = {}


class Tracking(msgspec.Struct, frozen=True, kw_only=True):
    """The branches tracked for previews, up to a listing."""

    tracked: Sequence[TrackedBranch] = ()
    last_pull_request: int | None = None
    """The highest number of a pull request that was ever listed; None before the first listing."""
    kept_by_brake: Sequence[str] = ()
    """The previews kept because too many would be deleted at once."""


class PreviewPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The previews that should exist now."""

    active: Sequence[TrackedBranch]
    queue: Sequence[QueuedPreview]
    """The previews that wait until others are deleted."""
    next_expiry: datetime | None = None
    """The time at which the next preview expires."""


def preview_name(branch: str = "", *, pull_request: int | None = None) -> str:
    """Return the name of the Environment of a branch or a pull request. No two branches share one.

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
    # A sanitized name could collide with another: the hash of the raw name keeps them distinct.
    digest = hashlib.sha256(branch.encode()).hexdigest()[:6]
    return f"{clean[: _NAME_LIMIT - 7].strip('-') or 'branch'}-{digest}"


def matches(branch: str, previews: PreviewEnvironments) -> bool:
    """Return whether a branch gets a preview by the project's globs."""
    chosen = previews.branches
    included = not chosen.include or any(fnmatch.fnmatchcase(branch, glob) for glob in chosen.include)
    return included and not any(fnmatch.fnmatchcase(branch, glob) for glob in chosen.exclude)


def track(
    project: Project,
    refs: Refs,
    last: Tracking,
    existing: Collection[str],
    *,
    now: datetime,
    times: Mapping[str, datetime] | None = _NO_TIMES,
    again: bool = False,
) -> Tracking:
    """Return the tracking after a complete listing. `existing` are the names of the previews that exist.

    `times` are the times of new commits; one that is absent counts from now. It is None if the
    repository does not respond: then new commits wait for the next listing.

    `again` marks a listing that was tracked before and is evaluated again because the project has changed:
    its missing branches are already counted.
    """
    before = {each.name: each for each in last.tracked}
    highest = max([last.last_pull_request or 0, *refs.pull_requests])
    selected = {
        each.name: aged
        for each in _selected(project, refs, last, now)
        if (aged := _aged(each, before.get(each.name), times)) is not None
    }
    missing = [each for name, each in before.items() if name not in selected and not _is_listed(each, refs)]
    if project.spec.source.branch in refs.branches and not again:
        missing = [msgspec.structs.replace(each, missing=each.missing + 1) for each in missing]
    removed = [each for each in missing if each.missing >= MISSING_LISTINGS]
    if not project.spec.preview_environments.enabled:
        missing = removed = []
    kept = _brake(project, removed, existing)
    stay = [each for each in missing if each not in removed or each.name in kept]
    tracked = _bounded([*selected.values(), *stay])
    return Tracking(tracked=tracked, last_pull_request=highest, kept_by_brake=kept)


def new_commits(project: Project, refs: Refs, last: Tracking, *, now: datetime) -> list[str]:
    """Return the commits of a listing whose time decides whether they get a preview, and until when."""
    before = {each.name: each.commit for each in last.tracked}
    return [
        each.commit for each in _selected(project, refs, last, now) if before.get(each.name) != each.commit
    ]


def plan(
    project: Project,
    tracked: Sequence[TrackedBranch],
    existing: Collection[str],
    *,
    now: datetime,
    approved: Collection[str] = (),
) -> PreviewPlan:
    """Return the tracked branches that should have a preview now. Existing previews come first.

    Anybody can open pull requests from forks. Those that are not `approved` come last, and at most a third of the
    previews are theirs, so that they do not keep the team from its own.

    One that has expired is not created again, but an existing one stays until its Environment expires, which is
    judged there alone.
    """
    previews = project.spec.preview_environments
    chosen = tracked if previews.enabled else ()  # also while the repository cannot be listed
    alive = [each for each in chosen if each.name in existing or each.seen_at + previews.ttl.delta > now]
    strangers = {each.name for each in alive if _is_of_stranger(project, each, approved)}
    alive.sort(key=lambda each: (each.name not in existing, each.name in strangers, each.seen_at, each.name))
    # A lower maxActive keeps what exists: previews go with their branch or their time, and only new ones wait.
    room = max(previews.max_active, sum(each.name in existing for each in alive))
    share = max(1, previews.max_active // _SHARE_OF_STRANGERS, len(strangers.intersection(existing)))
    waiting = {each.name for each in [each for each in alive if each.name in strangers][share:]}
    active = [each for each in alive if each.name not in waiting][:room]
    served = {each.name for each in active}
    queue = [
        QueuedPreview(
            name=each.name, branch=each.branch or f"pull request {each.pr_number}", position=position
        )
        for position, each in enumerate((each for each in alive if each.name not in served), start=1)
    ]
    expiries = [due for each in alive if (due := each.seen_at + previews.ttl.delta) > now]
    return PreviewPlan(active=active, queue=queue, next_expiry=min(expiries, default=None))


def _is_of_stranger(project: Project, tracked: TrackedBranch, approved: Collection[str]) -> bool:
    """Return whether a preview is of a pull request from a fork that nobody has approved."""
    from_fork = tracked.pr_number is not None and not tracked.branch
    return from_fork and project.spec.preview_environments.trust != "all" and tracked.name not in approved


def _selected(project: Project, refs: Refs, last: Tracking, now: datetime) -> list[TrackedBranch]:
    """Return the branches and pull requests of a listing that get a preview, as if each were new."""
    previews = project.spec.preview_environments
    if not previews.enabled:
        return []
    permanent = {project.spec.source.branch, *(each.branch for each in project.spec.environments)}
    selected = [
        TrackedBranch(name=preview_name(branch), branch=branch, commit=commit, seen_at=now)
        for branch, commit in refs.branches.items()
        if branch not in permanent and matches(branch, previews)
    ]
    if previews.pull_requests:
        selected += _pull_requests(project, refs, last, {each.commit for each in selected}, now)
    taken = {each.name for each in project.spec.environments}
    return [each for each in selected if each.name not in taken]


def _pull_requests(
    project: Project, refs: Refs, tracking: Tracking, shown: Collection[str], now: datetime
) -> list[TrackedBranch]:
    """Return the pull requests that count as open and whose commit no branch's preview already shows."""
    before = {each.pr_number: each for each in tracking.tracked if each.pr_number is not None}
    # The first listing contains every closed pull request; those of forks look the same as open ones.
    highest = tracking.last_pull_request
    heads = {commit: branch for branch, commit in sorted(refs.branches.items(), reverse=True)}
    permanent = {project.spec.source.branch, *(each.branch for each in project.spec.environments)}
    opened = []
    for number, commit in refs.pull_requests.items():
        branch = heads.get(commit, "")
        if commit in shown or branch in permanent:
            continue
        tracked = before.get(number)
        from_fork = not branch
        if from_fork and tracked is None and (highest is None or number <= highest):
            continue
        if from_fork and tracked is not None and tracked.branch:
            continue  # its branch is gone: the pull request was merged or closed
        opened.append(
            TrackedBranch(
                name=preview_name(pull_request=number),
                branch=branch,
                pr_number=number,
                commit=commit,
                seen_at=now,
            )
        )
    return opened


def _aged(
    new: TrackedBranch, before: TrackedBranch | None, times: Mapping[str, datetime] | None
) -> TrackedBranch | None:
    """Return the branch with the time of its commit, or at which it was first seen at this commit."""
    if before is not None and before.commit == new.commit:
        return msgspec.structs.replace(new, seen_at=before.seen_at)
    if times is None:
        return before
    return msgspec.structs.replace(new, seen_at=min(new.seen_at, times.get(new.commit, new.seen_at)))


def _is_listed(tracked: TrackedBranch, refs: Refs) -> bool:
    """Return whether the branch exists but is no longer selected: then its preview goes at once."""
    if tracked.pr_number is not None:
        return tracked.pr_number in refs.pull_requests and not tracked.branch
    return tracked.branch in refs.branches


def _brake(project: Project, removed: Sequence[TrackedBranch], existing: Collection[str]) -> list[str]:
    """Return the previews to keep for now, because too many would be deleted at once."""
    if project.metadata.annotations.get(ALLOW_MASS_DELETION) == "true":
        return []
    deletable = [each.name for each in removed if each.name in existing]
    allowed = max(1, int(len(existing) * DELETED_AT_ONCE))
    return deletable[allowed:]


def _bounded(tracked: Sequence[TrackedBranch]) -> list[TrackedBranch]:
    """Return the newest of the tracked branches, sorted by name: a repository may have thousands."""
    newest = sorted(tracked, key=lambda each: each.seen_at, reverse=True)[:_TRACKED_LIMIT]
    return sorted(newest, key=lambda each: each.name)
