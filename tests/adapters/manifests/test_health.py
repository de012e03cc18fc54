"""The health of objects, compared with kstatus."""

from __future__ import annotations

from typing import Any

import pytest

from kapsa.adapters.manifests.health import object_health


def thing(kind: str, spec: dict[str, Any] | None = None, /, **status: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": "x", "generation": 2}, "spec": spec or {}, "status": status}


def condition(kind: str, status: str = "True", **more: str) -> dict[str, str]:
    return {"type": kind, "status": status, **more}


def replicas(count: int, **more: Any) -> dict[str, Any]:
    names = ("replicas", "updatedReplicas", "availableReplicas", "readyReplicas", "currentReplicas")
    return {"observedGeneration": 2, **dict.fromkeys(names, count), **more}


AVAILABLE = [condition("Available")]

CASES: list[tuple[str, dict[str, Any], str, str]] = [
    ("a Deployment that was not observed yet", thing("Deployment"), "InProgress", "0 of 1"),
    (
        "a Deployment whose change was not observed yet",
        thing("Deployment", **replicas(1, observedGeneration=1, conditions=AVAILABLE)),
        "InProgress",
        "has not observed the latest change",
    ),
    ("a Deployment that is there", thing("Deployment", **replicas(1, conditions=AVAILABLE)), "Current", ""),
    (
        "a Deployment that rolls out",
        thing("Deployment", {"replicas": 3}, **replicas(3, updatedReplicas=1, conditions=AVAILABLE)),
        "InProgress",
        "1 of 3 replicas are updated",
    ),
    (
        "a Deployment with old replicas",
        thing("Deployment", {"replicas": 1}, **replicas(1, replicas=2, conditions=AVAILABLE)),
        "InProgress",
        "1 surplus",
    ),
    (
        "a Deployment past its deadline",
        thing(
            "Deployment",
            **replicas(0, conditions=[condition("Progressing", "False", reason="ProgressDeadlineExceeded")]),
        ),
        "Failed",
        "",
    ),
    (
        "a Deployment whose pods are refused",
        thing(
            "Deployment", **replicas(0, conditions=[condition("ReplicaFailure", message="exceeded quota")])
        ),
        "Failed",
        "exceeded quota",
    ),
    ("a Deployment of nothing", thing("Deployment", {"replicas": 0}, observedGeneration=2), "Current", ""),
    (
        "a StatefulSet that is there",
        thing("StatefulSet", **replicas(1, currentRevision="a", updateRevision="a")),
        "Current",
        "",
    ),
    (
        "a StatefulSet between two revisions",
        thing("StatefulSet", **replicas(1, currentRevision="a", updateRevision="b")),
        "InProgress",
        "older revision",
    ),
    (
        "a StatefulSet that waits for pods",
        thing("StatefulSet", {"replicas": 2}, **replicas(1)),
        "InProgress",
        "1 of 2 replicas are ready",
    ),
    (
        "a StatefulSet that is updated in part on purpose",
        thing(
            "StatefulSet",
            {"replicas": 3, "updateStrategy": {"rollingUpdate": {"partition": 2}}},
            **replicas(3, updatedReplicas=1, currentRevision="a", updateRevision="b"),
        ),
        "Current",
        "",
    ),
    (
        "a DaemonSet that is on every node",
        thing(
            "DaemonSet",
            observedGeneration=2,
            desiredNumberScheduled=2,
            currentNumberScheduled=2,
            updatedNumberScheduled=2,
            numberAvailable=2,
            numberReady=2,
        ),
        "Current",
        "",
    ),
    (
        "a DaemonSet that is on some",
        thing("DaemonSet", observedGeneration=2, desiredNumberScheduled=2, currentNumberScheduled=1),
        "InProgress",
        "1 of 2 pods are scheduled",
    ),
    ("a Job that runs", thing("Job", {"completions": 2}, active=1), "InProgress", "0 of 2 pods"),
    ("a Job that is complete", thing("Job", conditions=[condition("Complete")]), "Current", ""),
    (
        "a Job that failed",
        thing("Job", conditions=[condition("Failed", reason="BackoffLimitExceeded", message="too often")]),
        "Failed",
        "too often",
    ),
    ("a Job that is suspended", thing("Job", conditions=[condition("Suspended")]), "Current", ""),
    ("a claim that is bound", thing("PersistentVolumeClaim", phase="Bound"), "Current", ""),
    ("a claim that waits for its first pod", thing("PersistentVolumeClaim"), "Current", "first pod"),
    ("a claim whose volume is lost", thing("PersistentVolumeClaim", phase="Lost"), "Failed", "lost"),
    ("a Service", thing("Service", {"type": "ClusterIP"}), "Current", ""),
    (
        "a load balancer without an address",
        thing("Service", {"type": "LoadBalancer"}),
        "InProgress",
        "no address",
    ),
    (
        "a load balancer with one",
        thing("Service", {"type": "LoadBalancer"}, loadBalancer={"ingress": [{"ip": "192.0.2.1"}]}),
        "Current",
        "",
    ),
    ("an Ingress", thing("Ingress"), "Current", ""),
    ("a ConfigMap", {"kind": "ConfigMap", "metadata": {"name": "x"}}, "Current", ""),
    ("a Certificate that is ready", thing("Certificate", conditions=[condition("Ready")]), "Current", ""),
    (
        "a Certificate that is not",
        thing("Certificate", conditions=[condition("Ready", "False", message="waiting for the order")]),
        "InProgress",
        "waiting for the order",
    ),
    (
        "a resource that is stalled",
        thing("Release", conditions=[condition("Ready", "False"), condition("Stalled", message="no source")]),
        "Failed",
        "no source",
    ),
    (
        "a resource that is worked on",
        thing("Release", conditions=[condition("Ready"), condition("Reconciling", message="step 2")]),
        "InProgress",
        "step 2",
    ),
    ("a resource that says nothing", thing("Release"), "Current", ""),
    ("a Pod that runs", thing("Pod", phase="Running", conditions=[condition("Ready")]), "Current", ""),
    ("a Pod that failed", thing("Pod", phase="Failed", reason="Evicted"), "Failed", "the pod failed"),
    ("a Pod without a node", thing("Pod"), "InProgress", "not scheduled"),
]


@pytest.mark.parametrize(
    ("manifest", "state", "words"), [pytest.param(*case[1:], id=case[0]) for case in CASES]
)
def test_the_health_of_an_object_is_that_of_kstatus(manifest: dict[str, Any], state: str, words: str) -> None:
    health = object_health(manifest)
    assert health.state == state
    assert words in health.message


def test_an_object_that_is_being_deleted_is_not_healthy() -> None:
    manifest = thing("Deployment", **replicas(1, conditions=AVAILABLE))
    manifest["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert object_health(manifest).state == "Terminating"


@pytest.mark.parametrize(
    "manifest", [{}, {"kind": "Deployment"}, {"kind": "Job", "status": None, "metadata": None}]
)
def test_an_object_without_a_status_has_a_health(manifest: dict[str, Any]) -> None:
    assert object_health(manifest).state in ("InProgress", "Current")
