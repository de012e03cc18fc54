"""Evidence: the outcome of checks, and the verdict of all checks together."""

import enum
from collections.abc import Collection, Iterable

import msgspec

from kapsa.fleet.domain.health.certificates import CertificateReading
from kapsa.fleet.domain.health.drift import DriftReading

__all__ = ["CheckKind", "Evidence", "HealthCheck", "OperatorHealth", "combined", "worst_check"]


class Evidence(enum.StrEnum):
    """The outcome of one reading."""

    HEALTHY = "Healthy"
    FAILING = "Failing"
    UNKNOWN = "Unknown"


class CheckKind(enum.StrEnum):
    """The part of an operator that a check looks at."""

    PODS = "Pods"
    TEMPLATE = "Template"
    """The pod template of a controller, in a gate: pods of another one prove nothing about a version."""
    WEBHOOKS = "Webhooks"
    CONVERSION = "Conversion"
    RESOURCES = "Resources"
    LEASE = "Lease"
    HELM_TEST = "HelmTest"


class HealthCheck(msgspec.Struct, frozen=True, rename="camel"):
    """One check of one operator on one cluster."""

    kind: CheckKind
    evidence: Evidence
    reason: str
    """A stable word for metrics and runbooks: `CrashLoopBackOff`, `WebhookTimeout`, `Passed`."""
    message: str
    """One sentence with the object and what was seen."""
    conclusive: bool = False
    """True when one such reading is enough to fail, as with CrashLoopBackOff; others must repeat."""


class OperatorHealth(msgspec.Struct, frozen=True, rename="camel"):
    """All checks of one operator on one cluster, read in one sweep."""

    revision: int
    """The Helm revision that the evidence is about; 0 when no release was seen."""
    chart_digest: str
    checks: tuple[HealthCheck, ...]
    controller_pods: int = 0
    drift: DriftReading | None = None
    """None until it was read. It is not evidence: what somebody changed may work."""
    certificates: CertificateReading | None = None
    """None until they were read. A certificate that expires soon is a warning, and fails nothing yet."""

    def without(self, kind: CheckKind) -> "OperatorHealth":
        """Return the health without the checks of a kind."""
        checks = tuple(check for check in self.checks if check.kind is not kind)
        return msgspec.structs.replace(self, checks=checks)

    def accepting(self, reasons: Collection[str]) -> "OperatorHealth":
        """Return the health without the unknown checks that have one of these reasons."""
        checks = tuple(
            check
            for check in self.checks
            if check.evidence is not Evidence.UNKNOWN or check.reason not in reasons
        )
        return msgspec.structs.replace(self, checks=checks)

    @property
    def evidence(self) -> Evidence:
        """The verdict of all checks together."""
        return combined(check.evidence for check in self.checks)

    @property
    def first_problem(self) -> HealthCheck | None:
        """The check to report: a conclusive failure, else a failure, else the first that is unknown."""
        ranked = sorted(self.checks, key=_rank)
        return ranked[0] if ranked and ranked[0].evidence is not Evidence.HEALTHY else None


_ORDER = (Evidence.FAILING, Evidence.UNKNOWN, Evidence.HEALTHY)


def _rank(check: HealthCheck) -> tuple[int, bool]:
    return _ORDER.index(check.evidence), not check.conclusive


def worst_check(checks: Iterable[HealthCheck]) -> HealthCheck | None:
    """Return the check with the worst evidence, the first of several; None if there is none."""
    return min(checks, key=lambda check: _ORDER.index(check.evidence), default=None)


def combined(evidence: Iterable[Evidence]) -> Evidence:
    """Return one verdict: failing wins, then unknown; no evidence at all is unknown."""
    seen = set(evidence)
    if Evidence.FAILING in seen:
        return Evidence.FAILING
    return Evidence.HEALTHY if seen == {Evidence.HEALTHY} else Evidence.UNKNOWN
