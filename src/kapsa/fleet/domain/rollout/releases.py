"""Helm releases as the engine sees them, and what a recorded intent means for what it sees.

A process can die between the intent and Helm's answer. On resume the history of the release is compared with the
intent: the act may not have begun, may have been cut off, may have failed, or may be done.
"""

import enum
from collections.abc import Mapping, Sequence

import msgspec

__all__ = [
    "ATTEMPT_LABEL",
    "DEPLOYMENT_LABEL",
    "PLAN_LABEL",
    "HelmStatus",
    "IntentMatch",
    "IntentVerdict",
    "ReleaseIntent",
    "ReleaseRecord",
    "ReleaseRef",
    "base_record",
    "carries",
    "is_installed",
    "is_rollback",
    "latest_record",
    "made_by",
    "match_rollback",
    "match_uninstall",
    "match_upgrade",
]

DEPLOYMENT_LABEL = "fleet.kapsa-project.io/deployment"
ATTEMPT_LABEL = "fleet.kapsa-project.io/attempt"
PLAN_LABEL = "fleet.kapsa-project.io/plan"


class HelmStatus(enum.StrEnum):
    """The states of a revision, as Helm writes them."""

    DEPLOYED = "deployed"
    SUPERSEDED = "superseded"
    FAILED = "failed"
    UNINSTALLING = "uninstalling"
    UNINSTALLED = "uninstalled"
    PENDING_INSTALL = "pending-install"
    PENDING_UPGRADE = "pending-upgrade"
    PENDING_ROLLBACK = "pending-rollback"
    UNKNOWN = "unknown"

    @property
    def pending(self) -> bool:
        """True if Helm is at work on the revision, or died while it was."""
        return self.value.startswith("pending-")


class ReleaseRef(msgspec.Struct, frozen=True, rename="camel"):
    """The name of a release and its namespace."""

    name: str
    namespace: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class ReleaseRecord(msgspec.Struct, frozen=True, rename="camel"):
    """One revision in the history of a release."""

    revision: int
    status: HelmStatus
    labels: dict[str, str] = {}
    description: str = ""
    version: str = ""
    """The chart's version."""
    uid: str = ""
    """The UID and the resource version of the Secret that stores it: what a removal is bound to."""
    resource_version: str = ""


class ReleaseIntent(msgspec.Struct, frozen=True, rename="camel"):
    """A Helm act that was decided, recorded before it begins."""

    release: ReleaseRef
    revision: int
    """The revision that the act makes; for an uninstall, the one that it removes."""
    deployment: str
    attempt: int
    plan: str
    returns_to: int = 0
    """For a rollback: the revision whose content comes back."""

    @property
    def labels(self) -> dict[str, str]:
        """The labels that mark the revision as made by this intent."""
        plan = self.plan.removeprefix("sha256:")[:63]
        return {DEPLOYMENT_LABEL: self.deployment, ATTEMPT_LABEL: str(self.attempt), PLAN_LABEL: plan}


class IntentMatch(enum.StrEnum):
    """The relation of a release's history to an intent."""

    NOT_BEGUN = "NotBegun"
    """Act now."""
    CUT_OFF = "CutOff"
    """Our own pending record: remove it and act again, which makes the same revision."""
    DONE = "Done"
    FAILED = "Failed"
    """Helm gave up on our revision."""
    BUSY = "Busy"
    """Another client's Helm is at work, or died: wait, and change nothing."""
    CHANGED = "Changed"
    """Another client changed the release since the intent was recorded."""


class IntentVerdict(msgspec.Struct, frozen=True):
    """A comparison of an intent with a history."""

    match: IntentMatch
    record: ReleaseRecord | None = None
    """The record that decided."""
    message: str = ""


def latest_record(history: Sequence[ReleaseRecord]) -> ReleaseRecord | None:
    """Return the record with the highest revision."""
    return max(history, key=lambda record: record.revision, default=None)


def is_installed(history: Sequence[ReleaseRecord]) -> bool:
    """Return whether a release exists, and its removal has not begun."""
    latest = latest_record(history)
    return latest is not None and latest.status not in (HelmStatus.UNINSTALLING, HelmStatus.UNINSTALLED)


def base_record(history: Sequence[ReleaseRecord], release: ReleaseRef) -> ReleaseRecord | None:
    """Return the revision that a rollback of the next change returns to; None if the release is not installed.

    A failed rollback leaves no revision deployed. Its own record has the content that it was to bring back, and the
    revision before it is the one that it was to take away. A release that was never deployed goes back to its last
    attempt: it was there before the change, so that no rollback may uninstall it.
    """
    latest = latest_record(history)
    if latest is None or latest.status is HelmStatus.UNINSTALLED:
        return None
    deployed = [record for record in history if record.status is HelmStatus.DEPLOYED]
    once_good = [
        record
        for record in history
        if record.status is HelmStatus.SUPERSEDED or _is_failed_rollback(record, release)
    ]
    return latest_record(deployed) or latest_record(once_good) or latest


def match_upgrade(intent: ReleaseIntent, history: Sequence[ReleaseRecord]) -> IntentVerdict:
    """Compare the intent of an install or an upgrade with the history of its release."""
    latest = latest_record(history)
    if latest is None:
        return _absent(intent) if intent.revision > 1 else IntentVerdict(IntentMatch.NOT_BEGUN)
    if latest.revision == intent.revision - 1:
        return _unstarted(intent, latest)
    if latest.revision == intent.revision and carries(latest.labels, intent):
        return _by_status(intent, latest)
    return _changed(intent, latest)


def match_rollback(intent: ReleaseIntent, history: Sequence[ReleaseRecord]) -> IntentVerdict:
    """Compare the intent of a rollback with the history of its release.

    Helm copies the labels of the revision that it returns to and writes a fixed description, so that a rollback is
    recognized by its number and by its description.
    """
    latest = latest_record(history)
    if latest is None:
        return _absent(intent)
    if latest.revision == intent.revision - 1:
        # A rollback does not mind our own half-done upgrade; that is what it is for.
        ours = latest.labels.get(DEPLOYMENT_LABEL) == intent.deployment
        return IntentVerdict(IntentMatch.NOT_BEGUN, latest) if ours else _unstarted(intent, latest)
    if latest.revision == intent.revision and is_rollback(latest, intent.release, intent.returns_to):
        return _by_status(intent, latest)
    return _changed(intent, latest)


def is_rollback(record: ReleaseRecord, release: ReleaseRef, revision: int) -> bool:
    """Return whether Helm describes a record as a rollback to this revision, or as one that failed."""
    return _is_failed_rollback(record, release) or record.description == f"Rollback to {revision}"


def _is_failed_rollback(record: ReleaseRecord, release: ReleaseRef) -> bool:
    failed = f'Rollback "{release.name}" failed'
    return record.status is HelmStatus.FAILED and record.description.startswith(failed)


def made_by(record: ReleaseRecord, deployment: str, release: ReleaseRef, base: int) -> bool:
    """Return whether a deployment made a revision, as an upgrade or as the rollback to the revision `base`."""
    return record.labels.get(DEPLOYMENT_LABEL) == deployment or is_rollback(record, release, base)


def match_uninstall(intent: ReleaseIntent, history: Sequence[ReleaseRecord]) -> IntentVerdict:
    """Compare the intent of an uninstall with the history of its release."""
    latest = latest_record(history)
    if latest is None or latest.status is HelmStatus.UNINSTALLED:
        return IntentVerdict(IntentMatch.DONE, latest)
    if latest.revision == intent.revision:
        return IntentVerdict(IntentMatch.NOT_BEGUN, latest)
    return _changed(intent, latest)


def carries(labels: Mapping[str, str], intent: ReleaseIntent) -> bool:
    """Return whether these labels mark a revision as made by the intent."""
    return all(labels.get(key) == value for key, value in intent.labels.items())


def _by_status(intent: ReleaseIntent, latest: ReleaseRecord) -> IntentVerdict:
    if latest.status is HelmStatus.DEPLOYED:
        return IntentVerdict(IntentMatch.DONE, latest)
    if latest.status is HelmStatus.FAILED:
        return IntentVerdict(IntentMatch.FAILED, latest, latest.description or "Helm reported a failure")
    if latest.status.pending:
        return IntentVerdict(IntentMatch.CUT_OFF, latest)
    return _changed(intent, latest)


def _unstarted(intent: ReleaseIntent, latest: ReleaseRecord) -> IntentVerdict:
    if latest.status.pending or latest.status is HelmStatus.UNINSTALLING:
        message = (
            f"revision {latest.revision} of {intent.release} is {latest.status} and was not made by this "
            "deployment: let the other client finish, or repair the release"
        )
        return IntentVerdict(IntentMatch.BUSY, latest, message)
    return IntentVerdict(IntentMatch.NOT_BEGUN, latest)


def _absent(intent: ReleaseIntent) -> IntentVerdict:
    message = f"release {intent.release} is gone: revision {intent.revision - 1} was expected"
    return IntentVerdict(IntentMatch.CHANGED, None, message)


def _changed(intent: ReleaseIntent, latest: ReleaseRecord) -> IntentVerdict:
    message = (
        f"release {intent.release} was changed by another client: revision {latest.revision} "
        f"({latest.status}) is not the expected revision {intent.revision}"
    )
    return IntentVerdict(IntentMatch.CHANGED, latest, message)
