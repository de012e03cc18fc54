"""The printer of pods. Its STATUS column summarizes the states of the containers."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kapsa.devcluster.embedded.replies.printers.cells import Object, age, dig, printer, since

__all__ = ["PRINTERS"]

_TERMINAL = ("Failed", "Succeeded")


class _Tally:
    """The totals of a pod's containers."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.restarts = 0
        self.last_restart = ""
        self.ready = 0

    def count(self, status: Object) -> None:
        self.restarts += status.get("restartCount") or 0
        finished = dig(status, "lastState", "terminated", "finishedAt") or ""
        self.last_restart = max(self.last_restart, finished)


def _pod(pod: Object, now: datetime) -> list[Any]:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    tally = _tally(pod)
    sidecars = sum(_restartable(container) for container in spec.get("initContainers") or ())
    total = len(spec.get("containers") or ()) + sidecars
    restarts = str(tally.restarts)
    if tally.restarts and tally.last_restart:
        restarts = f"{tally.restarts} ({since(tally.last_restart, now)} ago)"
    return [
        pod["metadata"]["name"],
        f"{tally.ready}/{total}",
        _final_reason(pod, tally.reason),
        restarts,
        age(pod, now),
        ((status.get("podIPs") or [{}])[0].get("ip") or status.get("podIP") or "<none>"),
        spec.get("nodeName") or "<none>",
        status.get("nominatedNodeName") or "<none>",
        _gates(spec, status),
    ]


def _final_reason(pod: Object, reason: str) -> str:
    if not pod["metadata"].get("deletionTimestamp"):
        return reason
    if dig(pod, "status", "reason") == "NodeLost":
        return "Unknown"
    return reason if dig(pod, "status", "phase") in _TERMINAL else "Terminating"


def _gates(spec: Object, status: Object) -> str:
    gates = spec.get("readinessGates") or ()
    if not gates:
        return "<none>"
    true = {entry["type"] for entry in status.get("conditions") or () if entry.get("status") == "True"}
    return f"{sum(gate['conditionType'] in true for gate in gates)}/{len(gates)}"


def _condition(status: Object, type_: str) -> bool:
    return any(
        entry["type"] == type_ and entry.get("status") == "True" for entry in status.get("conditions") or ()
    )


def _restartable(container: Object) -> bool:
    return container.get("restartPolicy") == "Always"


def _tally(pod: Object) -> _Tally:
    status = pod.get("status") or {}
    reason = status.get("reason") or status.get("phase") or ""
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            reason = "SchedulingGated"
    tally, sidecars = _Tally(reason), _Tally("")
    initializing = _init_containers(pod, tally, sidecars)
    if not initializing or _condition(status, "Initialized"):
        tally.restarts, tally.last_restart = sidecars.restarts, sidecars.last_restart
        _main_containers(status, tally)
    return tally


def _init_containers(pod: Object, tally: _Tally, sidecars: _Tally) -> bool:
    """Count the init containers up to the one that is running or failed. Returns whether there is one."""
    declared = {container["name"]: container for container in dig(pod, "spec", "initContainers") or ()}
    for index, status in enumerate(dig(pod, "status", "initContainerStatuses") or ()):
        tally.count(status)
        sidecar = _restartable(declared.get(status["name"], {}))
        if sidecar:
            sidecars.count(status)
        terminated = dig(status, "state", "terminated")
        waiting = dig(status, "state", "waiting", "reason")
        if terminated is not None and terminated.get("exitCode", 0) == 0:
            continue
        if sidecar and status.get("started"):
            tally.ready += bool(status.get("ready"))
            continue
        if terminated is not None:
            tally.reason = f"Init:{_ended(terminated)}"
        elif waiting and waiting != "PodInitializing":
            tally.reason = f"Init:{waiting}"
        else:
            tally.reason = f"Init:{index}/{len(declared)}"
        return True
    return False


def _ended(terminated: Object) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _main_containers(status: Object, tally: _Tally) -> None:
    running, error = False, ""
    for container in reversed(status.get("containerStatuses") or ()):
        tally.count(container)
        state = container.get("state") or {}
        terminated = state.get("terminated")
        if dig(state, "waiting", "reason"):
            tally.reason = state["waiting"]["reason"]
        elif terminated is not None:
            tally.reason = _ended(terminated)
            if terminated.get("exitCode", 0) != 0:
                error = tally.reason
        elif container.get("ready") and state.get("running") is not None:
            running = True
            tally.ready += 1
    if tally.reason == "Completed":
        # One container may have completed while another is still running.
        if running and _condition(status, "Ready"):
            tally.reason = "Running"
        elif error:
            tally.reason = error
        elif running:
            tally.reason = "NotReady"


PRINTERS = {
    ("", "pods"): printer(
        "Name, Ready, Status, Restarts, Age, IP+, Node+, Nominated Node+, Readiness Gates+", _pod
    ),
}
