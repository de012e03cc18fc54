"""A step on the way to a ready environment, the outcomes it may have, and the order in which steps run.

A step runs again and again on the same state and does only what is left to do. It returns `Done`, `Waiting`
(a watch triggers the next run) or `StepFailure`. A step that is not done stops the steps after it and leaves
the work of earlier steps alone: when a build fails, the previous version keeps serving. The first steps are walls:
they need nothing but the cluster, and all of them run, so that what an administrator withdraws is gone.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar, Protocol, TypeAlias

import msgspec

from kapsa.adapters.errors import ExternalError
from kapsa.adapters.redaction import printable, redact
from kapsa.environments.resources import Environment, Failure
from kapsa.environments.resources.environment import Phase
from kapsa.environments.step_run import StepRun
from kapsa.runtime import ApiError, BadRequest, Context, Forbidden, Invalid, TooLarge

__all__ = [
    "RETRY_SECONDS",
    "Done",
    "Outcome",
    "Step",
    "StepFailure",
    "Waiting",
    "advance",
    "enforce",
    "from_outside",
    "is_refusal",
]

RETRY_SECONDS = 60.0
_REFUSALS = (BadRequest, Forbidden, Invalid, TooLarge)
_WRONG_TYPE = "failed to create typed patch object"
_MESSAGE_LIMIT, _LOG_LIMIT, _HINT_LIMIT, _OBJECT_LIMIT = 2048, 8192, 1024, 512


class Done(msgspec.Struct, frozen=True):
    """A step with nothing left to do."""

    result: ClassVar[str] = "done"
    message: str = ""
    reason: str = "Done"


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A step that waits for something under way. A watch triggers the next run."""

    result: ClassVar[str] = "waiting"
    message: str
    """The thing waited for."""
    reason: str = "Waiting"
    after: float | None = None
    """Seconds until the next run if no watch triggers one earlier, for instance at a deadline."""
    phase: Phase | None = None
    """The phase of the environment; that of the step if absent."""


class StepFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A step that failed, where waiting alone does not help."""

    result: ClassVar[str] = "failed"
    reason: str
    """The cause as one word, for programs."""
    message: str
    """The cause in a sentence, for people."""
    object: str = ""
    """The object that failed, such as Deployment web."""
    log_tail: str = ""
    """The last lines of the log that explains the failure."""
    hint: str = ""
    """The action that resolves it."""
    after: float | None = RETRY_SECONDS
    """Seconds until the next attempt; None if only a change can help."""


Outcome: TypeAlias = Done | Waiting | StepFailure


class Step(Protocol):
    """One step. The docstring of its class lists its inputs and what it writes."""

    name: ClassVar[str]
    """The name in the status, metrics and logs. No two steps share one."""
    condition: ClassVar[str]
    """The condition of the Environment that the step sets; several steps may share one."""
    phase: ClassVar[Phase]
    """The phase of an environment that stops at this step."""

    async def run(self, visit: StepRun) -> Outcome:
        """Do what is left to do."""
        ...


async def advance(
    walls: Sequence[Step], steps: Sequence[Step], visit: StepRun
) -> Waiting | StepFailure | None:
    """Run the walls, then the steps up to the first that is not done, and report the progress in the status.

    Returns the outcome that stopped the run; None if all are done.
    """
    if (stopped := await enforce(walls, visit, before=steps)) is not None:
        return stopped
    for number, step in enumerate(steps):
        outcome = await _observed(step, visit)
        if not isinstance(outcome, Done):
            report(visit.ctx, step, outcome)
            return outcome
        _complete(step, outcome, visit, steps[number + 1 :])
    visit.ctx.status.failure = None
    return None


async def enforce(
    walls: Sequence[Step], visit: StepRun, *, before: Sequence[Step]
) -> Waiting | StepFailure | None:
    """Run all walls, which come before these steps, and report the first that is not done.

    One that a team can break does not keep the next one from a withdrawal. All but the first need the namespace that
    the first one claims.
    """
    stopped: tuple[Step, Waiting | StepFailure] | None = None
    for number, wall in enumerate(walls):
        outcome = await _observed(wall, visit)
        if isinstance(outcome, Done):
            if stopped is None:
                _complete(wall, outcome, visit, [*walls[number + 1 :], *before])
            continue
        stopped = stopped or (wall, outcome)
        if visit.claimed is None:
            break
    if stopped is None:
        return None
    report(visit.ctx, *stopped)
    return stopped[1]


def _complete(step: Step, outcome: Done, visit: StepRun, later: Sequence[Step]) -> None:
    """Report that the condition of a step holds, unless a later step has the same one."""
    if all(each.condition != step.condition for each in later):
        visit.ctx.condition(step.condition, True, reason=outcome.reason, message=_safe(outcome.message))


async def _observed(step: Step, visit: StepRun) -> Outcome:
    """Run a step, and report trouble of the API server in the status."""
    try:
        return await _timed(step, visit)
    except ApiError as error:
        # A short outage of the API server says nothing about an environment that is ready.
        if error.retryable and not visit.environment.status.is_true("Ready"):
            message = f"a request to the API server failed and will be retried: {error}"
            report(visit.ctx, step, Waiting(message=message, reason="ApiServerTrouble"))
        raise


async def _timed(step: Step, visit: StepRun) -> Outcome:
    started = time.perf_counter()
    result = "error"
    try:
        outcome = await _run(step, visit)
        result = outcome.result
    finally:
        visit.metrics.step_seconds.labels(step.name, result).observe(time.perf_counter() - started)
    return outcome


async def _run(step: Step, visit: StepRun) -> Outcome:
    try:
        return await step.run(visit)
    except ExternalError as error:
        return from_outside(error)
    except ApiError as error:
        if not is_refusal(error):
            raise
        return StepFailure(
            reason="Rejected",
            message=f"the API server rejected a request of this step: {error}",
            hint="Change the field that the message names in the Project or the Environment. If a right or a policy "
            "of the cluster is the cause, ask an administrator to change it.",
        )


def is_refusal(error: ApiError) -> bool:
    """Return whether the API server will reject the same object again until it or a policy changes.

    A namespace that is being deleted also rejects objects, but only for a while. An object with unknown
    fields, or fields of a wrong type, is answered with code 500.
    """
    if any(cause.reason == "NamespaceTerminating" for cause in error.causes):
        return False
    return isinstance(error, _REFUSALS) or (error.code == 500 and _WRONG_TYPE in error.message)


def from_outside(error: ExternalError) -> Waiting | StepFailure:
    """Return the outcome for an error outside the cluster: waiting if a retry can help, else a failure."""
    if error.retryable:
        return Waiting(message=str(error), reason=error.reason, after=error.retry_after or RETRY_SECONDS / 2)
    return StepFailure(reason=error.reason, message=str(error), hint=error.hint)


def report(ctx: Context[Environment], step: Step, outcome: Waiting | StepFailure) -> None:
    """Write to the status the outcome that stopped the environment."""
    message = _safe(outcome.message)
    ctx.condition(step.condition, False, reason=outcome.reason, message=message)
    ctx.condition("Ready", False, reason=outcome.reason, message=f"{step.name}: {message}")
    if isinstance(outcome, Waiting):
        ctx.status.phase = outcome.phase or step.phase
        ctx.status.failure = None
        return
    ctx.status.phase = "Failed"
    ctx.status.failure = Failure(
        step=step.name,
        reason=outcome.reason,
        object=_safe(outcome.object, _OBJECT_LIMIT),
        message=message,
        log_tail=_safe(outcome.log_tail, _LOG_LIMIT),
        hint=_safe(outcome.hint, _HINT_LIMIT),
    )


def _safe(text: str, limit: int = _MESSAGE_LIMIT) -> str:
    """Return the text for the status: bounded, printable, and with secrets redacted."""
    clean = redact(printable(text))
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"
