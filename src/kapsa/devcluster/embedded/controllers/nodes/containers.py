"""Container statuses, as a kubelet reports them."""

from __future__ import annotations

import fnmatch
import hashlib
from datetime import datetime
from typing import Any

import msgspec

from kapsa.devcluster.embedded.controllers.machinery.kinds import Object
from kapsa.devcluster.embedded.controllers.machinery.timestamps import parse, render
from kapsa.devcluster.workloads import Behaviour

_FIRST_BACKOFF = 10.0
_LONGEST_BACKOFF = 300.0
_PULL_RETRY = 10.0


class ContainerStep(msgspec.Struct):
    """The next step of a pod's containers: their statuses, and the Events to record."""

    statuses: list[Object]
    again: float | None = None
    """Seconds until the next step."""
    events: list[tuple[str, str, str]] = []
    """Type, reason and message."""

    def requeue_after(self, seconds: float) -> None:
        """Take the next step after this many seconds, or earlier if an earlier time is already set."""
        self.again = seconds if self.again is None else min(self.again, seconds)


def advance(pod: Object, behaviour: Behaviour, now: datetime) -> ContainerStep:
    """Compute the next statuses of a pod's containers from the current ones."""
    current = {s["name"]: s for s in (pod.get("status") or {}).get("containerStatuses") or ()}
    step = ContainerStep([])
    for container in pod["spec"]["containers"]:
        step.statuses.append(_advance(pod, container, current.get(container["name"]), behaviour, now, step))
    return step


def _advance(
    pod: Object,
    container: Object,
    status: Object | None,
    behaviour: Behaviour,
    now: datetime,
    step: ContainerStep,
) -> Object:
    if status is None or "running" not in status["state"]:
        broken = any(fnmatch.fnmatchcase(container["image"], p) for p in behaviour.broken_images)
        if broken and (status is None or "terminated" not in status["state"]):
            return _pull_failure(container, status, step)
    if status is None or (status["state"].get("waiting") or {}).get("reason") in _PULLING:
        return _started(pod, container, status, 0, behaviour, now, step)
    if "waiting" in status["state"]:
        return _maybe_restart(pod, container, status, behaviour, now, step)
    if "terminated" in status["state"]:
        return _ended(pod, container, status, behaviour, now, step)
    return _run(pod, container, status, behaviour, now, step)


_PULLING = ("ContainerCreating", "ErrImagePull", "ImagePullBackOff")


def _pull_failure(container: Object, status: Object | None, step: ContainerStep) -> Object:
    image = container["image"]
    why = f'failed to pull and unpack image "{image}": failed to resolve reference "{image}": {image}: not found'
    reason = ((status or {}).get("state") or {}).get("waiting", {}).get("reason")
    step.requeue_after(_PULL_RETRY)
    if reason == "ErrImagePull":
        message = f'Back-off pulling image "{image}": ErrImagePull: {why}'
        step.events.append(("Normal", "BackOff", f'Back-off pulling image "{image}"'))
        step.events.append(("Warning", "Failed", "Error: ImagePullBackOff"))
        return _waiting(container, status, "ImagePullBackOff", message)
    if reason == "ImagePullBackOff":
        assert status is not None
        return status
    step.events.append(("Normal", "Pulling", f'Pulling image "{image}"'))
    step.events.append(("Warning", "Failed", f'Failed to pull image "{image}": {why}'))
    step.events.append(("Warning", "Failed", "Error: ErrImagePull"))
    return _waiting(container, status, "ErrImagePull", why)


def waiting(container: Object, reason: str) -> Object:
    """Return the status of a container that has not started."""
    return _waiting(container, None, reason, "")


def _waiting(container: Object, status: Object | None, reason: str, message: str) -> Object:
    state: dict[str, Any] = {"reason": reason}
    if message:
        state["message"] = message
    return {
        "name": container["name"],
        "state": {"waiting": state},
        "lastState": (status or {}).get("lastState") or {},
        "ready": False,
        "restartCount": (status or {}).get("restartCount") or 0,
        "image": container["image"],
        "imageID": (status or {}).get("imageID") or "",
        "started": False,
    }


def _started(
    pod: Object,
    container: Object,
    status: Object | None,
    restarts: int,
    behaviour: Behaviour,
    now: datetime,
    step: ContainerStep,
) -> Object:
    name, image = container["name"], container["image"]
    step.events.append(
        (
            "Normal",
            "Pulled",
            f'Container image "{image}" already present on machine and can be accessed by the pod',
        )
    )
    step.events.append(("Normal", "Created", "Container created"))
    step.events.append(("Normal", "Started", "Container started"))
    digest = hashlib.sha256(image.encode()).hexdigest()
    own = hashlib.sha256(f"{name}{restarts}{render(now)}".encode()).hexdigest()
    status = {
        "name": name,
        "state": {"running": {"startedAt": render(now)}},
        "lastState": (status or {}).get("lastState") or {},
        "ready": False,
        "restartCount": restarts,
        "image": image,
        "imageID": f"{image.partition('@')[0].rpartition(':')[0] or image}@sha256:{digest}",
        "containerID": f"containerd://{own}",
        "started": True,
    }
    ends = _ends(pod, container, status, behaviour)
    if ends is not None:
        step.requeue_after(ends[1])
    # A container that crashes at once never becomes ready.
    if ends is None or ends[1] > 0:
        status["ready"] = _ready(container, behaviour, 0.0, step)
    return status


def _run(
    pod: Object, container: Object, status: Object, behaviour: Behaviour, now: datetime, step: ContainerStep
) -> Object:
    started = parse(status["state"]["running"]["startedAt"])
    runs = (now - started).total_seconds()
    ends = _ends(pod, container, status, behaviour)
    if ends is not None:
        code, after = ends
        if runs + 1e-9 >= after:
            return _terminated(pod, container, status, code, behaviour, now, step)
        step.requeue_after(after - runs)
    # A changed delay does not affect containers that are ready already.
    ready = not behaviour.unready if status["ready"] else _ready(container, behaviour, runs, step)
    return {**status, "ready": ready, "started": True} if status["ready"] != ready else status


def _ends(pod: Object, container: Object, status: Object, behaviour: Behaviour) -> tuple[int, float] | None:
    """Return the exit code and running time of a container that exits by itself, or None."""
    affected = behaviour.container in ("", container["name"])
    due = behaviour.crashes is None or status["restartCount"] < behaviour.crashes
    if behaviour.exit_code is not None and affected and due:
        return behaviour.exit_code, behaviour.exit_after
    owners = pod["metadata"].get("ownerReferences") or ()
    if any(owner["kind"] == "Job" and owner.get("controller") for owner in owners):
        return 0, behaviour.delays.finish
    return None


def _ready(container: Object, behaviour: Behaviour, runs: float, step: ContainerStep) -> bool:
    if behaviour.unready:
        return False
    probe = container.get("readinessProbe") or {}
    wait = behaviour.delays.ready + (probe.get("initialDelaySeconds") or 0)
    if runs + 1e-9 >= wait:
        return True
    step.requeue_after(wait - runs)
    return False


def _terminated(
    pod: Object,
    container: Object,
    status: Object,
    code: int,
    behaviour: Behaviour,
    now: datetime,
    step: ContainerStep,
) -> Object:
    ended: dict[str, Any] = {
        "exitCode": code,
        "reason": "Completed" if code == 0 else "OOMKilled" if code == 137 else "Error",
        "startedAt": status["state"]["running"]["startedAt"],
        "finishedAt": render(now),
    }
    if behaviour.message:
        ended["message"] = behaviour.message
    if status.get("containerID"):
        ended["containerID"] = status["containerID"]
    after = {**status, "state": {"terminated": ended}, "ready": False, "started": False}
    return _ended(pod, container, after, behaviour, now, step)


def _ended(
    pod: Object, container: Object, status: Object, behaviour: Behaviour, now: datetime, step: ContainerStep
) -> Object:
    """Return the next status of a container that ended: left as it is, restarted, or delayed by back-off."""
    ended = status["state"]["terminated"]
    policy = pod["spec"].get("restartPolicy", "Always")
    if (
        "deletionTimestamp" in pod["metadata"]
        or policy == "Never"
        or (policy == "OnFailure" and not ended["exitCode"])
    ):
        return status
    delay = backoff(status["restartCount"])
    left = delay - (now - parse(ended["finishedAt"])).total_seconds()
    before = {**status, "lastState": {"terminated": ended}}
    if left <= 0:
        return _started(pod, container, before, status["restartCount"] + 1, behaviour, now, step)
    metadata = pod["metadata"]
    name = f"{metadata['name']}_{metadata['namespace']}({metadata['uid']})"
    text = f"Back-off restarting failed container {container['name']} in pod {name}"
    step.events.append(("Warning", "BackOff", text))
    step.requeue_after(left)
    message = f"back-off {_go_duration(delay)} restarting failed container={container['name']} pod={name}"
    delayed = {"reason": "CrashLoopBackOff", "message": message}
    return {**before, "state": {"waiting": delayed}, "ready": False, "started": False}


def _maybe_restart(
    pod: Object, container: Object, status: Object, behaviour: Behaviour, now: datetime, step: ContainerStep
) -> Object:
    ended = (status.get("lastState") or {}).get("terminated")
    if ended is None:
        return _started(pod, container, status, status["restartCount"], behaviour, now, step)
    left = backoff(status["restartCount"]) - (now - parse(ended["finishedAt"])).total_seconds()
    if left > 0:
        step.requeue_after(left)
        return status
    return _started(pod, container, status, status["restartCount"] + 1, behaviour, now, step)


def backoff(restarts: int) -> float:
    """Return the seconds before the next restart: 0 the first time, then doubling from 10 to 300."""
    if restarts == 0:
        return 0.0
    return float(min(_FIRST_BACKOFF * 2 ** (restarts - 1), _LONGEST_BACKOFF))


def _go_duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def stopped(status: Object, now: datetime) -> Object:
    """Return the status of a container after its kubelet stopped it."""
    if "running" not in status["state"]:
        return status
    ended = {
        "exitCode": 0,
        "reason": "Completed",
        "startedAt": status["state"]["running"]["startedAt"],
        "finishedAt": render(now),
    }
    return {**status, "state": {"terminated": ended}, "ready": False, "started": False}
