"""Targets: one cluster of a deployment, the steps that it goes through, and the legal order of those steps.

A step is stored before it is done, so that a process that takes over knows what may have begun. Blue-green has two
releases: `live` ran before the deployment, `next` is the new one. The other strategies have one, which is both.
"""

import enum
import uuid
from collections.abc import Mapping
from datetime import datetime

import msgspec

from kapsa.fleet.domain.errors import StateConflict
from kapsa.fleet.domain.health import GateProgress
from kapsa.fleet.domain.registry.clusters import ClusterEnvironment
from kapsa.fleet.domain.rollout.releases import ReleaseIntent, ReleaseRef

__all__ = [
    "DELETED",
    "STEP_STATES",
    "STEP_TRANSITIONS",
    "RolloutTarget",
    "TargetGoal",
    "TargetState",
    "TargetStep",
    "check_step",
]


DELETED = "Deleted"
"""The reason of a cluster that was skipped because it is no longer registered."""


class TargetState(enum.StrEnum):
    """The state of one cluster of a deployment, for people."""

    PENDING = "Pending"
    """Its turn has not come."""
    APPLYING = "Applying"
    """An intent is recorded; CRDs and the chart are being applied."""
    VALIDATING = "Validating"
    """The new revision is there; health is observed and the soak is counted."""
    HEALTHY = "Healthy"
    """The gate has passed."""
    SKIPPED = "Skipped"
    """Left out: the cluster was unreachable or deleted, or the deployment ended before its turn."""
    ABORTED = "Aborted"
    """Changed, and left as it is when the deployment was aborted."""
    ROLLING_BACK = "RollingBack"
    ROLLED_BACK = "RolledBack"
    FAILED = "Failed"


class TargetGoal(enum.StrEnum):
    """The request of the deployment to a cluster."""

    HOLD = "Hold"
    """Begin nothing. An act that has begun is finished."""
    APPLY = "Apply"
    ROLL_BACK = "RollBack"


class TargetStep(enum.StrEnum):
    """The next thing to do on a cluster, or its end."""

    WAIT = "Wait"
    PREPARE = "Prepare"
    """Its turn has come: judge windows and the present release, then record the intent."""
    UPGRADE = "Upgrade"
    VALIDATE = "Validate"
    WATCH = "Watch"
    """The gate has passed; health is observed until the deployment ends."""
    INSTALL_NEXT = "InstallNext"
    VALIDATE_NEXT = "ValidateNext"
    AWAIT_SWITCH = "AwaitSwitch"
    STOP_LIVE = "StopLive"
    AWAIT_LIVE_STOP = "AwaitLiveStop"
    START_NEXT = "StartNext"
    SWITCH_WEBHOOKS = "SwitchWebhooks"
    RETAIN_LIVE = "RetainLive"
    """Finished; the release that ran before is kept at zero replicas."""
    RETIRE_LIVE = "RetireLive"
    PREPARE_ROLLBACK = "PrepareRollback"
    REVERT = "Revert"
    REMOVE = "Remove"
    """The first install is rolled back: uninstall, without CRDs."""
    STOP_NEXT = "StopNext"
    AWAIT_NEXT_STOP = "AwaitNextStop"
    START_LIVE = "StartLive"
    RESTORE_WEBHOOKS = "RestoreWebhooks"
    VALIDATE_REVERTED = "ValidateReverted"
    DONE = "Done"
    ROLLED_BACK = "RolledBack"
    SKIPPED = "Skipped"
    ABORTED = "Aborted"
    FAILED = "Failed"
    """The new version failed here: the deployment rolls back."""
    ROLLBACK_FAILED = "RollbackFailed"


_S = TargetStep

STEP_STATES: Mapping[TargetStep, TargetState] = {
    **dict.fromkeys((_S.WAIT, _S.PREPARE), TargetState.PENDING),
    **dict.fromkeys(
        (
            _S.UPGRADE,
            _S.INSTALL_NEXT,
            _S.STOP_LIVE,
            _S.AWAIT_LIVE_STOP,
            _S.START_NEXT,
            _S.SWITCH_WEBHOOKS,
        ),
        TargetState.APPLYING,
    ),
    **dict.fromkeys((_S.VALIDATE, _S.VALIDATE_NEXT, _S.AWAIT_SWITCH), TargetState.VALIDATING),
    **dict.fromkeys((_S.WATCH, _S.RETAIN_LIVE, _S.RETIRE_LIVE, _S.DONE), TargetState.HEALTHY),
    **dict.fromkeys(
        (
            _S.PREPARE_ROLLBACK,
            _S.REVERT,
            _S.REMOVE,
            _S.STOP_NEXT,
            _S.AWAIT_NEXT_STOP,
            _S.START_LIVE,
            _S.RESTORE_WEBHOOKS,
            _S.VALIDATE_REVERTED,
        ),
        TargetState.ROLLING_BACK,
    ),
    _S.ROLLED_BACK: TargetState.ROLLED_BACK,
    _S.SKIPPED: TargetState.SKIPPED,
    _S.ABORTED: TargetState.ABORTED,
    **dict.fromkeys((_S.FAILED, _S.ROLLBACK_FAILED), TargetState.FAILED),
}
"""The state that people see for each step."""

_BACK = {_S.PREPARE_ROLLBACK}
_LEFT = {_S.ABORTED, *_BACK}
_VERIFIED = {_S.FAILED, *_LEFT}

STEP_TRANSITIONS: Mapping[TargetStep, frozenset[TargetStep]] = {
    # A cluster that is deleted is skipped, whatever its step is.
    step: frozenset(following if step is _S.ROLLED_BACK else {*following, _S.SKIPPED})
    for step, following in {
        # An earlier attempt may have changed the cluster: it is left so, or goes back, before its turn comes.
        _S.WAIT: {_S.PREPARE, *_LEFT},
        _S.PREPARE: {_S.WAIT, _S.UPGRADE, _S.INSTALL_NEXT, *_LEFT},
        # An act that gave up can be left where it is.
        _S.UPGRADE: {_S.VALIDATE, _S.WATCH, *_VERIFIED},
        _S.VALIDATE: {_S.WATCH, *_VERIFIED},
        _S.WATCH: {_S.DONE, _S.RETAIN_LIVE, *_VERIFIED},
        _S.INSTALL_NEXT: {_S.VALIDATE_NEXT, *_VERIFIED},
        _S.VALIDATE_NEXT: {_S.AWAIT_SWITCH, *_VERIFIED},
        _S.AWAIT_SWITCH: {_S.STOP_LIVE, *_VERIFIED},
        _S.STOP_LIVE: {_S.AWAIT_LIVE_STOP, *_LEFT},
        _S.AWAIT_LIVE_STOP: {_S.START_NEXT, *_VERIFIED},
        _S.START_NEXT: {_S.SWITCH_WEBHOOKS, *_LEFT},
        _S.SWITCH_WEBHOOKS: {_S.VALIDATE, *_VERIFIED},
        _S.RETAIN_LIVE: {_S.RETIRE_LIVE, *_BACK},
        # A rollback may have been asked for while the retention ended.
        _S.RETIRE_LIVE: {_S.DONE, _S.ROLLBACK_FAILED, *_BACK},
        _S.DONE: {*_BACK},
        _S.PREPARE_ROLLBACK: {_S.REVERT, _S.REMOVE, _S.STOP_NEXT, _S.ROLLED_BACK, _S.ROLLBACK_FAILED},
        _S.REVERT: {_S.VALIDATE_REVERTED, _S.ROLLED_BACK, _S.ROLLBACK_FAILED},
        _S.REMOVE: {_S.ROLLED_BACK, _S.ROLLBACK_FAILED},
        _S.STOP_NEXT: {_S.AWAIT_NEXT_STOP, _S.ROLLBACK_FAILED},
        _S.AWAIT_NEXT_STOP: {_S.START_LIVE, _S.ROLLBACK_FAILED},
        _S.START_LIVE: {_S.RESTORE_WEBHOOKS, _S.ROLLBACK_FAILED},
        _S.RESTORE_WEBHOOKS: {_S.VALIDATE_REVERTED, _S.ROLLBACK_FAILED},
        _S.VALIDATE_REVERTED: {_S.ROLLED_BACK, _S.REMOVE, _S.ROLLBACK_FAILED},
        # A retry begins again with WAIT; a second rollback, asked for by a person, tries again.
        _S.FAILED: {_S.WAIT, *_BACK},
        _S.ROLLBACK_FAILED: {_S.WAIT, *_BACK},
        _S.ABORTED: {_S.WAIT, *_BACK},
        _S.ROLLED_BACK: {_S.WAIT},
        _S.SKIPPED: {_S.WAIT, *_BACK},
    }.items()
}
"""The steps that may follow each step."""


def check_step(before: TargetStep, after: TargetStep) -> None:
    """Raise `StateConflict` unless a cluster may go from one step to the other. Staying is always legal."""
    if before is not after and after not in STEP_TRANSITIONS[before]:
        raise StateConflict(f"a cluster whose step is {before} cannot go to {after}")


class RolloutTarget(msgspec.Struct, frozen=True, rename="camel"):
    """One cluster of a deployment: a row that the engine claims."""

    deployment_id: uuid.UUID
    operator_id: uuid.UUID
    cluster_id: uuid.UUID
    cluster_name: str
    environment: ClusterEnvironment
    live: ReleaseRef
    next: ReleaseRef
    stage: int = 0
    """Counted from 1; 0 if an earlier attempt finished here."""
    goal: TargetGoal = TargetGoal.HOLD
    step: TargetStep = TargetStep.WAIT
    attempt: int = 1
    planned_revision: int = 0
    """The revision of `live` that the plan was made for; 0 when the operator was not installed."""
    manifest_digest: str = ""
    """The digest of the approved manifest: exactly these bytes are applied."""
    present_chart: str = ""
    """The chart digest of the planned revision, as far as the fleet knows it."""
    intent: ReleaseIntent | None = None
    revision: int = 0
    """The revision that the deployment made; 0 before that."""
    base_revision: int | None = None
    """The revision of `live` before the first change; 0 means that a rollback uninstalls. None before that."""
    base_digest: str = ""
    """The chart digest of that revision, as far as the fleet knows it."""
    base_version: str = ""
    progress: GateProgress = GateProgress()
    handed_over: bool = False
    """Blue-green: `live` was asked to stop, so that a rollback starts it again."""
    stopped_at: datetime | None = None
    gap_seconds: float | None = None
    """Blue-green: the seconds in which no controller ran."""
    retire_at: datetime | None = None
    offline_since: datetime | None = None
    """The cluster could not be reached when its turn came; it is late."""
    waits_for: str = ""
    deadline: datetime | None = None
    """The end of the present wait: it is over then, or gives up."""
    retry_until: datetime | None = None
    """The end of the patience for attempts that fail; None unless the last one failed on a cluster that is not late."""
    stalled: str = ""
    """Non-empty when a wait gave up: the deployment pauses and a person decides."""
    reason: str = ""
    """A stable word: `CrashLoopBackOff`, `Offline`, `HelmFailed`."""
    message: str = ""
    left_behind: tuple[str, ...] = ()
    """One sentence for each CRD with resources that a rollback could not convert back. The end message has them."""
    next_run_at: datetime | None = None
    """The time at which the engine looks again; None if there is nothing to do."""

    @property
    def state(self) -> TargetState:
        """The state that people see."""
        return STEP_STATES[self.step]

    @property
    def blue_green(self) -> bool:
        """True if the new version has a release of its own."""
        return self.live != self.next

    @property
    def late(self) -> bool:
        """True if the cluster was offline when its turn came, and is not settled yet."""
        return self.offline_since is not None and self.state is TargetState.PENDING

    @property
    def changed(self) -> bool:
        """True if the deployment may have changed the cluster."""
        return self.base_revision is not None
