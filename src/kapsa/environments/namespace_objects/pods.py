"""The first problem of a workload's pods, as a message with the end of the container's log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from kapsa.adapters.redaction import redact, tail
from kapsa.runtime import Client, ClientError

__all__ = ["PodProblem", "first_problem"]

_HINTS = {
    "CrashLoopBackOff": "The container keeps crashing: read its log.",
    "ImagePullBackOff": "The image cannot be pulled: check that it exists, and that the Registry has credentials to pull (imagePullSecret.secretRef).",
    "ErrImagePull": "The image cannot be pulled: check that it exists, and that the Registry has credentials to pull (imagePullSecret.secretRef).",
    "InvalidImageName": "The image name is invalid: check registry.imageRepository of the Project.",
    "CreateContainerConfigError": "A Secret or ConfigMap that the container refers to does not exist.",
    "OOMKilled": "The container exceeded its memory limit: raise the limit, or use less memory.",
    "Unschedulable": "No node has room for the pod: request less, or ask an administrator to add nodes.",
}


class PodProblem(msgspec.Struct, frozen=True):
    """The first problem of a pod; empty if there is none."""

    message: str = ""
    log_tail: str = ""
    hint: str = ""


async def first_problem(
    client: Client, workload: Mapping[str, Any], *, secrets: Sequence[str] = ()
) -> PodProblem:
    """Return the first problem of a workload's pods, with these secrets redacted; empty if there is none."""
    selector = (workload.get("spec") or {}).get("selector") or {}
    labels = selector.get("matchLabels") if "matchLabels" in selector else None
    namespace = workload["metadata"]["namespace"]
    if not labels:
        return PodProblem()
    try:
        pods = (await client.list("v1/Pod", namespace=namespace, label_selector=labels, limit=20)).items
    except ClientError:
        return PodProblem()
    for pod in pods:
        problem = _problem(pod)
        if problem is not None:
            reason, message, container = problem
            log = await _log_of(client, pod, container) if container else ""
            return PodProblem(redact(message, secrets), tail(log, secrets=secrets), _HINTS.get(reason, ""))
    return PodProblem()


def _problem(pod: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Return the problem of a pod: reason, message, and the container whose log may explain it."""
    status = pod.get("status") or {}
    name = pod["metadata"]["name"]
    for container in _containers(status):
        state, last = container.get("state") or {}, container.get("lastState") or {}
        waiting, ended = state.get("waiting") or {}, state.get("terminated") or last.get("terminated") or {}
        if ended.get("reason") == "OOMKilled":
            return (
                "OOMKilled",
                f"container {container['name']} of pod {name} ran out of memory",
                container["name"],
            )
        reason = waiting.get("reason", "")
        if reason and reason not in ("ContainerCreating", "PodInitializing"):
            words = f"container {container['name']} of pod {name}: {reason}: {waiting.get('message', '')}"
            return reason, words.rstrip(": "), container["name"] if ended else ""
        if ended.get("exitCode"):
            words = f"container {container['name']} of pod {name} exited with code {ended['exitCode']}"
            return ended.get("reason", "Error"), words, container["name"]
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return condition.get("reason", ""), f"pod {name}: {condition.get('message', '')}", ""
    return None


def _containers(status: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


async def _log_of(client: Client, pod: Mapping[str, Any], container: str) -> str:
    metadata = pod["metadata"]
    for previous in (True, False):
        try:
            text = await client.logs(
                metadata["name"],
                namespace=metadata["namespace"],
                container=container,
                tail_lines=40,
                previous=previous,
            )
        except ClientError:
            continue
        if text.strip():
            return text
    return ""
