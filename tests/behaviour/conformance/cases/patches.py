"""The four patch types."""

from __future__ import annotations

from typing import Any

from tests.behaviour.conformance.cases.requests import (
    APPLY_PATCH,
    CONFIGMAPS,
    DEPLOYMENTS,
    JSON_PATCH,
    MERGE_PATCH,
    SERVICES,
    WIDGETS,
    apply,
    case,
    configmap,
    deployment,
    get,
    json_patch,
    merge,
    patch,
    post,
    service,
    strategic,
    widget,
)
from tests.behaviour.conformance.exchange import Call, Case

ONE = f"{CONFIGMAPS}/one"
DEPLOYED = f"{DEPLOYMENTS}/one"
START = post(CONFIGMAPS, configmap(data={"a": "1", "b": "2"}, labels={"k": "v"}))
DEPLOY = post(
    DEPLOYMENTS,
    deployment(
        containers=[
            {"name": "a", "image": "a:1", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]},
            {"name": "b", "image": "b:1"},
        ]
    ),
)


def template(**spec: Any) -> dict[str, Any]:
    return {"spec": {"template": {"spec": spec}}}


def cm(name: str, *steps: Call) -> Case:
    return case(name, START, *steps)


def dep(name: str, *bodies: Any) -> Case:
    return case(name, DEPLOY, *(strategic(DEPLOYED, body) for body in bodies))


CASES = [
    # JSON patch
    cm("json patch replaces", json_patch(ONE, {"op": "replace", "path": "/data/a", "value": "9"})),
    cm("json patch adds", json_patch(ONE, {"op": "add", "path": "/data/c", "value": "3"})),
    cm("json patch removes", json_patch(ONE, {"op": "remove", "path": "/data/a"})),
    cm("json patch moves", json_patch(ONE, {"op": "move", "from": "/data/a", "path": "/data/z"})),
    cm("json patch copies", json_patch(ONE, {"op": "copy", "from": "/data/a", "path": "/data/z"})),
    cm(
        "json patch tests and goes on",
        json_patch(ONE, {"op": "test", "path": "/data/a", "value": "1"}, {"op": "remove", "path": "/data/a"}),
    ),
    cm(
        "json patch tests and stops",
        json_patch(ONE, {"op": "test", "path": "/data/a", "value": "2"}, {"op": "remove", "path": "/data/a"}),
    ),
    cm(
        "json patch adds a finalizer at the end",
        json_patch(
            ONE,
            {"op": "add", "path": "/metadata/finalizers", "value": ["x.io/a"]},
            {"op": "add", "path": "/metadata/finalizers/-", "value": "x.io/b"},
        ),
    ),
    cm(
        "json patch tests an index of a list",
        json_patch(ONE, {"op": "add", "path": "/metadata/finalizers", "value": ["x.io/a"]}),
        json_patch(
            ONE,
            {"op": "test", "path": "/metadata/finalizers/0", "value": "x.io/b"},
            {"op": "remove", "path": "/metadata/finalizers/0"},
        ),
    ),
    cm(
        "json patch escapes",
        json_patch(
            ONE,
            {"op": "add", "path": "/metadata/annotations", "value": {}},
            {"op": "add", "path": "/metadata/annotations/x.io~1y", "value": "1"},
        ),
    ),
    cm(
        "json patch that removes nothing is rejected", json_patch(ONE, {"op": "remove", "path": "/data/none"})
    ),
    cm(
        "json patch that replaces nothing is rejected",
        json_patch(ONE, {"op": "replace", "path": "/data/none", "value": "1"}),
    ),
    cm(
        "json patch below a missing parent is rejected",
        json_patch(ONE, {"op": "add", "path": "/none/a", "value": "1"}),
    ),
    cm("json patch with an unknown op is rejected", json_patch(ONE, {"op": "bogus", "path": "/data/a"})),
    cm("json patch that is an object is rejected", patch(ONE, {"op": "remove"}, JSON_PATCH)),
    cm("json patch that is not JSON is rejected", patch(ONE, "[{", JSON_PATCH)),
    cm(
        "json patch that changes nothing keeps the revision",
        json_patch(ONE, {"op": "replace", "path": "/data/a", "value": "1"}),
    ),
    cm(
        "json patch that renames is rejected",
        json_patch(ONE, {"op": "replace", "path": "/metadata/name", "value": "two"}),
    ),
    cm(
        "json patch with a wrong type is rejected",
        json_patch(ONE, {"op": "replace", "path": "/data/a", "value": 5}),
    ),
    cm("json patch of nothing is accepted", json_patch(ONE)),
    case("json patch of a missing object is 404", json_patch(ONE, {"op": "remove", "path": "/data"})),
    cm(
        "json patch with an old resourceVersion in test is rejected",
        json_patch(ONE, {"op": "test", "path": "/metadata/resourceVersion", "value": "1"}),
    ),
    cm(
        "json patch that sets an old resourceVersion is 409",
        json_patch(
            ONE,
            {"op": "replace", "path": "/metadata/resourceVersion", "value": "1"},
            {"op": "add", "path": "/data/q", "value": "1"},
        ),
    ),
    case(
        "json patch works on custom objects",
        post(WIDGETS, widget(spec={"size": 1, "list": ["a"]})),
        json_patch(f"{WIDGETS}/one", {"op": "add", "path": "/spec/list/0", "value": "z"}),
    ),
    case(
        "json patch beyond a list's end is rejected",
        post(WIDGETS, widget(spec={"size": 1, "list": ["a"]})),
        json_patch(f"{WIDGETS}/one", {"op": "add", "path": "/spec/list/5", "value": "z"}),
    ),
    # merge patch
    cm("merge patch sets", merge(ONE, {"data": {"a": "9"}})),
    cm("merge patch adds", merge(ONE, {"data": {"c": "3"}})),
    cm("merge patch removes by null", merge(ONE, {"data": {"a": None}})),
    cm("merge patch removes a whole map by null", merge(ONE, {"data": None})),
    cm("merge patch that is empty keeps the revision", merge(ONE, {})),
    cm("merge patch with the same values keeps the revision", merge(ONE, {"data": {"a": "1"}})),
    cm("merge patch with a wrong type is rejected", merge(ONE, {"data": "text"})),
    cm("merge patch that is a list is rejected", patch(ONE, [], MERGE_PATCH)),
    cm("merge patch that is not JSON is rejected", patch(ONE, "{", MERGE_PATCH)),
    cm(
        "merge patch with an old revision is 409",
        merge(ONE, {"metadata": {"resourceVersion": "1"}, "data": {"a": "7"}}),
    ),
    cm(
        "merge patch with the current revision is accepted",
        merge(ONE, {"metadata": {"resourceVersion": "{rv}"}, "data": {"a": "7"}}),
    ),
    cm("merge patch that renames is rejected", merge(ONE, {"metadata": {"name": "two"}})),
    cm(
        "merge patch with another uid is 409",
        merge(ONE, {"metadata": {"uid": "00000000-0000-0000-0000-000000000000"}}),
    ),
    cm(
        "merge patch cannot set creationTimestamp",
        merge(ONE, {"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z"}}),
    ),
    cm("merge patch cannot change kind", merge(ONE, {"kind": "Secret"})),
    case("merge patch of a missing object is 404", merge(ONE, {})),
    cm("merge patch with dry run changes nothing", merge(ONE, {"data": {"a": "9"}}, "dryRun=All"), get(ONE)),
    cm(
        "merge patch with an unknown field under Strict is rejected",
        merge(ONE, {"bogus": 1}, "fieldValidation=Strict"),
    ),
    cm(
        "merge patch with an unknown field under Warn warns", merge(ONE, {"bogus": 1}, "fieldValidation=Warn")
    ),
    case(
        "merge patch replaces lists whole",
        post(WIDGETS, widget(spec={"size": 1, "list": ["a", "b"]})),
        merge(f"{WIDGETS}/one", {"spec": {"list": ["c"]}}),
    ),
    case(
        "merge patch moves the generation of a custom object",
        post(WIDGETS, widget(spec={"size": 1})),
        merge(f"{WIDGETS}/one", {"spec": {"size": 2}}),
        merge(f"{WIDGETS}/one", {"metadata": {"labels": {"a": "b"}}}),
    ),
    case(
        "merge patch to a custom object ignores status",
        post(WIDGETS, widget(spec={"size": 1})),
        merge(f"{WIDGETS}/one", {"status": {"ready": True}}),
    ),
    case(
        "merge patch to status ignores spec",
        post(WIDGETS, widget(spec={"size": 1})),
        merge(f"{WIDGETS}/one/status", {"spec": {"size": 5}, "status": {"ready": True}}),
    ),
    case(
        "merge patch to status ignores labels",
        post(WIDGETS, widget(spec={"size": 1})),
        merge(f"{WIDGETS}/one/status", {"metadata": {"labels": {"a": "b"}}, "status": {"replicas": 3}}),
    ),
    case(
        "merge patch to scale moves the size",
        post(WIDGETS, widget(spec={"size": 1})),
        merge(f"{WIDGETS}/one/scale", {"spec": {"replicas": 4}}),
        get(f"{WIDGETS}/one"),
    ),
    # strategic merge patch
    dep("strategic patch merges containers by name", template(containers=[{"name": "a", "image": "a:2"}])),
    dep("strategic patch adds a container", template(containers=[{"name": "c", "image": "c:1"}])),
    dep("strategic patch deletes a container", template(containers=[{"name": "a", "$patch": "delete"}])),
    dep(
        "strategic patch replaces the list",
        template(containers=[{"name": "z", "image": "z:1"}, {"$patch": "replace"}]),
    ),
    dep(
        "strategic patch merges env inside a container",
        template(containers=[{"name": "a", "env": [{"name": "X", "value": "9"}]}]),
    ),
    dep(
        "strategic patch deletes env inside a container",
        template(containers=[{"name": "a", "env": [{"name": "X", "$patch": "delete"}]}]),
    ),
    dep(
        "strategic patch sets the order",
        template(
            **{
                "$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
                "containers": [{"name": "b", "image": "b:3"}],
            }
        ),
    ),
    dep(
        "strategic patch retains keys of the strategy",
        {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}},
    ),
    dep("strategic patch without the merge key is rejected", template(containers=[{"image": "x"}])),
    dep(
        "strategic patch with an unknown directive is rejected",
        template(containers=[{"name": "a", "$patch": "bogus"}]),
    ),
    dep(
        "strategic patch removes a map by null",
        {"metadata": {"annotations": None}, "spec": {"template": {"metadata": {"annotations": None}}}},
    ),
    dep("strategic patch replaces a map", {"metadata": {"labels": {"$patch": "replace", "only": "me"}}}),
    dep("strategic patch that changes nothing keeps the revision", {"spec": {"replicas": 1}}),
    cm(
        "strategic patch adds finalizers to a primitive list",
        strategic(ONE, {"metadata": {"finalizers": ["x.io/a"]}}),
        strategic(ONE, {"metadata": {"finalizers": ["x.io/b"]}}),
    ),
    cm(
        "strategic patch deletes from a primitive list",
        strategic(ONE, {"metadata": {"finalizers": ["x.io/a", "x.io/b"]}}),
        strategic(ONE, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x.io/a"]}}),
    ),
    cm("strategic patch merges maps", strategic(ONE, {"data": {"a": "9", "b": None}})),
    cm("strategic patch with a wrong type is rejected", strategic(ONE, {"data": 5})),
    case(
        "strategic patch of a custom object is 415",
        post(WIDGETS, widget(spec={"size": 1})),
        strategic(f"{WIDGETS}/one", {"spec": {"size": 2}}),
    ),
    case(
        "strategic patch merges a service's ports by port",
        post(SERVICES, service(ports=[{"name": "a", "port": 80}, {"name": "b", "port": 81}])),
        strategic(f"{SERVICES}/one", {"spec": {"ports": [{"port": 80, "targetPort": 8080}]}}),
    ),
    # content types
    cm("a patch without a known type is 415", patch(ONE, {}, "application/json")),
    cm("a patch of text is 415", patch(ONE, {}, "text/plain")),
    # server-side apply (its own table has the breadth)
    case("apply creates", apply(ONE, configmap(data={"a": "1"}))),
    case("apply needs a field manager", apply(ONE, configmap(), manager="")),
    case("apply needs kind and apiVersion", apply(ONE, {"metadata": {"name": "one"}})),
    case("apply needs a matching kind", apply(ONE, {**configmap(), "kind": "Secret"})),
    case("apply needs a matching name", apply(ONE, configmap("two"))),
    case(
        "apply rejects managedFields",
        apply(ONE, configmap(managedFields=[{"manager": "x", "operation": "Apply"}])),
    ),
    case(
        "apply twice the same keeps the revision",
        apply(ONE, configmap(data={"a": "1"})),
        apply(ONE, configmap(data={"a": "1"})),
    ),
    case(
        "apply conflicts",
        apply(ONE, configmap(data={"a": "1"})),
        apply(ONE, configmap(data={"a": "2"}), manager="beta"),
    ),
    case(
        "apply forces",
        apply(ONE, configmap(data={"a": "1"})),
        apply(ONE, configmap(data={"a": "2"}), manager="beta", force=True),
    ),
    case(
        "apply drops what it no longer applies",
        apply(ONE, configmap(data={"a": "1", "b": "2"})),
        apply(ONE, configmap(data={"a": "1"})),
    ),
    case(
        "apply of yaml is read",
        patch(
            ONE,
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: one\ndata:\n  a: '1'\n",
            APPLY_PATCH,
            "fieldManager=alpha",
        ),
    ),
    case("apply of broken yaml is rejected", patch(ONE, "a: [", APPLY_PATCH, "fieldManager=alpha")),
    case("apply with an unknown field is rejected", apply(ONE, {**configmap(), "bogus": 1})),
    case(
        "apply to status of a custom object",
        post(WIDGETS, widget(spec={"size": 1})),
        apply(f"{WIDGETS}/one/status", widget(status={"conditions": [{"type": "Ready", "status": "True"}]})),
    ),
    case("apply with dry run creates nothing", apply(ONE, configmap(), query="dryRun=All"), get(ONE)),
    case("apply of a custom object needs a valid one", apply(f"{WIDGETS}/one", widget(spec={"size": 99}))),
    case("force without apply is rejected", START, merge(ONE, {"data": {"a": "2"}}, "force=true")),
    case("apply status creates nothing", apply(f"{WIDGETS}/one/status", widget(status={"ready": True}))),
    case(
        "an apply to scale without a name",
        post(DEPLOYMENTS, deployment()),
        apply(
            f"{DEPLOYMENTS}/one/scale",
            {"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 3}},
        ),
        get(f"{DEPLOYMENTS}/one"),
    ),
    case(
        "an apply to a widget's scale without a name",
        post(WIDGETS, widget(spec={"size": 1})),
        apply(
            f"{WIDGETS}/one/scale", {"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 3}}
        ),
        get(f"{WIDGETS}/one"),
    ),
    case(
        "an apply to status without a name",
        post(DEPLOYMENTS, deployment()),
        apply(
            f"{DEPLOYMENTS}/one/status",
            {"apiVersion": "apps/v1", "kind": "Deployment", "status": {"replicas": 2}},
        ),
    ),
    case(
        "an apply to an object without a name",
        apply(f"{CONFIGMAPS}/one", {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}}),
    ),
    case(
        "an apply to scale with another name",
        post(DEPLOYMENTS, deployment()),
        apply(
            f"{DEPLOYMENTS}/one/scale",
            {
                "apiVersion": "autoscaling/v1",
                "kind": "Scale",
                "metadata": {"name": "two"},
                "spec": {"replicas": 3},
            },
        ),
    ),
]
