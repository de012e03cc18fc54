"""Changes of pods: by updates, bindings and the endpoints of a part; and pod templates that are stored alone."""

from __future__ import annotations

from typing import Any

from tests.behaviour.conformance.cases.requests import (
    PODS,
    apply,
    case,
    get,
    json_patch,
    merge,
    pod,
    post,
    put,
    strategic,
)
from tests.behaviour.conformance.exchange import Call, Case

ONE = f"{PODS}/one"
EPHEMERAL = f"{ONE}/ephemeralcontainers"
RESIZE = f"{ONE}/resize"
TEMPLATES = "/api/v1/namespaces/{ns}/podtemplates"
BINDINGS_PATH = "/api/v1/namespaces/{ns}/bindings"
APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/main"
DEBUGGER = {"name": "debugger", "image": "example.com/debugger:1"}
ONE_CORE = {"requests": {"cpu": "1"}}
GUARANTEED = {field: {"cpu": "1", "memory": "1Gi"} for field in ("requests", "limits")}
EVERYTHING_ELSE = {
    "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["example.com/e"]},
    "spec": {
        "hostNetwork": True,
        "nodeName": "elsewhere",
        "serviceAccountName": "other",
        "containers": [{"name": "main", "image": "example.com/other:1"}],
    },
}


def sized(resources: Any, **spec: Any) -> dict[str, Any]:
    return pod(containers=[{"name": "main", "image": "example.com/app:1", "resources": resources}], **spec)


def resize(**resources: Any) -> Call:
    return strategic(RESIZE, {"spec": {"containers": [{"name": "main", "resources": resources}]}})


def debug(**fields: Any) -> Call:
    return strategic(EPHEMERAL, {"spec": {"ephemeralContainers": [{**DEBUGGER, **fields}]}})


def bind(target: dict[str, str], **metadata: Any) -> Call:
    return post(f"{ONE}/binding", {"metadata": {"name": "one", **metadata}, "target": target})


def resized(name: str, resources: Any, *calls: Call) -> Case:
    return case(f"a resize {name}", post(PODS, sized(resources)), *calls, get(ONE))


def debugged(name: str, *calls: Call) -> Case:
    return case(f"an ephemeral container {name}", post(PODS, pod()), *calls, get(ONE))


RESIZES = [
    resized("changes nothing else by a patch", ONE_CORE, strategic(RESIZE, EVERYTHING_ELSE)),
    resized(
        "changes nothing else by a replacement",
        ONE_CORE,
        put(RESIZE, {**sized({"requests": {"cpu": "2"}}), "metadata": {"name": "one", "labels": {"a": "b"}}}),
    ),
    resized("of a pod without requests", {}, resize(requests={"cpu": "1"})),
    resized("to another quality of service", GUARANTEED, resize(limits={"cpu": "2"})),
    resized("within its quality of service", GUARANTEED, resize(requests={"cpu": "2"}, limits={"cpu": "2"})),
    resized("to a negative amount", ONE_CORE, resize(requests={"cpu": "-1"})),
    resized("that requests more than the limit", GUARANTEED, resize(requests={"cpu": "2"})),
    resized("that removes amounts", GUARANTEED, resize(requests={"memory": None}, limits={"memory": None})),
    resized(
        "of other resources",
        ONE_CORE,
        resize(requests={"example.com/gpu": "1"}, limits={"example.com/gpu": "1"}),
        resize(requests={"ephemeral-storage": "1Gi"}),
    ),
    resized(
        "that adds, removes or renames containers",
        ONE_CORE,
        json_patch(RESIZE, {"op": "add", "path": "/spec/containers/-", "value": {"name": "n", "image": "n"}}),
        json_patch(RESIZE, {"op": "replace", "path": "/spec/containers/0/name", "value": "other"}),
        json_patch(
            RESIZE, {"op": "add", "path": "/spec/initContainers", "value": [{"name": "n", "image": "n"}]}
        ),
    ),
    resized(
        "by an apply",
        ONE_CORE,
        apply(
            RESIZE,
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "one"},
                "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "3"}}}]},
            },
            force=True,
        ),
    ),
    case(
        "a resize of a pod for Windows",
        post(PODS, sized(ONE_CORE, os={"name": "windows"})),
        resize(requests={"cpu": "2"}),
    ),
]

EPHEMERAL_CONTAINERS = [
    debugged("changes nothing else by a patch", strategic(EPHEMERAL, EVERYTHING_ELSE), debug()),
    debugged(
        "is not removed",
        debug(),
        json_patch(EPHEMERAL, {"op": "remove", "path": "/spec/ephemeralContainers/0"}),
    ),
    debugged("has a name of its own", debug(name="main"), debug(name="")),
    debugged("has an image", debug(image="")),
    debugged(
        "has a container as target", debug(targetContainerName="other"), debug(targetContainerName="main")
    ),
    debugged(
        "has no ports, amounts or probes",
        debug(ports=[{"containerPort": 1}]),
        debug(resources=ONE_CORE),
        debug(livenessProbe={"exec": {"command": ["a"]}}),
        debug(lifecycle={"preStop": {"exec": {"command": ["a"]}}}),
    ),
    case("an ephemeral container of a new pod", post(PODS, pod(ephemeralContainers=[DEBUGGER]))),
]

ANNOTATIONS = [
    case(
        "an AppArmor annotation is not added",
        post(PODS, pod()),
        merge(ONE, {"metadata": {"annotations": {APP_ARMOR: "unconfined"}}}),
        merge(f"{ONE}/status", {"metadata": {"annotations": {APP_ARMOR: "unconfined"}}}),
    ),
    case(
        "an AppArmor annotation is not removed or changed",
        post(PODS, {**pod(), "metadata": {"name": "one", "annotations": {APP_ARMOR: "runtime/default"}}}),
        merge(ONE, {"metadata": {"annotations": {APP_ARMOR: None}}}),
        merge(ONE, {"metadata": {"annotations": {APP_ARMOR: "unconfined"}}}),
    ),
    case(
        "a pod does not become a mirror pod",
        post(PODS, pod(nodeName="somewhere")),
        merge(ONE, {"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}),
    ),
]

STORED_TEMPLATES = [
    case(
        "a stored pod template has defaults",
        post(TEMPLATES, {"metadata": {"name": "one"}, "template": {"spec": {"containers": [DEBUGGER]}}}),
        merge(f"{TEMPLATES}/one", {"template": {"metadata": {"labels": {"a": "b"}}}}),
    ),
    case(
        "a stored pod template is validated",
        post(TEMPLATES, {"metadata": {"name": "one"}}),
        post(TEMPLATES, {"metadata": {"name": "one"}, "template": {"spec": {"containers": []}}}),
        post(TEMPLATES, {"metadata": {"name": "one"}, "template": {"spec": {"containers": [{"name": "A"}]}}}),
        post(
            TEMPLATES,
            {"metadata": {"name": "one"}, "template": {"spec": {"containers": [DEBUGGER, DEBUGGER]}}},
        ),
    ),
]

UPDATES = [
    case(
        "an image is required, and has no spaces around it",
        post(PODS, pod()),
        *(
            strategic(ONE, {"spec": {"containers": [{"name": "main", "image": image}]}})
            for image in ("", " a", "a ")
        ),
        post(PODS, pod("two", containers=[{"name": "main", "image": " a"}])),
        get(ONE),
    ),
    case(
        "a deadline that is not valid",
        post(PODS, pod()),
        *(merge(ONE, {"spec": {"activeDeadlineSeconds": seconds}}) for seconds in (-1, 0, 5, 6, None, 4)),
    ),
    case(
        "the tolerations of lost nodes come back",
        post(PODS, pod()),
        merge(ONE, {"spec": {"tolerations": [{"key": "a", "operator": "Exists"}]}}),
        merge(ONE, {"spec": {"tolerations": []}}),
    ),
    case(
        "scheduling gates are only removed",
        post(PODS, pod(schedulingGates=[{"name": "example.com/a"}, {"name": "example.com/b"}])),
        merge(ONE, {"spec": {"schedulingGates": [{"name": "example.com/a"}, {"name": "example.com/c"}]}}),
        merge(ONE, {"spec": {"schedulingGates": [{"name": "example.com/a"}]}}),
        merge(ONE, {"spec": {"nodeSelector": {"a": "b"}}}),
        merge(ONE, {"spec": {"nodeSelector": {"a": "c"}}}),
        bind({"name": "node"}),
        merge(ONE, {"spec": {"schedulingGates": []}}),
        merge(ONE, {"spec": {"schedulingGates": [{"name": "example.com/a"}]}}),
        bind({"name": "node"}),
    ),
    case(
        "a pod with scheduling gates has no node",
        post(PODS, pod(schedulingGates=[{"name": "example.com/a"}], nodeName="node")),
    ),
]

BINDINGS = [
    case(
        "a binding that is not valid",
        post(PODS, pod()),
        bind({}),
        bind({"kind": "Pod", "name": "node"}),
        bind({"name": "node"}, name="two"),
        bind({"name": "node"}, uid="another"),
        get(ONE),
    ),
    case(
        "a binding with labels and annotations",
        post(PODS, pod()),
        bind({"kind": "Node", "name": "node"}, labels={"a": "b"}, annotations={"c": "d"}),
        get(ONE),
    ),
    case(
        "a binding at the path of bindings",
        post(PODS, pod()),
        post(BINDINGS_PATH, {"metadata": {"name": "one"}, "target": {"name": "node"}}, "dryRun=All"),
        post(BINDINGS_PATH, {"metadata": {"name": "one"}, "target": {"name": "node"}}),
        post(BINDINGS_PATH, {"metadata": {"name": "one"}, "target": {"name": "other"}}),
        post(BINDINGS_PATH, {"metadata": {"name": "none"}, "target": {"name": "node"}}),
        get(ONE),
    ),
]

CASES = [*RESIZES, *EPHEMERAL_CONTAINERS, *ANNOTATIONS, *STORED_TEMPLATES, *UPDATES, *BINDINGS]
