"""Deletes: preconditions, finalizers, propagation, collections, namespaces."""

from __future__ import annotations

from typing import Any

from tests.behaviour.conformance.cases.requests import (
    CONFIGMAPS,
    PODS,
    SERVICES,
    WIDGETS,
    case,
    configmap,
    delete,
    get,
    merge,
    pod,
    post,
    put,
    service,
    widget,
)

ONE = f"{CONFIGMAPS}/one"
START = post(CONFIGMAPS, configmap(data={"a": "1"}))
HELD = post(CONFIGMAPS, configmap(finalizers=["example.com/hold"]))


def options(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "DeleteOptions", **fields}


THREE = [post(CONFIGMAPS, configmap(name)) for name in ("one", "three", "two")]
REMAINING = get(CONFIGMAPS)
QUERIES = [
    "resourceVersion=1",
    "resourceVersion=0",
    "resourceVersion=",
    "resourceVersion={rv}",
    "resourceVersion=x",
    "uid=x",
    "uid=",
    "uid={uid}",
    "uid={uid}&resourceVersion=1",
]
IN_QUERY = [
    case(f"{what} with {query} {sent}", START, delete(path, body, query), get(ONE))
    for query in QUERIES
    for what, path in (("a delete", ONE), ("a delete of a collection", CONFIGMAPS))
    for sent, body in (("and no body", None), ("and options", {}))
]
PAGES = [
    *(
        case(f"a delete of a collection with {query}", *THREE, delete(CONFIGMAPS, None, query), REMAINING)
        for query in (
            "limit=1",
            "limit=2",
            "limit=1&dryRun=All",
            "limit=1&continue=x",
            "resourceVersion=99999999999",
            "limit=2&resourceVersion=1",
            "resourceVersion=1&resourceVersionMatch=Exact",
        )
    ),
    *(
        case(
            f"a delete of a collection with a token and {query}",
            *THREE,
            get(CONFIGMAPS, "limit=1"),
            delete(CONFIGMAPS, None, f"continue={{continue}}{query}"),
            REMAINING,
        )
        for query in ("", "&limit=1")
    ),
]

CASES = [
    *IN_QUERY,
    *PAGES,
    case("a delete answers with a Status", START, delete(ONE), get(ONE)),
    case("a delete of nothing is 404", delete(ONE)),
    case(
        "a delete of a custom object answers with a Status",
        post(WIDGETS, widget(spec={"size": 1})),
        delete(f"{WIDGETS}/one"),
        get(f"{WIDGETS}/one"),
    ),
    case("a dry-run delete deletes nothing", START, delete(ONE, query="dryRun=All"), get(ONE)),
    case(
        "a dry-run delete in the body deletes nothing", START, delete(ONE, options(dryRun=["All"])), get(ONE)
    ),
    case(
        "a delete with its own uid is accepted",
        START,
        delete(ONE, options(preconditions={"uid": "{uid}"})),
        get(ONE),
    ),
    case(
        "a delete with another uid is 409",
        START,
        delete(ONE, options(preconditions={"uid": "00000000-0000-0000-0000-000000000000"})),
        get(ONE),
    ),
    case(
        "a delete with its own revision is accepted",
        START,
        delete(ONE, options(preconditions={"resourceVersion": "{rv}"})),
    ),
    case(
        "a delete with another revision is 409",
        START,
        delete(ONE, options(preconditions={"resourceVersion": "1"})),
    ),
    case("a finalizer holds the object", HELD, delete(ONE), get(ONE)),
    case("a second delete of a held object is accepted", HELD, delete(ONE), delete(ONE)),
    case(
        "the last finalizer's removal deletes",
        HELD,
        delete(ONE),
        merge(ONE, {"metadata": {"finalizers": None}}),
        get(ONE),
    ),
    case(
        "the last finalizer's removal by replace deletes", HELD, delete(ONE), put(ONE, configmap()), get(ONE)
    ),
    case(
        "one of two finalizers goes and the object stays",
        post(CONFIGMAPS, configmap(finalizers=["x.io/a", "x.io/b"])),
        delete(ONE),
        merge(ONE, {"metadata": {"finalizers": ["x.io/b"]}}),
        get(ONE),
    ),
    case(
        "a finalizer cannot be added to a terminating object",
        HELD,
        delete(ONE),
        merge(ONE, {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}),
    ),
    case("a terminating object can still be changed", HELD, delete(ONE), merge(ONE, {"data": {"a": "2"}})),
    case(
        "deletionTimestamp cannot be removed",
        HELD,
        delete(ONE),
        merge(ONE, {"metadata": {"deletionTimestamp": None}}),
        get(ONE),
    ),
    case("a terminating name cannot be created again", HELD, delete(ONE), post(CONFIGMAPS, configmap())),
    case(
        "orphan leaves its finalizer while it works",
        post(CONFIGMAPS, configmap(finalizers=["x.io/a"])),
        delete(ONE, options(propagationPolicy="Orphan")),
        get(ONE),
    ),
    case(
        "foreground leaves its finalizer while it works",
        post(CONFIGMAPS, configmap(finalizers=["x.io/a"])),
        delete(ONE, options(propagationPolicy="Foreground")),
        get(ONE),
    ),
    case(
        "foreground by query leaves its finalizer",
        post(CONFIGMAPS, configmap(finalizers=["x.io/a"])),
        delete(ONE, query="propagationPolicy=Foreground"),
        get(ONE),
    ),
    case(
        "background removes an old foreground finalizer",
        post(CONFIGMAPS, configmap(finalizers=["x.io/a"])),
        delete(ONE, options(propagationPolicy="Foreground")),
        delete(ONE, options(propagationPolicy="Background")),
        get(ONE),
    ),
    case("an unknown propagation policy is rejected", START, delete(ONE, options(propagationPolicy="Maybe"))),
    case(
        "orphanDependents and propagationPolicy together are rejected",
        START,
        delete(ONE, options(propagationPolicy="Background", orphanDependents=True)),
    ),
    case("a negative grace period is accepted", START, delete(ONE, options(gracePeriodSeconds=-1))),
    case(
        "delete options of another kind are rejected",
        START,
        delete(ONE, {"apiVersion": "v1", "kind": "ConfigMap"}),
    ),
    case("delete options that are not JSON are rejected", START, delete(ONE, "{")),
    case(
        "delete options with an unknown field are accepted or rejected", START, delete(ONE, options(bogus=1))
    ),
    case("an unscheduled pod goes at once", post(PODS, pod()), delete(f"{PODS}/one"), get(f"{PODS}/one")),
    case(
        "a scheduled pod gets its grace",
        post(PODS, pod(nodeName="elsewhere")),
        delete(f"{PODS}/one"),
        get(f"{PODS}/one"),
    ),
    case(
        "a scheduled pod's grace can be given",
        post(PODS, pod(nodeName="elsewhere")),
        delete(f"{PODS}/one", query="gracePeriodSeconds=5"),
    ),
    case(
        "a scheduled pod's grace can be shortened",
        post(PODS, pod(nodeName="elsewhere")),
        delete(f"{PODS}/one", query="gracePeriodSeconds=50"),
        delete(f"{PODS}/one", query="gracePeriodSeconds=5"),
    ),
    case(
        "a scheduled pod's grace cannot be lengthened",
        post(PODS, pod(nodeName="elsewhere")),
        delete(f"{PODS}/one", query="gracePeriodSeconds=5"),
        delete(f"{PODS}/one", query="gracePeriodSeconds=50"),
    ),
    case(
        "a pod can be deleted at once",
        post(PODS, pod(nodeName="elsewhere")),
        delete(f"{PODS}/one", query="gracePeriodSeconds=0"),
        get(f"{PODS}/one"),
    ),
    case("a deleted service answers with the service", post(SERVICES, service()), delete(f"{SERVICES}/one")),
    case(
        "a collection is deleted",
        START,
        post(CONFIGMAPS, configmap("two")),
        delete(CONFIGMAPS),
        get(CONFIGMAPS),
    ),
    case(
        "a collection is deleted by label",
        post(CONFIGMAPS, configmap(labels={"k": "v"})),
        post(CONFIGMAPS, configmap("two")),
        delete(CONFIGMAPS, query="labelSelector=k=v"),
        get(CONFIGMAPS),
    ),
    case(
        "a collection is deleted by field",
        START,
        post(CONFIGMAPS, configmap("two")),
        delete(CONFIGMAPS, query="fieldSelector=metadata.name=two"),
        get(CONFIGMAPS),
    ),
    case(
        "a collection's dry run deletes nothing",
        START,
        delete(CONFIGMAPS, query="dryRun=All"),
        get(CONFIGMAPS),
    ),
    case("an empty collection is deleted", delete(CONFIGMAPS)),
    case(
        "a collection of custom objects is deleted",
        post(WIDGETS, widget(spec={"size": 1})),
        delete(WIDGETS),
        get(WIDGETS),
    ),
    case("a collection's held object stays", HELD, delete(CONFIGMAPS), get(ONE)),
    case("a collection of services is deleted", post(SERVICES, service()), delete(SERVICES)),
    case(
        "a namespace terminates",
        post("/api/v1/namespaces", {"metadata": {"name": "{ns}-t"}}),
        delete("/api/v1/namespaces/{ns}-t"),
        get("/api/v1/namespaces/{ns}-t"),
    ),
    case(
        "a terminating namespace rejects creates",
        post("/api/v1/namespaces", {"metadata": {"name": "{ns}-t"}}),
        delete("/api/v1/namespaces/{ns}-t"),
        post("/api/v1/namespaces/{ns}-t/configmaps", configmap()),
    ),
    case(
        "a namespace is finalized by its subresource",
        post("/api/v1/namespaces", {"metadata": {"name": "{ns}-t"}}),
        delete("/api/v1/namespaces/{ns}-t"),
        put(
            "/api/v1/namespaces/{ns}-t/finalize",
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": "{ns}-t"},
                "spec": {"finalizers": []},
            },
        ),
        get("/api/v1/namespaces/{ns}-t"),
    ),
    case(
        "an empty namespace's finalizers stay when not terminating",
        post("/api/v1/namespaces", {"metadata": {"name": "{ns}-t"}}),
        put(
            "/api/v1/namespaces/{ns}-t/finalize",
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": "{ns}-t"},
                "spec": {"finalizers": []},
            },
        ),
        delete("/api/v1/namespaces/{ns}-t"),
    ),
    case("deleting all namespaces at once is rejected", delete("/api/v1/namespaces")),
    case("the default namespace cannot be deleted", delete("/api/v1/namespaces/default")),
    case("kube-system cannot be deleted", delete("/api/v1/namespaces/kube-system")),
]
