"""Parts of pods with endpoints of their own, which change nothing else; and templates of pods that are stored alone."""

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

CASES = [*RESIZES, *EPHEMERAL_CONTAINERS, *ANNOTATIONS, *STORED_TEMPLATES]
