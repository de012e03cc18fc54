"""A step on the way to a ready environment: what it is given, what it may answer, and how steps follow each other.

A step is asked again and again with the same state, and does only what is still to be done. It answers `Done`, `Waiting`
(a watch tells when it is worth asking again) or `Failed`. Whatever is not done stops the steps after it and leaves what the
steps before it have made alone: a build that fails keeps the version serving that is there.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar, Protocol, TypeAlias

import msgspec

from kapsa.adapters.errors import OutsideError
from kapsa.adapters.redaction import printable, redact
from kapsa.environments.resources import Failure
from kapsa.environments.resources.environment import Phase
from kapsa.environments.visit import Visit
from kapsa.runtime import ApiError, BadRequest, Forbidden, Invalid, TooLarge

__all__ = [
    "Done",
    "Failed",
    "Outcome",
    "Step",
    "Waiting",
    "advance",
    "from_outside",
    "is_refusal",
]

RETRY_SECONDS = 60.0
_REFUSALS = (BadRequest, Forbidden, Invalid, TooLarge)
_WRONG_TYPE = "failed to create typed patch object"
_MESSAGE_LIMIT, _LOG_LIMIT, _HINT_LIMIT, _OBJECT_LIMIT = 2048, 8192, 1024, 512


class Done(msgspec.Struct, frozen=True):
    """Nothing is left to do."""

    message: str = ""
    reason: str = "Done"


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """Something is under way. A watch tells when it has got further."""

    message: str
    """What is waited for."""
    reason: str = "Waiting"
    after: float | None = None
    """Seconds until a look is worth while although no watch said anything, such as at a deadline."""


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """It did not work, and waiting alone does not help."""

    reason: str
    """Why, as one word for programs."""
    message: str
    """Why, for people."""
    object: str = ""
    """What it is about, such as Deployment web."""
    log_tail: str = ""
    """The last lines of the log that tells more."""
    hint: str = ""
    """What to do about it."""
    after: float | None = RETRY_SECONDS
    """Seconds until it is tried again; None if only a change can help."""


Outcome: TypeAlias = Done | Waiting | Failed


class Step(Protocol):
    """One step. Its class says what it needs and what it writes."""

    name: ClassVar[str]
    """In the status, metrics and logs."""
    condition: ClassVar[str]
    """The condition of the Environment that it decides; several steps may share one."""
    phase: ClassVar[Phase]
    """The phase of an environment that is at this step."""

    async def run(self, visit: Visit) -> Outcome:
        """Do what is still to be done."""
        ...


async def advance(steps: Sequence[Step], visit: Visit) -> Waiting | Failed | None:
    """Go through the steps up to the first that is not done, and say in the status how far it got.

    Returns what stopped it; None if nothing did.
    """
    for number, step in enumerate(steps):
        try:
            outcome = await _timed(step, visit)
        except ApiError as error:
            # A word about trouble that lasts; trouble that passes is no news about what is ready.
            if error.retryable and not visit.environment.status.is_true("Ready"):
                message = f"the API server does not answer as it should: {error}"
                report(visit, step, Waiting(message=message, reason="ApiServerTrouble"))
            raise
        if not isinstance(outcome, Done):
            report(visit, step, outcome)
            return outcome
        if all(later.condition != step.condition for later in steps[number + 1 :]):
            visit.ctx.condition(step.condition, True, reason=outcome.reason, message=_safe(outcome.message))
    visit.ctx.status.failure = None
    return None


async def _timed(step: Step, visit: Visit) -> Outcome:
    started = time.perf_counter()
    result = "error"
    try:
        outcome = await _run(step, visit)
        result = type(outcome).__name__.lower()
    finally:
        visit.metrics.step_seconds.labels(step.name, result).observe(time.perf_counter() - started)
    return outcome


async def _run(step: Step, visit: Visit) -> Outcome:
    try:
        return await step.run(visit)
    except OutsideError as error:
        return from_outside(error)
    except ApiError as error:
        if not is_refusal(error):
            raise
        return Failed(
            reason="Rejected",
            message=f"the API server refuses what this step needs: {error}",
            hint="Change what it names in the project or the environment; rights and policies of the cluster are an "
            "administrator's to change.",
        )


def is_refusal(error: ApiError) -> bool:
    """Whether the API server will go on refusing the same object until somebody changes something.

    A namespace on its way out refuses, too, which passes. And what has fields of a wrong type, or fields that do not
    exist, is answered as if the server had failed.
    """
    if any(cause.reason == "NamespaceTerminating" for cause in error.causes):
        return False
    return isinstance(error, _REFUSALS) or (error.code == 500 and _WRONG_TYPE in error.message)


def from_outside(error: OutsideError) -> Waiting | Failed:
    """What becomes of trouble with a system outside: it is waited out if that can help."""
    if error.retryable:
        return Waiting(message=str(error), reason=error.reason, after=error.retry_after or RETRY_SECONDS / 2)
    return Failed(reason=error.reason, message=str(error), hint=error.hint)


def report(visit: Visit, step: Step, outcome: Waiting | Failed) -> None:
    """Say in the status what stopped the environment."""
    ctx = visit.ctx
    message = _safe(outcome.message)
    ctx.condition(step.condition, False, reason=outcome.reason, message=message)
    ctx.condition("Ready", False, reason=outcome.reason, message=f"{step.name}: {message}")
    if isinstance(outcome, Waiting):
        ctx.status.phase = step.phase
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
    """Text that may stand in the status: bounded, printable, without what looks like a secret."""
    clean = redact(printable(text))
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"
