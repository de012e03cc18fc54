"""ResourceQuota: what is counted, and what is rejected."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.behaviour.conformance.cases.requests import (
    CONFIGMAPS,
    DEPLOYMENTS,
    PODS,
    SECRETS,
    SERVICES,
    WIDGETS,
    case,
    configmap,
    deployment,
    get,
    merge,
    pod,
    post,
    put,
    secret,
    service,
    widget,
)
from tests.behaviour.conformance.exchange import Call

QUOTAS = "/api/v1/namespaces/{ns}/resourcequotas"
CLAIMS = "/api/v1/namespaces/{ns}/persistentvolumeclaims"
ONE = f"{QUOTAS}/one"
SETTLED = 0.3


def quota(hard: dict[str, str], used: dict[str, str] | None = None, **spec: Any) -> list[Call]:
    """Create a quota and set its status as its controller, which does not run, would."""
    counted = dict.fromkeys(hard, "0") if used is None else used
    return [
        post(QUOTAS, {"metadata": {"name": "one"}, "spec": {"hard": hard, **spec}}),
        merge(f"{ONE}/status", {"status": {"hard": hard, "used": counted}}),
    ]


def settled(call: Call) -> Call:
    return msgspec.structs.replace(call, delay=SETTLED)


def sized(name: str = "one", requests: Any = None, limits: Any = None, **spec: Any) -> dict[str, Any]:
    resources: dict[str, Any] = {}
    if requests:
        resources["requests"] = requests
    if limits:
        resources["limits"] = limits
    containers = [{"name": "main", "image": "example.com/app:1", "resources": resources}]
    return pod(name, containers=containers, **spec)


def claim(name: str = "one", storage: str = "1Gi", **spec: Any) -> dict[str, Any]:
    resources = {"requests": {"storage": storage}}
    return {
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": resources, **spec},
    }


COUNTS = [
    case(
        "a quota counts a create",
        *quota({"count/configmaps": "2"}),
        settled(post(CONFIGMAPS, configmap())),
        get(ONE),
    ),
    case(
        "a quota by its old name counts a create",
        *quota({"configmaps": "2"}),
        settled(post(CONFIGMAPS, configmap())),
        get(ONE),
    ),
    case(
        "a quota rejects a create above it",
        *quota({"count/configmaps": "1"}, {"count/configmaps": "1"}),
        settled(post(CONFIGMAPS, configmap())),
        get(f"{CONFIGMAPS}/one"),
    ),
    case(
        "a quota of zero rejects each create",
        *quota({"secrets": "0"}),
        settled(post(SECRETS, secret())),
    ),
    case(
        "a quota rejects a create with a generated name",
        *quota({"count/configmaps": "0"}),
        settled(post(CONFIGMAPS, {"metadata": {"generateName": "gen-"}})),
    ),
    case(
        "a quota counts objects of other groups",
        *quota({"count/deployments.apps": "1"}),
        settled(post(DEPLOYMENTS, deployment())),
        settled(post(DEPLOYMENTS, deployment("two"))),
        get(ONE),
    ),
    case(
        "a quota counts custom objects",
        *quota({"count/widgets.conformance.kapsa.dev": "1"}),
        settled(post(WIDGETS, widget(spec={"size": 1}))),
        settled(post(WIDGETS, widget("two", spec={"size": 1}))),
    ),
    case(
        "a quota without a status rejects nothing",
        post(QUOTAS, {"metadata": {"name": "one"}, "spec": {"hard": {"count/configmaps": "0"}}}),
        settled(post(CONFIGMAPS, configmap())),
    ),
    case(
        "a quota without its usage rejects what it counts",
        *quota({"count/configmaps": "3"}, {}),
        settled(post(CONFIGMAPS, configmap())),
    ),
    case(
        "a quota does not count other objects",
        *quota({"count/configmaps": "0"}),
        settled(post(SECRETS, secret())),
        get(ONE),
    ),
    case(
        "a quota does not count an update",
        *quota({"count/configmaps": "1"}),
        settled(post(CONFIGMAPS, configmap())),
        settled(put(f"{CONFIGMAPS}/one", configmap(data={"a": "1"}))),
        get(ONE),
    ),
    case(
        "a quota counts what a failed create would have used",
        *quota({"count/configmaps": "5"}),
        settled(post(CONFIGMAPS, configmap())),
        settled(post(CONFIGMAPS, configmap())),
        get(ONE),
    ),
    case(
        "two quotas count one object",
        *quota({"count/configmaps": "5"}),
        post(QUOTAS, {"metadata": {"name": "two"}, "spec": {"hard": {"configmaps": "0"}}}),
        merge(f"{QUOTAS}/two/status", {"status": {"hard": {"configmaps": "0"}, "used": {"configmaps": "0"}}}),
        settled(post(CONFIGMAPS, configmap())),
        get(ONE),
    ),
    case(
        "a dry run is checked by a quota and not counted",
        *quota({"count/configmaps": "1"}, {"count/configmaps": "1"}),
        settled(post(CONFIGMAPS, configmap(), "dryRun=All")),
    ),
]

PODS_AND_AMOUNTS = [
    case(
        "a quota counts pods", *quota({"pods": "1", "count/pods": "1"}), settled(post(PODS, pod())), get(ONE)
    ),
    case("a quota rejects a pod", *quota({"pods": "0"}), settled(post(PODS, pod()))),
    case(
        "a quota counts requests and limits",
        *quota({"requests.cpu": "1", "limits.cpu": "2", "requests.memory": "1Gi", "limits.memory": "1Gi"}),
        settled(
            post(
                PODS,
                sized(requests={"cpu": "100m", "memory": "64Mi"}, limits={"cpu": "1", "memory": "128Mi"}),
            )
        ),
        get(ONE),
    ),
    case(
        "a quota adds amounts of different units",
        *quota({"cpu": "2", "memory": "2Gi"}, {"cpu": "500m", "memory": "512Mi"}),
        settled(post(PODS, sized(requests={"cpu": "0.75", "memory": "1Gi"}))),
        get(ONE),
    ),
    case(
        "a quota rejects a request above it",
        *quota(
            {"requests.cpu": "1", "requests.memory": "1Gi"}, {"requests.cpu": "600m", "requests.memory": "0"}
        ),
        settled(post(PODS, sized(requests={"cpu": "500m", "memory": "64Mi"}))),
    ),
    case(
        "a quota names each amount that is exceeded",
        *quota({"requests.cpu": "1", "requests.memory": "1Gi"}),
        settled(post(PODS, sized(requests={"cpu": "2", "memory": "2Gi"}))),
    ),
    case(
        "a quota of requests requires them",
        *quota({"requests.cpu": "1", "limits.memory": "1Gi"}),
        settled(post(PODS, pod())),
    ),
    case(
        "a quota of requests requires them of each container",
        *quota({"requests.cpu": "1"}),
        settled(post(PODS, pod(containers=[{"name": "b", "image": "b"}, {"name": "a", "image": "a"}]))),
    ),
    case(
        "a quota counts the largest init container",
        *quota({"requests.cpu": "4"}),
        settled(
            post(
                PODS,
                pod(
                    initContainers=[
                        {"name": "first", "image": "a", "resources": {"requests": {"cpu": "3"}}},
                        {"name": "second", "image": "a", "resources": {"requests": {"cpu": "1"}}},
                    ],
                    containers=[{"name": "main", "image": "a", "resources": {"requests": {"cpu": "2"}}}],
                ),
            )
        ),
        get(ONE),
    ),
    case(
        "a quota counts ephemeral storage without requiring it",
        *quota({"requests.ephemeral-storage": "1Gi"}),
        settled(post(PODS, pod())),
        settled(post(PODS, sized("two", requests={"ephemeral-storage": "2Gi"}))),
    ),
    case(
        "a quota counts extended resources",
        *quota({"requests.example.com/gpu": "1"}),
        settled(post(PODS, sized(limits={"example.com/gpu": "2"}))),
    ),
    case(
        "a quota of best effort pods counts them alone",
        *quota({"pods": "0"}, scopes=["BestEffort"]),
        settled(post(PODS, sized(requests={"cpu": "1"}))),
        settled(post(PODS, pod("two"))),
    ),
    case(
        "a quota of pods with a deadline counts them alone",
        *quota({"pods": "0"}, scopes=["Terminating"]),
        settled(post(PODS, pod())),
        settled(post(PODS, pod("two", activeDeadlineSeconds=5))),
    ),
    case(
        "a quota of a priority class counts its pods alone",
        *quota(
            {"pods": "0"},
            scopeSelector={
                "matchExpressions": [
                    {"scopeName": "PriorityClass", "operator": "In", "values": ["system-node-critical"]}
                ]
            },
        ),
        settled(post(PODS, pod())),
        settled(post(PODS, pod("two", priorityClassName="system-node-critical"))),
    ),
]

SERVICES_AND_CLAIMS = [
    case(
        "a quota counts services and their node ports",
        *quota({"services": "3", "services.nodeports": "3", "services.loadbalancers": "1"}),
        settled(
            post(
                SERVICES,
                service(type="LoadBalancer", ports=[{"name": "a", "port": 1}, {"name": "b", "port": 2}]),
            )
        ),
        get(ONE),
    ),
    case(
        "a quota rejects a load balancer",
        *quota({"services.loadbalancers": "0"}),
        settled(post(SERVICES, service(type="LoadBalancer"))),
    ),
    case(
        "a quota rejects a service that becomes a node port",
        *quota({"services.nodeports": "0"}),
        settled(post(SERVICES, service())),
        settled(merge(f"{SERVICES}/one", {"spec": {"type": "NodePort"}})),
    ),
    case(
        "a quota counts claims and their storage",
        *quota({"persistentvolumeclaims": "2", "requests.storage": "5Gi"}),
        settled(post(CLAIMS, claim())),
        get(ONE),
        settled(post(CLAIMS, claim("two", "5Gi"))),
    ),
    case(
        "a quota counts claims by class",
        *quota({"gold.storageclass.storage.k8s.io/requests.storage": "1Gi"}),
        settled(post(CLAIMS, claim(storage="2Gi"))),
        settled(post(CLAIMS, claim("two", "2Gi", storageClassName="gold"))),
    ),
]


def scoped(*scopes: str, **hard: str) -> Call:
    return post(
        QUOTAS, {"metadata": {"name": "one"}, "spec": {"hard": hard, "scopes": list(scopes)}}, "dryRun=All"
    )


def selected(*expressions: tuple[str, str, list[str] | None], resource: str = "pods") -> Call:
    matched = [
        {"scopeName": scope, "operator": operator, **({"values": values} if values else {})}
        for scope, operator, values in expressions
    ]
    spec = {"hard": {resource: "1"}, "scopeSelector": {"matchExpressions": matched}}
    return post(QUOTAS, {"metadata": {"name": "one"}, "spec": spec}, "dryRun=All")


SCOPES = [
    case("a quota with a scope that does not exist", scoped("BestEfforts", pods="1"), scoped("", pods="1")),
    case(
        "a quota with a scope that its resources cannot have",
        scoped("BestEffort", cpu="1"),
        scoped("Terminating", services="1", pods="1"),
        scoped("VolumeAttributesClass", pods="1"),
        scoped("VolumeAttributesClass", persistentvolumeclaims="1"),
    ),
    case(
        "a quota with opposite scopes",
        scoped("BestEffort", "NotBestEffort", pods="1"),
        scoped("Terminating", "NotTerminating", pods="1"),
        selected(("BestEffort", "Exists", None), ("NotBestEffort", "Exists", None)),
    ),
    case(
        "a scope selector that is not valid",
        selected(("BestEfforts", "Exists", None)),
        selected(("BestEffort", "In", ["a"])),
        selected(("PriorityClass", "In", None)),
        selected(("PriorityClass", "Exists", ["a"])),
        selected(("PriorityClass", "Equals", ["a"])),
        selected(("PriorityClass", "Exists", None), resource="services"),
    ),
]

CASES = [*COUNTS, *PODS_AND_AMOUNTS, *SERVICES_AND_CLAIMS, *SCOPES]
