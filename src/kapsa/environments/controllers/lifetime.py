"""The lifetimes of environments and previews. An environment's counts from its last commit; a person may extend it."""

from __future__ import annotations

from datetime import datetime
from typing import TypeVar

from kapsa.environments.expiry import Expiry, ExpiryVerdict, parse_moment, present, server_time
from kapsa.environments.names import KEEP_UNTIL
from kapsa.environments.resources import Environment, PreviewEnvironment, Project
from kapsa.environments.sources.previews import ALLOW_MASS_DELETION
from kapsa.runtime import Context

__all__ = ["Lifetime", "judge_expiry", "record_commit"]

ExpiringT = TypeVar("ExpiringT", Environment, PreviewEnvironment)


class Lifetime:
    """The lifetimes of all environments, as far as this process has seen them."""

    def __init__(self) -> None:
        self._expiry = Expiry()

    async def judge(
        self, environment: Environment, project: Project | None, ctx: Context[Environment]
    ) -> ExpiryVerdict:
        """Return whether the environment has expired, and report why it stays although its time has passed."""
        allowed = project.metadata.annotations.get(ALLOW_MASS_DELETION) if project is not None else None
        since = ctx.status.commit_seen_at
        return await judge_expiry(self._expiry, environment, ctx, since=since, unbraked=allowed == "true")

    async def end(self, environment: Environment, ctx: Context[Environment]) -> None:
        """Delete an environment that has expired."""
        if await ctx.delete(environment):
            note = f"deleted: its TTL of {environment.spec.ttl} has passed since the last commit"
            ctx.event("Normal", "Expired", note)

    def forget(self, uid: str) -> None:
        """Forget an environment that is gone."""
        self._expiry.forget(uid)


async def judge_expiry(
    expiry: Expiry,
    resource: ExpiringT,
    ctx: Context[ExpiringT],
    *,
    since: datetime | None,
    unbraked: bool,
) -> ExpiryVerdict:
    """Return whether a resource has expired, and report why it stays although its time has passed.

    Its time began at `since`. With `unbraked` it expires however many others of its namespace do.
    """
    now, expires_at = ctx.now(), ctx.status.expires_at
    verdict = expiry.judge(
        resource.metadata.uid,
        expires_at,
        group=resource.namespace,
        members=lambda: [each.status.kept_until for each in ctx.list(type(resource))],
        now=now,
        server=await server_time(ctx.client) if expires_at is not None and expires_at <= now else None,
        since=since,
        kept_until=ctx.status.kept_until,
        monotonic=ctx.client.clock.monotonic(),
        unbraked=unbraked,
    )
    ctx.status.kept_until = verdict.kept_until
    if verdict.message:
        ctx.log.warning("not expired", reason=verdict.reason, why=verdict.message)
        ctx.event("Warning", verdict.reason, verdict.message, action="Delete")
    return verdict


async def record_commit(commit: str, environment: Environment, ctx: Context[Environment]) -> None:
    """Record when a commit was first seen, and compute when the environment expires."""
    status = ctx.status
    if status.seen_commit != commit or status.commit_seen_at is None:
        status.seen_commit = commit
        status.commit_seen_at = (await _first_sight(environment, ctx)).replace(microsecond=0)
    ttl = environment.spec.ttl
    start = min(status.commit_seen_at, _committed_at(environment, ctx) or status.commit_seen_at)
    kept_until = _kept_until(environment, ctx)
    status.expires_at = max(start + ttl.delta, kept_until or start) if ttl is not None else None


async def _first_sight(environment: Environment, ctx: Context[Environment]) -> datetime:
    """Return the time at which a new commit is seen, which must not be too early: the lifetime counts from it."""
    created, committed = (
        environment.metadata.creation_timestamp,
        parse_moment(environment.spec.source.committed_at or ""),
    )
    now = await present(ctx.client, ctx.now(), created, committed, ctx.status.commit_seen_at)
    return max(now, created or now)


def _committed_at(environment: Environment, ctx: Context[Environment]) -> datetime | None:
    """Return the time of the commit, as far as it is known."""
    text = environment.spec.source.committed_at
    if not text:
        return None
    moment = parse_moment(text)
    if moment is None:
        note = "spec.source.committedAt is not a time such as 2030-01-31T12:00:00Z, and is ignored"
        ctx.event("Warning", "CommittedAtInvalid", note, action="Keep")
    return moment


def _kept_until(environment: Environment, ctx: Context[Environment]) -> datetime | None:
    """Return the time until which a person keeps the environment, whatever its TTL."""
    text = environment.metadata.annotations.get(KEEP_UNTIL)
    if not text:
        return None
    moment = parse_moment(text)
    if moment is None:
        note = f"the annotation {KEEP_UNTIL} is not a time such as 2030-01-31T12:00:00Z, and is ignored"
        ctx.event("Warning", "KeepUntilInvalid", note, action="Keep")
    return moment
