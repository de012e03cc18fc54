"""The first problem of a workload's pods, as a message with a hint."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kapsa.environments.namespace_objects.pods import PodProblem, first_problem
from kapsa.runtime import Client, ResourceList

NAMESPACE = "team-app-one"
WORKLOAD = {
    "metadata": {"name": "web", "namespace": NAMESPACE},
    "spec": {"selector": {"matchLabels": {"app": "web"}}},
}


class OnePod:
    """A client of a cluster with one pod and its log."""

    def __init__(self, status: dict[str, Any]) -> None:
        self._pod = {"metadata": {"name": "web-1", "namespace": NAMESPACE}, "status": status}

    async def list(self, kind: str, **options: Any) -> ResourceList[dict[str, Any]]:
        assert (kind, options["label_selector"]) == ("v1/Pod", {"app": "web"})
        return ResourceList([self._pod])

    async def logs(self, name: str, **options: Any) -> str:
        return f"the log of {options['container']} of {name}\n"


async def problem(**status: Any) -> PodProblem:
    return await first_problem(cast("Client", OnePod(status)), WORKLOAD)


def container(**state: Any) -> list[dict[str, Any]]:
    return [{"name": "app", **state}]


async def test_a_container_that_ran_out_of_memory_is_reported() -> None:
    killed = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}}
    result = await problem(containerStatuses=container(state=waiting, lastState=killed))
    assert result.message == "container app of pod web-1 ran out of memory"
    assert "exceeded its memory limit" in result.hint
    assert result.log_tail == "the log of app of web-1"


async def test_an_unschedulable_pod_is_reported_with_the_schedulers_message() -> None:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available: 3 Insufficient cpu.",
    }
    result = await problem(conditions=[condition])
    assert result.message == "pod web-1: 0/3 nodes are available: 3 Insufficient cpu."
    assert "No node has room for the pod" in result.hint


@pytest.mark.parametrize(
    ("reason", "hint"),
    [
        ("ImagePullBackOff", "credentials to pull (imagePullSecret.secretRef)"),
        ("CreateContainerConfigError", "A Secret or ConfigMap that the container refers to does not exist."),
    ],
)
async def test_a_container_that_cannot_start_is_reported_without_a_log(reason: str, hint: str) -> None:
    waiting = {"waiting": {"reason": reason, "message": "the kubelet's words"}}
    result = await problem(containerStatuses=container(state=waiting))
    assert result.message == f"container app of pod web-1: {reason}: the kubelet's words"
    assert hint in result.hint
    assert result.log_tail == ""


async def test_init_containers_are_checked_first() -> None:
    ended = {"terminated": {"reason": "Error", "exitCode": 3}}
    waiting = {"waiting": {"reason": "PodInitializing"}}
    result = await problem(
        initContainerStatuses=[{"name": "migrate", "state": ended}],
        containerStatuses=container(state=waiting),
    )
    assert result.message == "container migrate of pod web-1 exited with code 3"
    assert result.log_tail == "the log of migrate of web-1"


async def test_a_pod_that_is_starting_has_no_problem() -> None:
    starting = {"waiting": {"reason": "ContainerCreating"}}
    assert await problem(containerStatuses=container(state=starting)) == PodProblem()
