"""One look at a cluster of a deployment: what a step sees, and the answers that it may give."""

from datetime import datetime, timedelta
from typing import Any

import msgspec

from kapsa.fleet.domain.registry.clusters import ManagedCluster
from kapsa.fleet.domain.rollout.deployments import VersionDeployment
from kapsa.fleet.domain.rollout.plans import FieldConflict
from kapsa.fleet.domain.rollout.releases import ReleaseIntent, ReleaseRef
from kapsa.fleet.domain.rollout.strategies import BlueGreenStrategy, RolloutStage
from kapsa.fleet.domain.rollout.targets import RolloutTarget, TargetGoal, TargetState, TargetStep
from kapsa.fleet.orchestrator.ports.cluster_operations import ClusterOperations
from kapsa.fleet.orchestrator.ports.helm import HelmReleases
from kapsa.fleet.orchestrator.ports.leases import LeaseGuard
from kapsa.fleet.orchestrator.ports.rollouts import OperatorInstallation
from kapsa.fleet.orchestrator.ports.trials import ConflictTrials
from kapsa.fleet.orchestrator.ports.vault import SealedSecret
from kapsa.fleet.orchestrator.rollout.rollout_secrets import RolloutSecrets
from kapsa.fleet.orchestrator.rollout.settings import EngineSettings

__all__ = ["POSTPONE", "ClusterServices", "ClusterTurn"]

POSTPONE = timedelta(hours=1)
"""The time until the removal of a retained release is tried again."""
_RETENTION = frozenset({TargetStep.RETAIN_LIVE, TargetStep.RETIRE_LIVE})
_ENDS_OF_ROLLBACK = frozenset({TargetStep.ROLLED_BACK, TargetStep.ROLLBACK_FAILED})


class ClusterServices(msgspec.Struct, frozen=True):
    """The ports through which steps act on clusters, and the secrets that they apply there."""

    helm: HelmReleases
    clusters: ClusterOperations
    secrets: RolloutSecrets
    trials: ConflictTrials


class ClusterTurn(msgspec.Struct, frozen=True):
    """The deployment and one of its clusters, as stored when the step began."""

    deployment: VersionDeployment
    target: RolloutTarget
    cluster: ManagedCluster | None
    """None once the cluster is deleted."""
    bundle: SealedSecret | None
    """Read for the steps that try or apply it. They open it: a cluster that turns back needs no keys."""
    installation: OperatorInstallation | None
    held: bool
    """True if an active deployment includes the cluster, for the step that removes a retained release."""
    now: datetime
    settings: EngineSettings
    guard: LeaseGuard
    left: tuple[FieldConflict, ...] = ()
    """The fields that the plan leaves to their owners, for gates and for the step that takes the release back."""
    additions: tuple[FieldConflict, ...] = ()
    """The fields that others had added to pod templates when the plan was made, for the step that takes the baseline."""
    withdrawal: str = ""
    """The sentence that stops a version withdrawn since, for the steps after which it would start here."""
    conflicts: tuple[FieldConflict, ...] = ()
    """The fields that others owned when the plan was made, for the step that looks for more."""

    @property
    def stage(self) -> RolloutStage | None:
        """The stage of the cluster; None if an earlier attempt finished here."""
        return next((each for each in self.deployment.stages if each.number == self.target.stage), None)

    @property
    def strategy(self) -> BlueGreenStrategy:
        """The settings of blue-green, for the steps that only it has."""
        assert isinstance(self.deployment.strategy, BlueGreenStrategy)
        return self.deployment.strategy

    @property
    def checks_health(self) -> bool:
        """False if the deployment was asked to skip health checks."""
        return self.stage is None or self.stage.check_health

    def advance(self, step: TargetStep, **changes: Any) -> RolloutTarget:
        """Return the target at its next step, which is due now."""
        cleared: dict[str, Any] = {"waits_for": "", "deadline": None, "retry_until": None, "stalled": ""}
        fields = {**cleared, "next_run_at": self.now, **changes}
        return msgspec.structs.replace(self.target, step=step, **fields)

    def end(self, step: TargetStep, reason: str = "", message: str = "") -> RolloutTarget:
        """Return the target at a step after which the engine has nothing to do here.

        The end of a rollback reports what it has left behind, whatever else it has to say.
        """
        noted = [message]
        if step in _ENDS_OF_ROLLBACK:
            noted += [sentence for sentence in self.target.left_behind if sentence not in message]
        return self.advance(step, next_run_at=None, reason=reason, message="; ".join(filter(None, noted)))

    def later(self, moment: datetime, waits_for: str, **changes: Any) -> RolloutTarget:
        """Return the target unchanged but for a wait that ends at a moment."""
        wait = {"next_run_at": moment, "waits_for": waits_for, "deadline": moment, "stalled": ""}
        return msgspec.structs.replace(self.target, **{**wait, "retry_until": None, **changes})

    def retry(self, waits_for: str, *, patience: timedelta, **changes: Any) -> RolloutTarget | None:
        """Return the target with another attempt soon, or None if attempts have failed for too long.

        Patience counts from the first failed attempt, never from a wait before it.
        """
        deadline = self.target.retry_until or self.now + patience
        if self.now >= deadline:
            return None
        moment = min(self.now + self.settings.retry_interval, deadline)
        wait = {"next_run_at": moment, "waits_for": waits_for, "deadline": deadline, "retry_until": deadline}
        return msgspec.structs.replace(self.target, **{**wait, **changes})

    def stall(self, reason: str, message: str) -> RolloutTarget:
        """Return the target after a wait that gave up: the deployment pauses, and a person decides."""
        ended = {"next_run_at": None, "waits_for": "", "retry_until": None}
        return msgspec.structs.replace(self.target, stalled=message, reason=reason, message=message, **ended)

    @property
    def goes_back(self) -> bool:
        """True if the cluster is on its way back, or turns as soon as its step allows it."""
        return self.target.state is TargetState.ROLLING_BACK or self.target.goal is TargetGoal.ROLL_BACK

    def give_up(self, reason: str, message: str) -> RolloutTarget:
        """Return the target after a wait that lasted too long: a failed rollback, or a pause.

        The deployment of a retained release has ended: nobody would resume it, so that its removal is tried later.
        """
        if self.goes_back:
            return self.end(TargetStep.ROLLBACK_FAILED, reason, message)
        if self.target.step in _RETENTION:
            return self.later(self.now + POSTPONE, message)
        return self.stall(reason, message)

    def wait_or_give_up(self, reason: str, message: str) -> RolloutTarget:
        """Return the target with another attempt soon, or after a wait that gave up."""
        patience = self.settings.rollback_patience if self.goes_back else self.settings.patience
        return self.retry(message, patience=patience) or self.give_up(reason, message)

    def noting(self, left_behind: tuple[str, ...]) -> "ClusterTurn":
        """Return the turn with more sentences about resources that its rollback has left behind."""
        noted = tuple(dict.fromkeys((*self.target.left_behind, *left_behind)))
        return msgspec.structs.replace(self, target=msgspec.structs.replace(self.target, left_behind=noted))

    def intend(self, release: ReleaseRef, revision: int, *, returns_to: int = 0) -> ReleaseIntent:
        """Return the intent of a Helm act of this deployment."""
        return ReleaseIntent(
            release=release,
            revision=revision,
            deployment=str(self.deployment.id),
            attempt=self.target.attempt,
            plan=self.deployment.plan_digest,
            returns_to=returns_to,
        )
