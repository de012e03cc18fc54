"""Plugins of a default kube-apiserver: the account of a pod, the resize of a scheduled pod."""

from __future__ import annotations

from typing import Any

from tests.behaviour.conformance.cases.requests import PODS, case, delete, get, patch, pod, post, strategic
from tests.behaviour.conformance.exchange import Call, Case

ACCOUNTS = "/api/v1/namespaces/{ns}/serviceaccounts"
NODES = "/api/v1/nodes"
STATUS = "application/merge-patch+json"


def sized(cpu: str = "", memory: str = "", name: str = "main") -> dict[str, Any]:
    requests = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value}
    return {"name": name, "image": "example.com/app:1", "resources": {"requests": requests}}


def node(**status: Any) -> tuple[Call, ...]:
    """Return the calls that create a node with this status."""
    body = {"metadata": {"name": "node-{ns}", **status.pop("metadata", {})}}
    allocatable = {"cpu": "2", "memory": "1Gi", "pods": "10"}
    full = {"allocatable": allocatable, "capacity": allocatable, **status}
    return post(NODES, body), patch(f"{NODES}/node-{{ns}}/status", {"status": full}, STATUS)


def resized(what: str, *calls: Call, created: Any = None, nodes: tuple[Call, ...] | None = None) -> Case:
    made = created or pod(containers=[sized("1", "100Mi")], nodeName="node-{ns}")
    return case(
        f"a resize: {what}",
        *(node() if nodes is None else nodes),
        post(PODS, made, delay=0.3),
        *calls,
        get(f"{PODS}/one"),
        delete(f"{NODES}/node-{{ns}}"),
    )


def resize(*containers: dict[str, Any], **spec: Any) -> Call:
    return strategic(f"{PODS}/one/resize", {"spec": {"containers": list(containers), **spec}})


def amounts(cpu: str = "", memory: str = "", name: str = "main") -> dict[str, Any]:
    return {key: value for key, value in sized(cpu, memory, name).items() if key != "image"}


def mirror(**spec: Any) -> dict[str, Any]:
    return {**pod(**spec), "metadata": {"name": "one", "annotations": {"kubernetes.io/config.mirror": "x"}}}


INIT = pod(containers=[sized("1")], initContainers=[sized("500m", name="init")], nodeName="node-{ns}")
WHOLE = pod(resources={"requests": {"cpu": "1"}}, nodeName="node-{ns}")
CASES = [
    case(
        "a pod without the default account of its namespace",
        delete(f"{ACCOUNTS}/default"),
        post(PODS, pod(), delay=0.5),
    ),
    case("a pod with an unknown account", post(PODS, pod(serviceAccountName="none"))),
    case("a mirror pod without a node", post(PODS, mirror())),
    case(
        "a mirror pod needs no account",
        delete(f"{ACCOUNTS}/default"),
        post(PODS, mirror(nodeName="none"), delay=0.5),
    ),
    case("a mirror pod with an account", post(PODS, mirror(nodeName="none", serviceAccountName="default"))),
    resized("within the node", resize(amounts("2", "500Mi"))),
    resized("more than the node", resize(amounts("3"))),
    resized("more cpu and memory than the node", resize(amounts("2500m", "2Gi"))),
    resized("nothing changes", resize(amounts("1"))),
    resized(
        "a node of another system",
        resize(amounts("2")),
        nodes=node(metadata={"labels": {"kubernetes.io/os": "windows"}}),
    ),
    resized("no node", resize(amounts("2")), nodes=()),
    resized("a pod that is not scheduled", resize(amounts("200")), created=pod(containers=[sized("1")])),
    resized(
        "of an init container on a node without the feature",
        resize(amounts("1"), initContainers=[amounts("1", name="init")]),
        created=INIT,
    ),
    resized(
        "of an init container on a node with the feature",
        resize(amounts("1"), initContainers=[amounts("1", name="init")]),
        created=INIT,
        nodes=node(declaredFeatures=["InPlacePodVerticalScalingInitContainers"]),
    ),
    resized(
        "of the whole pod on a node without the feature",
        strategic(f"{PODS}/one/resize", {"spec": {"resources": {"requests": {"cpu": "2"}}}}),
        created=WHOLE,
    ),
]
