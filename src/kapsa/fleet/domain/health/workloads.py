"""Workloads: the controllers of an operator, judged by the pods that run the current template."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from kapsa.fleet.domain.health.memory import HealthLimits, HealthMemory, PodMemory
from kapsa.fleet.domain.health.verdicts import CheckKind, Evidence, HealthCheck

__all__ = [
    "NO_WORKLOADS",
    "ContainerFacts",
    "PodFacts",
    "WorkloadFacts",
    "count_ready",
    "judge_workloads",
    "remember_pods",
]

NO_WORKLOADS = "NoWorkloads"
"""The reason of the check of a release without controllers."""
_GONE = (
    "the release has no controllers, and the one before had: roll the deployment back and repair the values or the "
    "chart, or deploy the version with skipHealthChecks if it needs none"
)
_PULLS = frozenset({"ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
_STARTS = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "ErrImagePull"}
)
"""Reasons that often pass by themselves: a Secret that is made a moment later, a registry that is busy."""


class ContainerFacts(msgspec.Struct, frozen=True):
    """One container of a pod."""

    name: str
    restarts: int = 0
    waiting: str = ""
    """The reason for which it waits."""
    message: str = ""
    ended: str = ""
    """The reason of its last end, or of its end if it does not run."""


class PodFacts(msgspec.Struct, frozen=True):
    """One pod at the current template of its workload."""

    uid: str
    name: str
    ready: bool = False
    new: bool = False
    """True if it started a short time ago, by the cluster's own clock."""
    containers: tuple[ContainerFacts, ...] = ()

    @property
    def restarts(self) -> int:
        """The restarts of all containers."""
        return sum(container.restarts for container in self.containers)


class WorkloadFacts(msgspec.Struct, frozen=True):
    """A Deployment, a StatefulSet or a DaemonSet of a release."""

    kind: str
    name: str
    namespace: str
    exists: bool = True
    desired: int = 1
    observed: bool = True
    """False until its controller has seen the latest change: the pods may be those of the old template."""
    failure: str = ""
    """A reason such as `ProgressDeadlineExceeded`."""
    message: str = ""
    pods: tuple[PodFacts, ...] = ()

    @property
    def ready(self) -> int:
        """The number of ready pods at the current template."""
        return sum(pod.ready for pod in self.pods)

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


def count_ready(workloads: Sequence[WorkloadFacts]) -> int:
    """Return the number of pods that run the current templates and are ready."""
    return sum(workload.ready for workload in workloads)


def remember_pods(
    workloads: Sequence[WorkloadFacts], memory: HealthMemory, limits: HealthLimits, now: datetime
) -> dict[str, PodMemory]:
    """Return the restarts to compare the next reading with. A pod that is gone is forgotten."""
    pods = (pod for workload in workloads for pod in workload.pods)
    return {pod.uid: _remembered(pod, memory.pods.get(pod.uid), limits, now) for pod in pods}


def _remembered(pod: PodFacts, before: PodMemory | None, limits: HealthLimits, now: datetime) -> PodMemory:
    if before is None:
        return PodMemory(0 if pod.new else pod.restarts, now)
    return before if now - before.since < limits.restart_window else PodMemory(pod.restarts, now)


def judge_workloads(
    workloads: Sequence[WorkloadFacts],
    pods: dict[str, PodMemory],
    limits: HealthLimits,
    *,
    expected: bool = False,
) -> HealthCheck:
    """Return the check of all controllers of a release. `pods` is what `remember_pods` returned.

    `expected` is true if the release before had a controller.
    """
    if not workloads and expected:
        return _check(Evidence.UNKNOWN, "ControllersGone", _GONE)
    if not workloads:
        return _check(Evidence.HEALTHY, NO_WORKLOADS, "the release has no controllers")
    checks = [_workload(workload, pods, limits) for workload in workloads]
    order = (Evidence.FAILING, Evidence.UNKNOWN, Evidence.HEALTHY)
    worst = min(checks, key=lambda check: (order.index(check.evidence), not check.conclusive))
    if worst.evidence is Evidence.HEALTHY:
        ready = count_ready(workloads)
        return _check(Evidence.HEALTHY, "Passed", f"{ready} pods of {len(workloads)} controllers are ready")
    return worst


def _workload(workload: WorkloadFacts, pods: dict[str, PodMemory], limits: HealthLimits) -> HealthCheck:
    if not workload.exists:
        return _check(Evidence.FAILING, "WorkloadMissing", f"{workload} of the release does not exist")
    if not workload.observed:
        return _check(Evidence.UNKNOWN, "NotObserved", f"{workload}: its controller has not seen the change")
    for pod in workload.pods:
        problem = _pod(pod, pods.get(pod.uid), limits)
        if problem is not None:
            return problem
    if workload.failure:
        return _check(Evidence.FAILING, workload.failure, f"{workload}: {workload.message}")
    if workload.desired == 0:
        return _check(Evidence.UNKNOWN, "NoPods", f"{workload} is scaled to zero")
    if workload.ready < workload.desired:
        message = f"{workload}: {workload.ready} of {workload.desired} pods are ready"
        return _check(Evidence.UNKNOWN, "NotReady", message)
    return _check(Evidence.HEALTHY, "Passed", f"{workload}: {workload.ready} pods are ready")


def _pod(pod: PodFacts, before: PodMemory | None, limits: HealthLimits) -> HealthCheck | None:
    """Return what is wrong with a pod. One that has only not started yet is not failing."""
    restarts = pod.restarts - (before.restarts if before else 0)
    for container in pod.containers:
        what = f"pod {pod.name}, container {container.name}"
        if container.waiting == "CrashLoopBackOff":
            message = f"{what} crashes in a loop; restarts so far: {container.restarts}"
            return _check(Evidence.FAILING, "CrashLoopBackOff", message, restarts >= limits.restarts)
        if container.waiting in _PULLS or container.waiting in _STARTS:
            message = f"{what}: {container.message}"
            return _check(Evidence.FAILING, container.waiting, message, container.waiting in _PULLS)
        if container.ended == "OOMKilled" and (restarts > 0 or not pod.ready):
            return _check(Evidence.FAILING, "OOMKilled", f"{what} was killed: out of memory", True)
    if restarts >= limits.restarts:
        minutes = limits.restart_window.total_seconds() / 60
        message = f"pod {pod.name} has restarted {restarts} times within {minutes:g} minutes"
        return _check(Evidence.FAILING, "RestartLoop", message)
    return None


def _check(evidence: Evidence, reason: str, message: str, conclusive: bool = False) -> HealthCheck:
    return HealthCheck(CheckKind.PODS, evidence, reason, message[:500], conclusive)
