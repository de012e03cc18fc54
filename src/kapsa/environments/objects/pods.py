"""What is wrong with the pods of a workload: the first cause, in words, with the end of its log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from kapsa.adapters.redaction import redact, tail
from kapsa.runtime import Client, ClientError

__all__ = ["PodTrouble", "trouble_of"]

_HINTS = {
    "CrashLoopBackOff": "The container ends again and again: read its log.",
    "ImagePullBackOff": "The image cannot be pulled: does it exist, and does the registry accept the pull secret?",
    "ErrImagePull": "The image cannot be pulled: does it exist, and does the registry accept the pull secret?",
    "InvalidImageName": "The image's name is not one: look at registry.imageRepository of the project.",
    "CreateContainerConfigError": "A Secret or ConfigMap that the container names is not there.",
    "OOMKilled": "The container needs more memory than its limit allows.",
    "Unschedulable": "No node has room for it: ask for less, or have nodes added.",
}


class PodTrouble(msgspec.Struct, frozen=True):
    """The first thing that is wrong."""

    message: str = ""
    log_tail: str = ""
    hint: str = ""


async def trouble_of(
    client: Client, workload: Mapping[str, Any], *, secrets: Sequence[str] = ()
) -> PodTrouble:
    """What the pods of a workload say, without these secrets. Nothing, if they say nothing or cannot be asked."""
    selector = (workload.get("spec") or {}).get("selector") or {}
    labels = selector.get("matchLabels") if "matchLabels" in selector else None
    namespace = workload["metadata"]["namespace"]
    if not labels:
        return PodTrouble()
    try:
        pods = (await client.list("v1/Pod", namespace=namespace, label_selector=labels, limit=20)).items
    except ClientError:
        return PodTrouble()
    for pod in pods:
        found = _trouble(pod)
        if found is not None:
            reason, message, container = found
            log = await _log_of(client, pod, container) if container else ""
            return PodTrouble(redact(message, secrets), tail(log, secrets=secrets), _HINTS.get(reason, ""))
    return PodTrouble()


def _trouble(pod: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Why a pod is not well: reason, message, and the container whose log may tell more."""
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
            words = f"container {container['name']} of pod {name} ended with code {ended['exitCode']}"
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
