"""Transitions of an environment, for the audit trail: one log line, and one event on it and on its Project."""

from __future__ import annotations

import msgspec

from kapsa.environments.resources import Environment, EnvironmentStatus, Project
from kapsa.runtime import Context, ObjectReference

__all__ = ["Transition", "deletion", "record", "transitions"]

_SUSPENDED = "Suspended"


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """A change of an environment that people should be able to find later."""

    reason: str
    note: str
    warning: bool = False


def transitions(before: EnvironmentStatus, after: EnvironmentStatus) -> list[Transition]:
    """Return what has happened between two statuses, in order."""
    made: list[Transition] = []
    if after.seen_commit and after.seen_commit != before.seen_commit:
        made.append(Transition(reason="CommitSeen", note=f"commit {after.seen_commit} is requested"))
    if after.image and after.image != before.image:
        made.append(Transition(reason="Built", note=f"image {after.image}"))
    if after.commit_sha and after.commit_sha != before.commit_sha:
        made.append(Transition(reason="Deployed", note=f"commit {after.commit_sha} is applied"))
    if _is_asleep(after) and not _is_asleep(before):
        made.append(Transition(reason="Asleep", note="suspended: no pod runs"))
    if _is_asleep(before) and not _is_asleep(after):
        made.append(Transition(reason="Awake", note="resumed"))
    return [*made, *_health(before, after)]


def _health(before: EnvironmentStatus, after: EnvironmentStatus) -> list[Transition]:
    if (now := after.failure) is not None:
        earlier = before.failure
        if earlier is None or (earlier.step, earlier.reason) != (now.step, now.reason):
            return [Transition(reason=now.reason, note=f"{now.step}: {now.message}", warning=True)]
    elif after.phase == "Ready" and before.phase != "Ready":
        where = f"serving at {after.url}" if after.url else "running"
        return [Transition(reason="Ready", note=f"commit {after.commit_sha} is {where}")]
    elif after.phase == "Degraded" and before.phase != "Degraded":
        condition = after.condition("Ready")
        return [Transition(reason="Degraded", note=condition.message if condition else "", warning=True)]
    return []


def _is_asleep(status: EnvironmentStatus) -> bool:
    ready = status.condition("Ready")
    return ready is not None and ready.reason == _SUSPENDED


def deletion(environment: Environment) -> Transition:
    """Return the end of an environment, with its cause as far as the environment shows it."""
    expires, deleted = environment.status.expires_at, environment.metadata.deletion_timestamp
    expired = expires is not None and deleted is not None and deleted >= expires
    why = "because its TTL has passed" if expired else "by its Project or a person"
    return Transition(reason="Deleted", note=f"deleted {why}, with its namespace and host")


def record(
    made: list[Transition], environment: Environment, project: Project | None, ctx: Context[Environment]
) -> None:
    """Write each transition to the log, and as an event on the environment and on its Project."""
    for each in made:
        level = "Warning" if each.warning else "Normal"
        ctx.log.info(
            "environment changed",
            transition=each.reason,
            note=each.note,
            environment=str(environment.metadata),
            project=str(project.metadata) if project is not None else "",
        )
        ctx.event(level, each.reason, each.note, action="Reconcile")
        if project is not None:
            ctx.event(
                level,
                each.reason,
                f"Environment {environment.name}: {each.note}",
                regarding=_reference(project),
            )


def _reference(project: Project) -> ObjectReference:
    return ObjectReference(
        api_version=Project.api_version,
        kind=Project.kind,
        name=project.name,
        namespace=project.namespace,
        uid=project.metadata.uid,
    )
