"""LimitRanges, PriorityClasses, service accounts, and the other plugins that look at single objects."""

from __future__ import annotations

from typing import Any

from tests.behaviour.conformance.cases.admission_quota import CLAIMS, claim, settled, sized
from tests.behaviour.conformance.cases.requests import PODS, case, delete, merge, pod, post
from tests.behaviour.conformance.exchange import Call

LIMITS = "/api/v1/namespaces/{ns}/limitranges"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
ACCOUNTS = "/api/v1/namespaces/{ns}/serviceaccounts"
RUNTIMES = "/apis/node.k8s.io/v1/runtimeclasses"
INGRESSES = "/apis/networking.k8s.io/v1/namespaces/{ns}/ingresses"
NODES = "/api/v1/nodes"


def limits(*items: dict[str, Any]) -> Call:
    return post(LIMITS, {"metadata": {"name": "one"}, "spec": {"limits": list(items)}})


def priority_class(name: str, value: int, **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "value": value, **fields}


def ingress(**fields: Any) -> dict[str, Any]:
    spec = {"defaultBackend": {"service": {"name": "one", "port": {"number": 80}}}}
    return {"metadata": {"name": "one", **fields}, "spec": spec}


DEFAULTS = [
    case(
        "a limit range sets defaults",
        limits({"type": "Container", "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "100m"}}),
        settled(post(PODS, pod())),
    ),
    case(
        "a limit range keeps what a container sets",
        limits({"type": "Container", "default": {"cpu": "500m", "memory": "1Gi"}}),
        settled(post(PODS, sized(requests={"cpu": "100m"}, limits={"cpu": "200m"}))),
    ),
    case(
        "a limit range sets defaults of init containers",
        limits({"type": "Container", "default": {"memory": "128Mi"}}),
        settled(post(PODS, pod(initContainers=[{"name": "first", "image": "a"}]))),
    ),
    case(
        "a limit range with a maximum sets it as the default",
        limits({"type": "Container", "max": {"cpu": "1"}}),
        settled(post(PODS, pod())),
    ),
    case(
        "a limit range of pods sets no defaults",
        limits({"type": "Pod", "max": {"cpu": "1"}}),
        settled(post(PODS, sized(limits={"cpu": "1"}))),
    ),
]

BOUNDS = [
    case(
        "a container below the minimum is rejected",
        limits({"type": "Container", "min": {"cpu": "100m"}}),
        settled(post(PODS, sized(requests={"cpu": "50m"}))),
    ),
    case(
        "a container above the maximum is rejected",
        limits({"type": "Container", "max": {"memory": "1Gi"}}),
        settled(post(PODS, sized(limits={"memory": "2Gi"}))),
    ),
    case(
        "a container beyond the ratio is rejected",
        limits({"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}}),
        settled(post(PODS, sized(requests={"cpu": "100m"}, limits={"cpu": "350m"}))),
    ),
    case(
        "a container without a limit has no ratio",
        limits({"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}}),
        settled(post(PODS, pod())),
    ),
    case(
        "a pod above the maximum is rejected",
        limits({"type": "Pod", "max": {"cpu": "1"}}),
        settled(
            post(
                PODS,
                pod(
                    containers=[
                        {"name": name, "image": "a", "resources": {"limits": {"cpu": "600m"}}}
                        for name in ("a", "b")
                    ]
                ),
            )
        ),
    ),
    case(
        "a pod without a limit is rejected by a maximum",
        limits({"type": "Pod", "max": {"cpu": "1"}}),
        settled(post(PODS, pod())),
    ),
    case(
        "a pod without a request is rejected by a minimum",
        limits({"type": "Pod", "min": {"memory": "64Mi"}}),
        settled(post(PODS, pod())),
    ),
    case(
        "a pod within the bounds is accepted",
        limits({"type": "Pod", "min": {"cpu": "100m"}, "max": {"cpu": "1"}}),
        settled(post(PODS, sized(requests={"cpu": "200m"}, limits={"cpu": "1"}))),
    ),
    case(
        "a claim below the minimum is rejected",
        limits({"type": "PersistentVolumeClaim", "min": {"storage": "2Gi"}}),
        settled(post(CLAIMS, claim())),
    ),
    case(
        "a claim above the maximum is rejected",
        limits({"type": "PersistentVolumeClaim", "max": {"storage": "2Gi"}}),
        settled(post(CLAIMS, claim(storage="3Gi"))),
    ),
    case(
        "a claim within the bounds is accepted",
        limits({"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}}),
        settled(post(CLAIMS, claim(storage="2Gi"))),
    ),
    case(
        "a dry run of a container above the maximum is rejected",
        limits({"type": "Container", "max": {"memory": "1Gi"}}),
        settled(post(PODS, sized(limits={"memory": "2Gi"}), "dryRun=All")),
    ),
]

PRIORITIES = [
    case("an unknown priority class is rejected", post(PODS, pod(priorityClassName="none"))),
    case(
        "a system priority class sets the priority", post(PODS, pod(priorityClassName="system-node-critical"))
    ),
    case("a priority without a class is rejected", post(PODS, pod(priority=5))),
    case("a priority of zero without a class is accepted", post(PODS, pod(priority=0))),
    case("a preemption policy without a class is rejected", post(PODS, pod(preemptionPolicy="Never"))),
    case(
        "a priority class sets priority and preemption policy",
        post(CLASSES, priority_class("high-{ns}", 1000, preemptionPolicy="Never")),
        settled(post(PODS, pod(priorityClassName="high-{ns}"))),
    ),
    case(
        "a priority that differs from its class is rejected",
        post(CLASSES, priority_class("high-{ns}", 1000)),
        settled(post(PODS, pod(priorityClassName="high-{ns}", priority=5))),
    ),
    case(
        "a priority that equals its class is accepted",
        post(CLASSES, priority_class("high-{ns}", 1000)),
        settled(post(PODS, pod(priorityClassName="high-{ns}", priority=1000))),
    ),
    case(
        "a default priority class is set on each pod",
        post(CLASSES, priority_class("default-{ns}", 7, globalDefault=True)),
        settled(post(PODS, pod())),
        settled(post(CLASSES, priority_class("second-{ns}", 8, globalDefault=True))),
        delete(f"{CLASSES}/default-{{ns}}"),
        settled(post(PODS, pod("two"))),
    ),
]

ACCOUNTS_OF_PODS = [
    case("a pod with an unknown service account is rejected", post(PODS, pod(serviceAccountName="none"))),
    case(
        "a pod gets the pull secrets of its account",
        post(ACCOUNTS, {"metadata": {"name": "puller"}, "imagePullSecrets": [{"name": "login"}]}),
        settled(post(PODS, pod(serviceAccountName="puller"))),
    ),
    case(
        "a restricted account rejects secrets that it does not list",
        post(
            ACCOUNTS,
            {
                "metadata": {
                    "name": "strict",
                    "annotations": {"kubernetes.io/enforce-mountable-secrets": "true"},
                },
                "secrets": [{"name": "known"}],
            },
        ),
        settled(
            post(
                PODS,
                pod(serviceAccountName="strict", volumes=[{"name": "v", "secret": {"secretName": "other"}}]),
            )
        ),
        settled(post(PODS, pod(serviceAccountName="strict", imagePullSecrets=[{"name": "other"}]))),
    ),
    case(
        "a restricted account rejects variables from secrets that it does not list",
        post(
            ACCOUNTS,
            {
                "metadata": {
                    "name": "strict",
                    "annotations": {"kubernetes.io/enforce-mountable-secrets": "true"},
                }
            },
        ),
        settled(
            post(
                PODS,
                pod(
                    serviceAccountName="strict",
                    containers=[{"name": "a", "image": "a", "envFrom": [{"secretRef": {"name": "other"}}]}],
                ),
            )
        ),
    ),
    case(
        "a mirror pod with a service account is rejected",
        post(
            PODS,
            {
                **pod(serviceAccountName="default"),
                "metadata": {"name": "one", "annotations": {"kubernetes.io/config.mirror": "x"}},
            },
        ),
    ),
]

OTHERS = [
    case("a pod with an unknown runtime class is rejected", post(PODS, pod(runtimeClassName="none"))),
    case("a pod with an overhead and no runtime class is rejected", post(PODS, pod(overhead={"cpu": "1"}))),
    case(
        "a runtime class sets the overhead and the node selector",
        post(
            RUNTIMES,
            {
                "metadata": {"name": "run-{ns}"},
                "handler": "x",
                "overhead": {"podFixed": {"cpu": "250m"}},
                "scheduling": {"nodeSelector": {"a": "b"}},
            },
        ),
        settled(post(PODS, pod(runtimeClassName="run-{ns}", nodeSelector={"c": "d"}))),
        settled(post(PODS, pod("two", runtimeClassName="run-{ns}", nodeSelector={"a": "d"}))),
        settled(post(PODS, pod("three", runtimeClassName="run-{ns}", overhead={"cpu": "1"}))),
    ),
    case(
        "a new node is tainted",
        post(NODES, {"metadata": {"name": "node-{ns}"}}),
        delete(f"{NODES}/node-{{ns}}"),
    ),
    case(
        "a bound claim of a class that does not allow it cannot grow",
        post(CLAIMS, claim(storageClassName="gold", volumeName="v")),
        merge(f"{CLAIMS}/one/status", {"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}),
        merge(f"{CLAIMS}/one", {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}),
    ),
    case("an ingress without a default class gets none", post(INGRESSES, ingress())),
    case(
        "an ingress gets the default class",
        post(
            "/apis/networking.k8s.io/v1/ingressclasses",
            {
                "metadata": {
                    "name": "default-{ns}",
                    "annotations": {"ingressclass.kubernetes.io/is-default-class": "true"},
                },
                "spec": {"controller": "example.com/x"},
            },
        ),
        settled(post(INGRESSES, ingress())),
        delete("/apis/networking.k8s.io/v1/ingressclasses/default-{ns}"),
    ),
]

INVALID = [
    case(f"a limit range {what}", *(limits(*items) for items in ranges))
    for what, ranges in (
        (
            "of a type that does not exist",
            (({},), ({"type": "container"},), ({"type": "Pods", "max": {"cpu": "1"}},)),
        ),
        ("with a type twice", (({"type": "Container"}, {"type": "Container"}),)),
        (
            "of resources that do not exist",
            (
                ({"type": "Container", "max": {"cpus": "1"}},),
                ({"type": "Container", "max": {"pods": "1"}},),
                ({"type": "Container", "max": {"example.com/x!": "1"}},),
                ({"type": "example.com/Thing", "max": {"cpus": "1"}},),
            ),
        ),
        (
            "with amounts that contradict each other",
            (
                ({"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}},),
                ({"type": "Container", "defaultRequest": {"cpu": "3"}, "max": {"cpu": "2"}},),
                ({"type": "Container", "default": {"cpu": "1"}, "min": {"cpu": "2"}},),
                (
                    {
                        "type": "Container",
                        "default": {"example.com/gpu": "2"},
                        "defaultRequest": {"example.com/gpu": "1"},
                    },
                ),
            ),
        ),
        (
            "with a ratio that nothing can have",
            (
                ({"type": "Container", "maxLimitRequestRatio": {"cpu": "500m"}},),
                (
                    {
                        "type": "Container",
                        "min": {"cpu": "1"},
                        "max": {"cpu": "2"},
                        "maxLimitRequestRatio": {"cpu": "3"},
                    },
                ),
            ),
        ),
        (
            "of pods with defaults",
            (({"type": "Pod", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "1"}},),),
        ),
        (
            "of claims without storage",
            (({"type": "PersistentVolumeClaim"},), ({"type": "PersistentVolumeClaim", "max": {"cpu": "1"}},)),
        ),
    )
]

CASES = [*DEFAULTS, *BOUNDS, *PRIORITIES, *ACCOUNTS_OF_PODS, *OTHERS, *INVALID]
