"""The life cycle of a pod on its node: it starts, becomes ready, fails, ends."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from kapsa.devcluster.embedded.controllers.machinery.kinds import Object
from kapsa.devcluster.embedded.controllers.machinery.ownership import is_deleting
from kapsa.devcluster.embedded.controllers.machinery.pod_state import is_finished, phase
from kapsa.devcluster.embedded.controllers.machinery.timestamps import render, seconds_since
from kapsa.devcluster.embedded.controllers.nodes import containers
from kapsa.devcluster.workloads import Behaviour

_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")


class PodStep(msgspec.Struct):
    """The next step of a pod."""

    status: Object | None = None
    """Status to write; None if nothing changes."""
    remove: bool = False
    """True if its containers have stopped and it can be deleted for good."""
    again: float | None = None
    """Seconds until the next step."""
    events: list[tuple[str, str, str]] = []
    """Type, reason and message."""


def advance(pod: Object, behaviour: Behaviour, host_ip: str, pod_ip: str, now: datetime) -> PodStep:
    """Compute the kubelet's next step for a pod on its node."""
    if is_deleting(pod):
        return _end(pod, behaviour, now)
    if is_finished(pod):
        return PodStep()
    status = pod.get("status") or {}
    started = status.get("startTime")
    wait = behaviour.delays.start - (seconds_since(started, now) if started else 0.0)
    if wait > 0:
        step = PodStep(again=wait)
        if started is None:
            step.status = _creating(pod, host_ip, now)
        return step
    advanced = containers.advance(pod, behaviour, now)
    after = _assemble(pod, advanced.statuses, host_ip, pod_ip, now)
    step = PodStep(again=advanced.again, events=advanced.events)
    deadline = pod["spec"].get("activeDeadlineSeconds")
    if deadline is not None and after["phase"] not in ("Succeeded", "Failed"):
        left = deadline - seconds_since(after["startTime"], now)
        if left <= 0:
            after = _overdue(after, advanced.statuses, now)
        else:
            step.again = left if step.again is None else min(left, step.again)
    if after != status:
        step.status = after
        if _has_new_start(advanced.statuses, status) and step.again is None:
            # A container that just started may be due to end or become ready at once.
            step.again = 0.0
    return step


def _has_new_start(statuses: list[Object], before: Object) -> bool:
    restarts = {
        s["name"]: s.get("restartCount") for s in before.get("containerStatuses") or () if s.get("started")
    }
    return any(s["started"] and restarts.get(s["name"]) != s["restartCount"] for s in statuses)


def _creating(pod: Object, host_ip: str, now: datetime) -> Object:
    statuses = [containers.waiting(c, "ContainerCreating") for c in pod["spec"]["containers"]]
    status = _assemble(pod, statuses, host_ip, "", now)
    status["conditions"] = [
        {**c, "status": "False"} if c["type"] == "PodReadyToStartContainers" else c
        for c in status["conditions"]
    ]
    return status


def _assemble(pod: Object, statuses: list[Object], host_ip: str, pod_ip: str, now: datetime) -> Object:
    before = pod.get("status") or {}
    status: Object = {k: v for k, v in before.items() if k not in ("reason", "message")}
    status["observedGeneration"] = pod["metadata"].get("generation", 1)
    status["phase"] = _phase(pod, statuses)
    status["conditions"] = _conditions(pod, statuses, status["phase"], now)
    status.update(hostIP=host_ip, hostIPs=[{"ip": host_ip}])
    begun = any("waiting" not in s["state"] or s["restartCount"] for s in statuses)
    if pod_ip and (begun or before.get("podIP")):
        shown = host_ip if pod["spec"].get("hostNetwork") else pod_ip
        status.update(podIP=shown, podIPs=[{"ip": shown}])
    status.setdefault("startTime", render(now))
    if pod["spec"].get("initContainers"):
        status["initContainerStatuses"] = _init_statuses(pod, before, now)
    status["containerStatuses"] = statuses
    status.setdefault("qosClass", "BestEffort")
    return status


def _phase(pod: Object, statuses: list[Object]) -> str:
    ended = [s["state"].get("terminated") for s in statuses]
    if all(ended) and pod["spec"].get("restartPolicy", "Always") != "Always":
        return "Failed" if any(e and e["exitCode"] for e in ended) else "Succeeded"
    never_ran = all(
        "waiting" in s["state"] and not s["restartCount"] and not s["lastState"] for s in statuses
    )
    return "Pending" if never_ran else "Running"


def _conditions(pod: Object, statuses: list[Object], now_phase: str, now: datetime) -> list[Object]:
    unready = [s["name"] for s in statuses if not s["ready"]]
    finished = now_phase in ("Succeeded", "Failed")
    desired: dict[str, Object] = {
        "PodReadyToStartContainers": {"status": "False" if finished else "True"},
        "Initialized": {"status": "True"},
        "Ready": {"status": "True"},
        "ContainersReady": {"status": "True"},
        "PodScheduled": {"status": "True"},
    }
    if finished:
        why = "PodCompleted" if now_phase == "Succeeded" else "PodFailed"
        desired["Initialized"]["reason"] = "PodCompleted" if now_phase == "Succeeded" else None
        for type_ in ("Ready", "ContainersReady"):
            desired[type_] = {"status": "False", "reason": why}
    elif unready:
        message = f"containers with unready status: [{' '.join(unready)}]"
        for type_ in ("Ready", "ContainersReady"):
            desired[type_] = {"status": "False", "reason": "ContainersNotReady", "message": message}
    before = {c["type"]: c for c in (pod.get("status") or {}).get("conditions") or ()}
    gates = [gate["conditionType"] for gate in pod["spec"].get("readinessGates") or ()]
    closed = [g for g in gates if (before.get(g) or {}).get("status") != "True"]
    if closed and desired["Ready"]["status"] == "True":
        message = f'the status of pod readiness gate "{closed[0]}" is not "True", but False'
        desired["Ready"] = {"status": "False", "reason": "ReadinessGatesNotReady", "message": message}
    result = [_condition(pod, type_, desired[type_], before.get(type_), now) for type_ in _CONDITIONS]
    return result + [c for type_, c in before.items() if type_ not in _CONDITIONS]


def _condition(pod: Object, type_: str, desired: Object, before: Object | None, now: datetime) -> Object:
    since = before["lastTransitionTime"] if before and before["status"] == desired["status"] else render(now)
    condition: dict[str, Any] = {
        "type": type_,
        "observedGeneration": pod["metadata"].get("generation", 1),
        "status": desired["status"],
        "lastProbeTime": None,
        "lastTransitionTime": since or render(now),
    }
    condition.update({key: desired[key] for key in ("reason", "message") if desired.get(key)})
    return condition


def _init_statuses(pod: Object, before: Object, now: datetime) -> list[Object]:
    current = {s["name"]: s for s in before.get("initContainerStatuses") or ()}
    statuses = []
    for container in pod["spec"]["initContainers"]:
        status = current.get(container["name"])
        if status is None:
            moment, sidecar = render(now), container.get("restartPolicy") == "Always"
            ended = {"exitCode": 0, "reason": "Completed", "startedAt": moment, "finishedAt": moment}
            status = {
                "name": container["name"],
                "state": {"running": {"startedAt": moment}} if sidecar else {"terminated": ended},
                "lastState": {},
                "ready": True,
                "restartCount": 0,
                "image": container["image"],
                "imageID": "",
                "started": sidecar,
            }
        statuses.append(status)
    return statuses


def _overdue(status: Object, statuses: list[Object], now: datetime) -> Object:
    return {
        **status,
        "phase": "Failed",
        "reason": "DeadlineExceeded",
        "message": "Pod was active on the node longer than the specified deadline",
        "containerStatuses": [containers.stopped(s, now) for s in statuses],
        "conditions": [
            {**c, "status": "False", "reason": "PodFailed"}
            if c["type"] in ("Ready", "ContainersReady")
            else c
            for c in status["conditions"]
        ],
    }


def _end(pod: Object, behaviour: Behaviour, now: datetime) -> PodStep:
    """Compute the next step of a pod that is being deleted: its containers stop, then it is removed."""
    metadata = pod["metadata"]
    if not metadata.get("deletionGracePeriodSeconds"):
        return PodStep()
    began = seconds_since(metadata["deletionTimestamp"], now) + metadata["deletionGracePeriodSeconds"]
    wait = min(behaviour.delays.terminate, metadata["deletionGracePeriodSeconds"]) - began
    if wait > 0:
        return PodStep(again=wait)
    step = PodStep(remove=True)
    if metadata.get("finalizers") and phase(pod) not in ("Succeeded", "Failed") and pod.get("status"):
        # The controller that holds the finalizer reads how the pod ended.
        statuses = [containers.stopped(s, now) for s in pod["status"].get("containerStatuses") or ()]
        ended = {**pod["status"], "phase": "Failed", "containerStatuses": statuses}
        ended["conditions"] = [
            {**c, "status": "False", "reason": "PodFailed"}
            if c["type"] in ("Ready", "ContainersReady")
            else c
            for c in pod["status"].get("conditions") or ()
        ]
        step.status = ended
    return step
