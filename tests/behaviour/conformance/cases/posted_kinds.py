"""Bodies of kinds that are posted and never stored, and the parts of a namespace that only its subresources change."""

from __future__ import annotations

from typing import Any

from tests.behaviour.conformance.cases.requests import (
    DEPLOYMENTS,
    PODS,
    case,
    deployment,
    get,
    merge,
    pod,
    post,
    put,
)
from tests.behaviour.conformance.exchange import Case

REVIEWS = "/apis/authorization.k8s.io/v1"
ATTRIBUTES = {"verb": "get", "resource": "pods", "namespace": "{ns}"}
POSTED: dict[str, tuple[str, dict[str, Any]]] = {
    "an eviction": (f"{PODS}/one/eviction", {}),
    "a binding": (f"{PODS}/one/binding", {"target": {"name": "x"}}),
    "a binding at its own path": ("/api/v1/namespaces/{ns}/bindings", {"target": {"name": "x"}}),
}
ELSEWHERE = {"name": "one", "namespace": "elsewhere"}
STRICT = "fieldValidation=Strict"


def of_pod(what: str, path: str, body: dict[str, Any], query: str = "") -> Case:
    return case(
        what, post(PODS, pod()), post(path, {"metadata": {"name": "one"}, **body}, query), get(f"{PODS}/one")
    )


PODS_POSTED = [
    each
    for kind, (path, body) in POSTED.items()
    for each in (
        of_pod(f"{kind} for another namespace", path, {**body, "metadata": ELSEWHERE}),
        of_pod(f"{kind} with an unknown field, strictly", path, {**body, "foo": 1}, STRICT),
        of_pod(f"{kind} with an unknown field", path, {**body, "foo": 1}),
        of_pod(f"{kind} with a wrong dry run", path, {**body, "metadata": {}}, "dryRun=all"),
    )
]

REVIEW = {"spec": {"foo": 1, "resourceAttributes": ATTRIBUTES}}
REVIEWS_POSTED = [
    case(
        "a review with an unknown field, strictly",
        post(f"{REVIEWS}/selfsubjectaccessreviews", REVIEW, STRICT),
    ),
    case("a review with an unknown field", post(f"{REVIEWS}/selfsubjectaccessreviews", REVIEW)),
    case(
        "a local review for another namespace",
        post(
            f"{REVIEWS}/namespaces/{{ns}}/localsubjectaccessreviews",
            {"metadata": {"namespace": "elsewhere"}, "spec": {"user": "a", "resourceAttributes": ATTRIBUTES}},
        ),
    ),
]

TOKEN = "/api/v1/namespaces/{ns}/serviceaccounts/default/token"
SCALE = f"{DEPLOYMENTS}/one/scale"
WORKLOAD = post(DEPLOYMENTS, deployment())
UNKNOWN = {"spec": {"replicas": 2, "foo": 1}}
SCALES = [
    case("a token request with an unknown field, strictly", post(TOKEN, {"spec": {"foo": 1}}, STRICT)),
    case(
        "a scale with an unknown field, strictly",
        WORKLOAD,
        put(SCALE, {"metadata": {"name": "one"}, **UNKNOWN}, STRICT),
    ),
    case("a scale with an unknown field", WORKLOAD, put(SCALE, {"metadata": {"name": "one"}, **UNKNOWN})),
    case(
        "a scale of another namespace", WORKLOAD, put(SCALE, {"metadata": ELSEWHERE, "spec": {"replicas": 2}})
    ),
    case("a patch of a scale with an unknown field", WORKLOAD, merge(SCALE, UNKNOWN)),
]

NAMESPACE = "/api/v1/namespaces/{ns}"


def finalized(what: str, body: dict[str, Any]) -> Case:
    return case(f"a namespace is finalized {what}", put(f"{NAMESPACE}/finalize", body))


NAMESPACES = [
    finalized("without a name", {}),
    finalized("by another name", {"metadata": {"name": "elsewhere"}}),
    finalized("by another uid", {"metadata": {"name": "{ns}", "uid": "x"}}),
    finalized("with a broken finalizer", {"metadata": {"name": "{ns}"}, "spec": {"finalizers": ["x"]}}),
    finalized("with a finalizer", {"metadata": {"name": "{ns}"}, "spec": {"finalizers": ["a.b/c"]}}),
    case(
        "the status of a namespace has a wrong phase",
        merge(f"{NAMESPACE}/status", {"status": {"phase": "X"}}),
    ),
    case(
        "the status of a namespace says that it is ending",
        merge(f"{NAMESPACE}/status", {"status": {"phase": "Terminating"}}),
    ),
]

CASES = [*PODS_POSTED, *REVIEWS_POSTED, *SCALES, *NAMESPACES]
