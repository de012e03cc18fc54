"""Dry runs: each write verb and subresource with dryRun=All returns what the write would, and stores nothing."""

from __future__ import annotations

from typing import Any

from tests.behaviour.conformance.cases.requests import (
    CONFIGMAPS,
    CRDS,
    DEPLOYMENTS,
    LEASES,
    PODS,
    SECRETS,
    SERVICES,
    WIDGETS,
    apply,
    case,
    configmap,
    delete,
    deployment,
    get,
    json_patch,
    merge,
    pod,
    post,
    put,
    secret,
    service,
    strategic,
    widget,
)
from tests.behaviour.conformance.cases.tables import REQUEST, REQUESTS
from tests.behaviour.conformance.exchange import Call, Watch

DRY = "dryRun=All"
ONE = f"{CONFIGMAPS}/one"
START = post(CONFIGMAPS, configmap(data={"a": "1"}))
BUDGETS = "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets"
JOBS = "/apis/batch/v1/namespaces/{ns}/jobs"
REPLICASETS = "/apis/apps/v1/namespaces/{ns}/replicasets"
STATEFULSETS = "/apis/apps/v1/namespaces/{ns}/statefulsets"
NAMESPACES = "/api/v1/namespaces"
EVENTS = "/api/v1/namespaces/{ns}/events"
CLAIMS = "/api/v1/namespaces/{ns}/persistentvolumeclaims"
QUOTAS = "/api/v1/namespaces/{ns}/resourcequotas"

READY = merge(
    f"{PODS}/one/status",
    {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}},
)
RUNNING = merge(f"{PODS}/one/status", {"status": {"phase": "Running"}})


def options(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "DeleteOptions", **fields}


def eviction(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "one"}, **fields}


def binding(node: str = "node-1") -> dict[str, Any]:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "one"}, "target": target}


def labelled_pod(**spec: Any) -> dict[str, Any]:
    body = pod(**spec)
    body["metadata"]["labels"] = {"app": "one"}
    return body


def budget(allowed: int) -> list[Call]:
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "one"}}}
    status = {
        "observedGeneration": 1,
        "disruptionsAllowed": allowed,
        "currentHealthy": 1 + allowed,
        "desiredHealthy": 1,
        "expectedPods": 1 + allowed,
    }
    return [
        post(BUDGETS, {"metadata": {"name": "one"}, "spec": spec}),
        merge(f"{BUDGETS}/one/status", {"status": status}),
    ]


def job() -> dict[str, Any]:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "a"}]}}
    return {"metadata": {"name": "one"}, "spec": {"template": template}}


def ephemeral(image: str = "example.com/debug:1") -> dict[str, Any]:
    return {"spec": {"ephemeralContainers": [{"name": "debug", "image": image}]}}


def dry(name: str, *steps: Call | Watch) -> Any:
    return case(f"a dry run: {name}", *steps)


CREATES = [
    dry("a create stores nothing", post(CONFIGMAPS, configmap(data={"a": "1"}), DRY), get(ONE)),
    dry("a create of a name in use is 409", START, post(CONFIGMAPS, configmap(), DRY), get(ONE)),
    dry(
        "a create with a generated name shows a name",
        post(CONFIGMAPS, {"metadata": {"generateName": "gen-"}}, DRY),
        get(CONFIGMAPS, "labelSelector=none"),
    ),
    dry("an invalid create is rejected", post(CONFIGMAPS, configmap(name="A"), DRY)),
    dry(
        "a create in a missing namespace is 404",
        post("/api/v1/namespaces/none-{ns}/configmaps", configmap(), DRY),
    ),
    dry(
        "a create of a namespace",
        post(NAMESPACES, {"metadata": {"name": "x-{ns}"}}, DRY),
        get(f"{NAMESPACES}/x-{{ns}}"),
    ),
    dry("a create of a pod", post(PODS, pod(), DRY), get(f"{PODS}/one")),
    dry("a create of a deployment", post(DEPLOYMENTS, deployment(), DRY), get(f"{DEPLOYMENTS}/one")),
    dry("a create of a job has a dry uid", post(JOBS, job(), DRY), get(f"{JOBS}/one")),
    dry("a create of a custom object", post(WIDGETS, widget(spec={"size": 1}), DRY), get(f"{WIDGETS}/one")),
    dry("an invalid create of a custom object is rejected", post(WIDGETS, widget(spec={"size": "x"}), DRY)),
    dry(
        "a create of an event",
        post(
            EVENTS,
            {
                "metadata": {"name": "one"},
                "involvedObject": {"kind": "Pod", "namespace": "{ns}", "name": "one"},
                "reason": "Tested",
                "message": "tested",
                "type": "Normal",
            },
            DRY,
        ),
        get(f"{EVENTS}/one"),
    ),
    dry(
        "a create of a claim",
        post(
            CLAIMS,
            {
                "metadata": {"name": "one"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            },
            DRY,
        ),
        get(f"{CLAIMS}/one"),
    ),
    dry("a create with dryRun twice", post(CONFIGMAPS, configmap(), f"{DRY}&{DRY}"), get(ONE)),
    dry(
        "a create with an unknown directive is rejected",
        post(CONFIGMAPS, configmap(), "dryRun=Some"),
        get(ONE),
    ),
    dry("a create with an empty directive is rejected", post(CONFIGMAPS, configmap(), "dryRun="), get(ONE)),
    dry(
        "a create with strict validation rejects unknown fields",
        post(CONFIGMAPS, {**configmap(), "extra": 1}, f"{DRY}&fieldValidation=Strict"),
    ),
    dry("a create warns about unknown fields", post(CONFIGMAPS, {**configmap(), "extra": 1}, DRY), get(ONE)),
    dry(
        "a created definition is not served",
        post(
            CRDS,
            {
                "metadata": {"name": "dries.x{ns}.example.com"},
                "spec": {
                    "group": "x{ns}.example.com",
                    "scope": "Namespaced",
                    "names": {"plural": "dries", "kind": "Dry"},
                    "versions": [
                        {
                            "name": "v1",
                            "served": True,
                            "storage": True,
                            "schema": {"openAPIV3Schema": {"type": "object"}},
                        }
                    ],
                },
            },
            DRY,
        ),
        get("/apis/x{ns}.example.com/v1"),
        get(f"{CRDS}/dries.x{{ns}}.example.com"),
    ),
]

ADDRESSES = [
    dry(
        "a Service without an address shows none taken",
        post(SERVICES, service(), DRY),
        get(f"{SERVICES}/one"),
    ),
    dry(
        "a node port is free afterwards",
        post(SERVICES, service(type="NodePort", ports=[{"port": 80, "nodePort": 30877}]), DRY),
        post(SERVICES, service("two", type="NodePort", ports=[{"port": 80, "nodePort": 30877}])),
    ),
    dry(
        "a node port in use is rejected",
        post(SERVICES, service("two", type="NodePort", ports=[{"port": 80, "nodePort": 30878}])),
        post(SERVICES, service(type="NodePort", ports=[{"port": 80, "nodePort": 30878}]), DRY),
    ),
    dry(
        "a Service that becomes a NodePort keeps its ports free",
        post(SERVICES, service()),
        merge(f"{SERVICES}/one", {"spec": {"type": "NodePort"}}, DRY),
        get(f"{SERVICES}/one"),
    ),
    dry(
        "a Service that gives up its node port keeps it",
        post(SERVICES, service(type="NodePort", ports=[{"port": 80, "nodePort": 30879}])),
        merge(f"{SERVICES}/one", {"spec": {"type": "ClusterIP"}}, DRY),
        post(SERVICES, service("two", type="NodePort", ports=[{"port": 80, "nodePort": 30879}])),
    ),
]

UPDATES = [
    dry("a replace", START, put(ONE, configmap(data={"a": "2"}), DRY), get(ONE)),
    dry("a replace of nothing is 404", put(f"{PODS}/one", pod(), DRY)),
    dry(
        "a replace with an old revision is 409",
        START,
        put(ONE, configmap(resourceVersion="1"), DRY),
        get(ONE),
    ),
    dry(
        "a replace that creates a lease",
        put(f"{LEASES}/one", {"metadata": {"name": "one"}, "spec": {}}, DRY),
        get(f"{LEASES}/one"),
    ),
    dry(
        "a JSON patch",
        START,
        json_patch(ONE, {"op": "add", "path": "/data/b", "value": "2"}, query=DRY),
        get(ONE),
    ),
    dry(
        "a failed JSON patch test",
        START,
        json_patch(ONE, {"op": "test", "path": "/data/a", "value": "2"}, query=DRY),
        get(ONE),
    ),
    dry("a merge patch", START, merge(ONE, {"data": {"a": None, "b": "2"}}, DRY), get(ONE)),
    dry("a strategic merge patch", START, strategic(ONE, {"data": {"b": "2"}}, DRY), get(ONE)),
    dry(
        "a patch of an immutable field is rejected",
        post(SECRETS, secret(immutable=True)),
        merge(f"{SECRETS}/one", {"data": {"a": "MQ=="}}, DRY),
        get(f"{SECRETS}/one"),
    ),
    dry(
        "a patch of a custom object",
        post(WIDGETS, widget(spec={"size": 1})),
        merge(f"{WIDGETS}/one", {"spec": {"size": 2}}, DRY),
        get(f"{WIDGETS}/one"),
    ),
    dry("an apply that creates", apply(ONE, configmap(data={"a": "1"}), query=DRY), get(ONE)),
    dry(
        "an apply that updates",
        apply(ONE, configmap(data={"a": "1"})),
        apply(ONE, configmap(data={"a": "2"}), query=DRY),
        get(ONE),
    ),
    dry(
        "an apply with a conflict",
        apply(ONE, configmap(data={"a": "1"})),
        apply(ONE, configmap(data={"a": "2"}), "beta", query=DRY),
        get(ONE),
    ),
    dry(
        "a forced apply",
        apply(ONE, configmap(data={"a": "1"})),
        apply(ONE, configmap(data={"a": "2"}), "beta", True, query=DRY),
        get(ONE),
    ),
    dry(
        "an apply to a custom object",
        apply(f"{WIDGETS}/one", widget(spec={"size": 1})),
        apply(f"{WIDGETS}/one", widget(spec={"size": 2}), query=DRY),
        get(f"{WIDGETS}/one"),
    ),
    dry(
        "a patch raises the generation of its reply alone",
        post(DEPLOYMENTS, deployment()),
        merge(f"{DEPLOYMENTS}/one", {"spec": {"replicas": 3}}, DRY),
        get(f"{DEPLOYMENTS}/one"),
    ),
    dry(
        "the removal of the last finalizer keeps the object",
        post(CONFIGMAPS, configmap(finalizers=["example.com/hold"])),
        delete(ONE),
        merge(ONE, {"metadata": {"finalizers": None}}, DRY),
        get(ONE),
    ),
]

DELETES = [
    dry(
        "a delete of a custom object",
        post(WIDGETS, widget(spec={"size": 1})),
        delete(f"{WIDGETS}/one", query=DRY),
        get(f"{WIDGETS}/one"),
    ),
    dry("a delete of nothing is 404", delete(ONE, query=DRY)),
    dry(
        "a delete of a held object",
        post(CONFIGMAPS, configmap(finalizers=["example.com/hold"])),
        delete(ONE, query=DRY),
        get(ONE),
    ),
    dry(
        "a delete with another uid is 409",
        START,
        delete(ONE, options(dryRun=["All"], preconditions={"uid": "x"})),
        get(ONE),
    ),
    dry(
        "a graceful delete of a pod",
        post(PODS, pod(nodeName="node-1")),
        RUNNING,
        delete(f"{PODS}/one", query=DRY),
        get(f"{PODS}/one"),
    ),
    dry(
        "a forced delete of a pod",
        post(PODS, pod(nodeName="node-1")),
        delete(f"{PODS}/one", query=f"{DRY}&gracePeriodSeconds=0"),
        get(f"{PODS}/one"),
    ),
    dry(
        "a foreground delete",
        post(DEPLOYMENTS, deployment()),
        delete(f"{DEPLOYMENTS}/one", options(dryRun=["All"], propagationPolicy="Foreground")),
        get(f"{DEPLOYMENTS}/one"),
    ),
    dry(
        "an orphaning delete",
        post(DEPLOYMENTS, deployment()),
        delete(f"{DEPLOYMENTS}/one", options(dryRun=["All"], propagationPolicy="Orphan")),
        get(f"{DEPLOYMENTS}/one"),
    ),
    dry(
        "a delete of a namespace",
        delete(f"{NAMESPACES}/{{ns}}", query=DRY),
        get(f"{NAMESPACES}/{{ns}}"),
        START,
    ),
    dry("a delete of an immortal namespace is rejected", delete(f"{NAMESPACES}/default", query=DRY)),
    dry(
        "a delete of a collection",
        START,
        post(CONFIGMAPS, configmap("two")),
        delete(CONFIGMAPS, query=DRY),
        get(CONFIGMAPS),
    ),
    dry(
        "a delete of a selected collection",
        post(CONFIGMAPS, configmap(labels={"a": "b"})),
        delete(CONFIGMAPS, options(dryRun=["All"]), query="labelSelector=a%3Db"),
        get(ONE),
    ),
    dry(
        "a delete of a collection of custom objects",
        post(WIDGETS, widget(spec={"size": 1})),
        delete(WIDGETS, query=DRY),
        get(f"{WIDGETS}/one"),
    ),
    dry("a delete of a collection of pods", post(PODS, pod()), delete(PODS, query=DRY), get(f"{PODS}/one")),
    dry("a delete with an unknown directive", START, delete(ONE, query="dryRun=Some"), get(ONE)),
    dry(
        "a delete with an unknown directive in its body",
        START,
        delete(ONE, options(dryRun=["Some"])),
        get(ONE),
    ),
]

EVICTIONS = [
    case(
        "an eviction marks and deletes a pod",
        post(PODS, pod(nodeName="node-1")),
        RUNNING,
        post(f"{PODS}/one/eviction", eviction()),
        get(f"{PODS}/one"),
    ),
    case(
        "an eviction with its own uid is accepted",
        post(PODS, pod(nodeName="node-1")),
        post(f"{PODS}/one/eviction", eviction(deleteOptions={"preconditions": {"uid": "{uid}"}})),
        get(f"{PODS}/one"),
    ),
    case(
        "an eviction with its own revision is accepted",
        post(PODS, pod(nodeName="node-1")),
        post(f"{PODS}/one/eviction", eviction(deleteOptions={"preconditions": {"resourceVersion": "{rv}"}})),
        get(f"{PODS}/one"),
    ),
    case(
        "an eviction with another revision is 409",
        post(PODS, pod(nodeName="node-1")),
        RUNNING,
        post(f"{PODS}/one/eviction", eviction(deleteOptions={"preconditions": {"resourceVersion": "1"}})),
        get(f"{PODS}/one"),
    ),
    case(
        "an eviction takes the last disruption of a budget",
        *budget(1),
        post(PODS, labelled_pod(nodeName="node-1")),
        READY,
        post(f"{PODS}/one/eviction", eviction()),
        get(f"{BUDGETS}/one"),
    ),
    case(
        "an eviction takes one of several disruptions",
        *budget(2),
        post(PODS, labelled_pod(nodeName="node-1")),
        READY,
        post(f"{PODS}/one/eviction", eviction()),
        get(f"{BUDGETS}/one"),
    ),
    case(
        "an eviction of an unready pod takes nothing from a healthy budget",
        *budget(0),
        post(PODS, labelled_pod(nodeName="node-1")),
        RUNNING,
        post(f"{PODS}/one/eviction", eviction()),
        get(f"{BUDGETS}/one"),
        get(f"{PODS}/one"),
    ),
    case(
        "an eviction before the budget was observed is 429",
        budget(0)[0],
        post(PODS, labelled_pod(nodeName="node-1")),
        READY,
        post(f"{PODS}/one/eviction", eviction()),
        get(f"{PODS}/one"),
    ),
    case(
        "an eviction with two budgets is refused",
        *budget(1),
        post(
            BUDGETS,
            {
                "metadata": {"name": "two"},
                "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "one"}}},
            },
        ),
        post(PODS, labelled_pod(nodeName="node-1")),
        READY,
        post(f"{PODS}/one/eviction", eviction()),
        get(f"{PODS}/one"),
    ),
]

SUBRESOURCES = [
    dry(
        "a replace of a status",
        post(DEPLOYMENTS, deployment()),
        put(f"{DEPLOYMENTS}/one/status", {**deployment(), "status": {"replicas": 4}}, DRY),
        get(f"{DEPLOYMENTS}/one"),
    ),
    dry(
        "a patch of a pod's status",
        post(PODS, pod()),
        merge(f"{PODS}/one/status", {"status": {"phase": "Running"}}, DRY),
        get(f"{PODS}/one"),
    ),
    dry(
        "an apply to a status",
        post(PODS, pod()),
        apply(
            f"{PODS}/one/status",
            {"apiVersion": "v1", "kind": "Pod", "status": {"phase": "Running"}},
            query=DRY,
        ),
        get(f"{PODS}/one"),
    ),
    dry(
        "a patch of a custom object's status",
        post(WIDGETS, widget(spec={"size": 1})),
        merge(f"{WIDGETS}/one/status", {"status": {"ready": True}}, DRY),
        get(f"{WIDGETS}/one"),
    ),
    dry(
        "a replace of a scale",
        post(DEPLOYMENTS, deployment()),
        put(
            f"{DEPLOYMENTS}/one/scale",
            {"metadata": {"name": "one", "namespace": "{ns}"}, "spec": {"replicas": 5}},
            DRY,
        ),
        get(f"{DEPLOYMENTS}/one"),
    ),
    dry(
        "a patch of a scale",
        post(DEPLOYMENTS, deployment()),
        merge(f"{DEPLOYMENTS}/one/scale", {"spec": {"replicas": 5}}, DRY),
        get(f"{DEPLOYMENTS}/one/scale"),
    ),
    dry(
        "a patch of a replica set's scale",
        post(REPLICASETS, deployment()),
        merge(f"{REPLICASETS}/one/scale", {"spec": {"replicas": 5}}, DRY),
        get(f"{REPLICASETS}/one/scale"),
    ),
    dry(
        "a patch of a stateful set's scale",
        post(STATEFULSETS, deployment(serviceName="x")),
        merge(f"{STATEFULSETS}/one/scale", {"spec": {"replicas": 5}}, DRY),
        get(f"{STATEFULSETS}/one/scale"),
    ),
    dry("a binding", post(PODS, pod()), post(f"{PODS}/one/binding", binding(), DRY), get(f"{PODS}/one")),
    dry(
        "a binding of a bound pod is 409",
        post(PODS, pod(nodeName="node-1")),
        post(f"{PODS}/one/binding", binding(), DRY),
    ),
    dry("a binding of no pod is 404", post(f"{PODS}/one/binding", binding(), DRY)),
    dry("an eviction", post(PODS, pod()), post(f"{PODS}/one/eviction", eviction(), DRY), get(f"{PODS}/one")),
    dry(
        "an eviction with options in its body",
        post(PODS, pod()),
        post(f"{PODS}/one/eviction", eviction(deleteOptions={"dryRun": ["All"]})),
        get(f"{PODS}/one"),
    ),
    dry("an eviction of nothing is 404", post(f"{PODS}/one/eviction", eviction(), DRY)),
    dry(
        "an eviction of another name is rejected",
        post(PODS, pod()),
        post(f"{PODS}/one/eviction", {**eviction(), "metadata": {"name": "two"}}, DRY),
    ),
    dry(
        "an eviction takes nothing from the budget",
        *budget(1),
        post(PODS, labelled_pod(nodeName="node-1")),
        merge(
            f"{PODS}/one/status",
            {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}},
        ),
        post(f"{PODS}/one/eviction", eviction(), DRY),
        get(f"{BUDGETS}/one"),
        get(f"{PODS}/one"),
    ),
    dry(
        "an eviction in its body takes nothing from the budget",
        *budget(1),
        post(PODS, labelled_pod(nodeName="node-1")),
        merge(
            f"{PODS}/one/status",
            {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}},
        ),
        post(f"{PODS}/one/eviction", eviction(deleteOptions={"dryRun": ["All"]})),
        get(f"{BUDGETS}/one"),
        get(f"{PODS}/one"),
    ),
    dry(
        "an eviction that the budget forbids is 429",
        *budget(0),
        post(PODS, labelled_pod(nodeName="node-1")),
        merge(
            f"{PODS}/one/status",
            {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}},
        ),
        post(f"{PODS}/one/eviction", eviction(), DRY),
        get(f"{PODS}/one"),
    ),
    dry(
        "an eviction with an unknown directive",
        post(PODS, pod()),
        post(f"{PODS}/one/eviction", eviction(), "dryRun=Some"),
        get(f"{PODS}/one"),
    ),
    dry(
        "an eviction with an unknown directive in its body",
        post(PODS, pod()),
        post(f"{PODS}/one/eviction", eviction(deleteOptions={"dryRun": ["Some"]})),
        get(f"{PODS}/one"),
    ),
    dry(
        "an eviction of a pod with a uid that differs",
        post(PODS, pod()),
        post(f"{PODS}/one/eviction", eviction(deleteOptions={"preconditions": {"uid": "x"}}), DRY),
        get(f"{PODS}/one"),
    ),
    dry(
        "an ephemeral container by replace",
        post(PODS, pod()),
        put(
            f"{PODS}/one/ephemeralcontainers",
            {**pod(), "spec": {**pod()["spec"], **ephemeral()["spec"]}},
            DRY,
        ),
        get(f"{PODS}/one"),
    ),
    dry(
        "an ephemeral container by patch",
        post(PODS, pod()),
        strategic(f"{PODS}/one/ephemeralcontainers", ephemeral(), DRY),
        get(f"{PODS}/one"),
    ),
    dry(
        "a resize",
        post(PODS, pod(containers=[{"name": "main", "image": "a", "resources": {"requests": {"cpu": "1"}}}])),
        strategic(
            f"{PODS}/one/resize",
            {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]}},
            DRY,
        ),
        get(f"{PODS}/one"),
    ),
    dry(
        "a finalize of a namespace",
        put(f"{NAMESPACES}/{{ns}}/finalize", {"metadata": {"name": "{ns}"}, "spec": {"finalizers": []}}, DRY),
        get(f"{NAMESPACES}/{{ns}}"),
    ),
    dry(
        "a status of a namespace",
        merge(
            f"{NAMESPACES}/{{ns}}/status",
            {"status": {"conditions": [{"type": "Tested", "status": "True"}]}},
            DRY,
        ),
        get(f"{NAMESPACES}/{{ns}}"),
    ),
    dry(
        "a status of a budget",
        *budget(1),
        merge(f"{BUDGETS}/one/status", {"status": {"disruptionsAllowed": 3}}, DRY),
        get(f"{BUDGETS}/one"),
    ),
    dry(
        "a status of a quota",
        post(QUOTAS, {"metadata": {"name": "one"}, "spec": {"hard": {"pods": "2"}}}),
        merge(f"{QUOTAS}/one/status", {"status": {"hard": {"pods": "2"}, "used": {"pods": "1"}}}, DRY),
        get(f"{QUOTAS}/one"),
    ),
    dry(
        "a quota counts nothing",
        post(QUOTAS, {"metadata": {"name": "one"}, "spec": {"hard": {"count/configmaps": "1"}}}),
        merge(
            f"{QUOTAS}/one/status",
            {"status": {"hard": {"count/configmaps": "1"}, "used": {"count/configmaps": "0"}}},
        ),
        post(CONFIGMAPS, configmap(), DRY),
        get(f"{QUOTAS}/one"),
    ),
]


def condition(type_: str, **fields: Any) -> dict[str, Any]:
    return {"type": type_, "status": "True", "reason": "Tested", "message": "tested", **fields}


def of_request(name: str, *steps: Call) -> Any:
    """Return a case with a certificate signing request, which is read and removed at the end."""
    body = {"metadata": {"name": "dry-{ns}"}, "spec": REQUEST}
    return dry(name, post(REQUESTS, body), *steps, get(SIGNING), delete(SIGNING))


SIGNING = f"{REQUESTS}/dry-{{ns}}"
APPROVED = {"status": {"conditions": [condition("Approved")]}}
FAILED = {"status": {"conditions": [condition("Failed")]}}
CERTIFICATES = [
    dry(
        "a create of a certificate request",
        post(REQUESTS, {"metadata": {"name": "dry-{ns}"}, "spec": REQUEST}, DRY),
        get(SIGNING),
    ),
    of_request(
        "a replace of an approval",
        put(f"{SIGNING}/approval", {"metadata": {"name": "dry-{ns}"}, "spec": REQUEST, **APPROVED}, DRY),
    ),
    of_request("a patch of an approval", merge(f"{SIGNING}/approval", APPROVED, DRY)),
    of_request(
        "an apply to an approval",
        apply(
            f"{SIGNING}/approval",
            {
                "apiVersion": "certificates.k8s.io/v1",
                "kind": "CertificateSigningRequest",
                "metadata": {"name": "dry-{ns}"},
                **APPROVED,
            },
            query=DRY,
        ),
    ),
    of_request(
        "an approval of a denied request is rejected",
        merge(f"{SIGNING}/approval", {"status": {"conditions": [condition("Denied")]}}),
        merge(
            f"{SIGNING}/approval",
            {"status": {"conditions": [condition("Denied"), condition("Approved")]}},
            DRY,
        ),
    ),
    of_request("an approval changes nothing but conditions", merge(f"{SIGNING}/approval", FAILED, DRY)),
    dry("an approval of no request is 404", merge(f"{REQUESTS}/none-{{ns}}/approval", APPROVED, DRY)),
    of_request("a status of a certificate request", merge(f"{SIGNING}/status", FAILED, DRY)),
    of_request(
        "a replace of a certificate request's status",
        put(f"{SIGNING}/status", {"metadata": {"name": "dry-{ns}"}, "spec": REQUEST, **FAILED}, DRY),
    ),
    of_request("a status that approves is rejected", merge(f"{SIGNING}/status", APPROVED, DRY)),
    of_request(
        "a certificate that is none is rejected",
        merge(f"{SIGNING}/status", {"status": {"certificate": "YQ=="}}, DRY),
    ),
]

ROBOT = "/api/v1/namespaces/{ns}/serviceaccounts/default/token"
TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS = "/apis/authorization.k8s.io/v1"
LISTING = {"resourceAttributes": {"verb": "list", "resource": "pods", "namespace": "{ns}"}}
REVIEWS = [
    dry(
        "a token is valid",
        post(ROBOT, {"spec": {"expirationSeconds": 900}}, DRY),
        post(TOKENS, {"spec": {"token": "{token}"}}),
    ),
    dry("a token for too short a time is rejected", post(ROBOT, {"spec": {"expirationSeconds": 1}}, DRY)),
    dry("a token with an unknown directive", post(ROBOT, {}, "dryRun=Some")),
    dry(
        "a token of a missing account is 404",
        post("/api/v1/namespaces/{ns}/serviceaccounts/none/token", {}, DRY),
    ),
    dry(
        "a review of a token",
        post(ROBOT, {}),
        post(TOKENS, {"spec": {"token": "{token}"}}, DRY),
        post(TOKENS, {"spec": {"token": "none"}}, DRY),
    ),
    dry(
        "a review of access",
        post(f"{ACCESS}/subjectaccessreviews", {"spec": {**LISTING, "user": "jane"}}, DRY),
    ),
    dry("a review of one's own access", post(f"{ACCESS}/selfsubjectaccessreviews", {"spec": LISTING}, DRY)),
    dry(
        "a review of access in a namespace",
        post(
            f"{ACCESS}/namespaces/{{ns}}/localsubjectaccessreviews",
            {"metadata": {"namespace": "{ns}"}, "spec": {**LISTING, "user": "jane"}},
            DRY,
        ),
    ),
    dry(
        "a review of one's own rules",
        post(f"{ACCESS}/selfsubjectrulesreviews", {"spec": {"namespace": "{ns}"}}, DRY),
    ),
    dry("a review of oneself", post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, DRY)),
    dry(
        "a review with an unknown directive",
        post(f"{ACCESS}/selfsubjectaccessreviews", {"spec": LISTING}, "dryRun=Some"),
    ),
]

CASES = [*CREATES, *ADDRESSES, *UPDATES, *DELETES, *EVICTIONS, *SUBRESOURCES, *CERTIFICATES, *REVIEWS]
