"""Webhooks and conversions: a write through the API server is the proof, for only the API server can verify them."""

import enum
from collections.abc import Iterable, Sequence

import msgspec

from kapsa.fleet.domain.health.memory import HealthLimits
from kapsa.fleet.domain.health.verdicts import CheckKind, Evidence, HealthCheck, worst_check

__all__ = ["ProbeFacts", "ProbeOutcome", "judge_probes"]


class ProbeOutcome(enum.StrEnum):
    """The outcome of a probe."""

    ANSWERED = "Answered"
    """The write passed through, or the webhook denied it: it works."""
    REACHABLE = "Reachable"
    """No write could be made, for want of an object that it selects; its endpoints are ready."""
    FAILED = "Failed"
    """The API server could not call it, or it gave no valid answer."""
    NO_ENDPOINTS = "NoEndpoints"
    MISSING = "Missing"
    """The release has it, and the cluster does not."""
    CHANGED = "Changed"
    """An object comes back from a conversion with other content."""
    BLOCKED = "Blocked"
    """The write failed for a reason that is not the webhook's."""


class ProbeFacts(msgspec.Struct, frozen=True):
    """One probe of a webhook, or of the conversion of a CRD."""

    kind: CheckKind
    name: str
    outcome: ProbeOutcome
    message: str = ""
    seconds: float = 0.0
    """The time of the write, without that of a read of the same object."""


_HEALTHY = frozenset({ProbeOutcome.ANSWERED, ProbeOutcome.REACHABLE})


def judge_probes(
    kind: CheckKind, probes: Iterable[ProbeFacts], limits: HealthLimits, *, settled: bool
) -> HealthCheck | None:
    """Return the check of all probes of a kind, None if there are none.

    Before the pods have settled, a failure says only that it is too early.
    """
    chosen = [probe for probe in probes if probe.kind is kind]
    if not chosen:
        return None
    worst = worst_check(_probe(probe, limits) for probe in chosen)
    if worst is None or worst.evidence is Evidence.HEALTHY:
        return HealthCheck(kind, Evidence.HEALTHY, "Passed", _summary(chosen))
    if worst.evidence is Evidence.FAILING and not settled:
        return msgspec.structs.replace(worst, evidence=Evidence.UNKNOWN)
    return worst


def _probe(probe: ProbeFacts, limits: HealthLimits) -> HealthCheck:
    if probe.outcome in _HEALTHY and probe.seconds >= limits.webhook_seconds:
        message = (
            f"{probe.name} answered after {probe.seconds:.1f} s; the limit is {limits.webhook_seconds:g} s"
        )
        return HealthCheck(probe.kind, Evidence.FAILING, f"{_word(probe)}Slow", message)
    if probe.outcome in _HEALTHY:
        return HealthCheck(probe.kind, Evidence.HEALTHY, "Passed", probe.message)
    evidence = Evidence.UNKNOWN if probe.outcome is ProbeOutcome.BLOCKED else Evidence.FAILING
    return HealthCheck(probe.kind, evidence, _reason(probe), f"{probe.name}: {probe.message}"[:500])


def _reason(probe: ProbeFacts) -> str:
    if probe.outcome is not ProbeOutcome.FAILED:
        return f"{_word(probe)}{probe.outcome}"
    text = probe.message
    if "x509" in text or "certificate" in text or "root certificates" in text:
        return f"{_word(probe)}Certificate"
    if "deadline exceeded" in text or "Timeout exceeded" in text or "timeout" in text.lower():
        return f"{_word(probe)}Timeout"
    return f"{_word(probe)}Failed"


def _word(probe: ProbeFacts) -> str:
    return "Webhook" if probe.kind is CheckKind.WEBHOOKS else "Conversion"


def _summary(probes: Sequence[ProbeFacts]) -> str:
    slowest = max(probe.seconds for probe in probes)
    unproven = [probe.name for probe in probes if probe.outcome is ProbeOutcome.REACHABLE]
    text = f"{len(probes)} answered within {slowest:.2f} s"
    return f"{text}; no object to prove {', '.join(unproven)} with" if unproven else text
