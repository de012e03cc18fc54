"""Tables: the columns of each built-in kind, and the rows of kinds with printers of their own."""

from __future__ import annotations

from typing import Any

from tests.behaviour.conformance.cases.requests import (
    DEPLOYMENTS,
    WIDGETS,
    case,
    deployment,
    get,
    merge,
    post,
    widget,
)
from tests.behaviour.conformance.exchange import Case

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
CORE = "/api/v1"
DEVICES = "/apis/resource.k8s.io/v1"
FLOWS = "/apis/flowcontrol.apiserver.k8s.io/v1"
NETWORKING = "/apis/networking.k8s.io/v1"
STORAGE = "/apis/storage.k8s.io/v1"

NAMESPACED = {
    CORE: (
        "configmaps endpoints events limitranges persistentvolumeclaims pods podtemplates replicationcontrollers "
        "resourcequotas secrets serviceaccounts services"
    ),
    "/apis/apps/v1": "controllerrevisions daemonsets deployments replicasets statefulsets",
    "/apis/events.k8s.io/v1": "events",
    "/apis/autoscaling/v2": "horizontalpodautoscalers",
    "/apis/autoscaling/v1": "horizontalpodautoscalers",
    "/apis/batch/v1": "cronjobs jobs",
    NETWORKING: "ingresses networkpolicies",
    "/apis/policy/v1": "poddisruptionbudgets",
    "/apis/rbac.authorization.k8s.io/v1": "rolebindings roles",
    STORAGE: "csistoragecapacities",
    "/apis/coordination.k8s.io/v1": "leases",
    "/apis/discovery.k8s.io/v1": "endpointslices",
    DEVICES: "resourceclaims resourceclaimtemplates",
}
CLUSTER = {
    CORE: "namespaces nodes persistentvolumes",
    "/apis/apiregistration.k8s.io/v1": "apiservices",
    "/apis/certificates.k8s.io/v1": "certificatesigningrequests",
    NETWORKING: "ingressclasses ipaddresses servicecidrs",
    "/apis/rbac.authorization.k8s.io/v1": "clusterrolebindings clusterroles",
    STORAGE: "csidrivers csinodes storageclasses volumeattachments volumeattributesclasses",
    "/apis/admissionregistration.k8s.io/v1": (
        "mutatingadmissionpolicies mutatingadmissionpolicybindings mutatingwebhookconfigurations "
        "validatingadmissionpolicies validatingadmissionpolicybindings validatingwebhookconfigurations"
    ),
    "/apis/apiextensions.k8s.io/v1": "customresourcedefinitions",
    "/apis/scheduling.k8s.io/v1": "priorityclasses",
    "/apis/node.k8s.io/v1": "runtimeclasses",
    DEVICES: "deviceclasses resourceslices",
    FLOWS: "flowschemas prioritylevelconfigurations",
}


def columns(root: str, resource: str, *, namespaced: bool) -> Case:
    """Return a case with an empty table, so that only the columns are compared."""
    group = root.removeprefix("/apis/").removeprefix("/api/")
    path = f"{root}/namespaces/{{ns}}/{resource}" if namespaced else f"{root}/{resource}"
    call = get(path, "labelSelector=none%3Dsuch", accept=TABLE)
    return case(f"the columns of {resource} in {group}", call)


def row(sentence: str, path: str, body: dict[str, Any], *changes: Any) -> Case:
    """Return a case that creates an object and reads it as a table."""
    return case(sentence, post(path, body), *changes, get(f"{path}/{body['metadata']['name']}", accept=TABLE))


def named(spec: Any, name: str = "table-{ns}") -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": spec}


REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
PKCS10 = (
    "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlJQ1V6Q0NBVHNDQVFBd0RqRU1NQW9HQTFVRUF3d0RZV1Jo"
    "TUlJQklqQU5CZ2txaGtpRzl3MEJBUUVGQUFPQwpBUThBTUlJQkNnS0NBUUVBdVhUWDhRanhJMUVkSHpBSEQ1cjc3WXNlMWdW"
    "V1RQcm9Kd0RGdllKby9OQzhuWDBMCmYwVEtEdWJtR1N4aXdlNmdnZGZ4VnRVUFlFSDF3SSszUm1RYXBYUVVVTVlrbHhzTXdh"
    "RmNCcWEvR1VhTmF0YkoKeVpoVlFFSDkxM0EyTVB1elFBa1dKdHlDclJSSUw5TlJCTVlEb2VGN2NTQ2FQd2F1S1ZMN2J4Wmo5"
    "L3J4bXlncAoyVGdyNkFpNnN6d0RqUXNOeGdyQ0pCbmhOWDdMSktGQVVFQklSSDh3Z04xTkY5bzh6MjZ1aU5td1pGdi85U1lX"
    "CmVDK1h5MTJ1MUgxYnduaTlZTTkwSHp1azRmWTlnQncrRGpBYmVJVjJhUU9ITDdqZVluRnVpVm4yNVBwVjZjUUMKWUREOGVW"
    "VkVQTDlCYjRyckx5b0ZRNWdSaEZrMzVpVjRvdTZNQlFJREFRQUJvQUF3RFFZSktvWklodmNOQVFFTApCUUFEZ2dFQkFGRVpi"
    "SjV1cnM5RkhublR4OXAxRkNPTVJOeWNtOTBKL29sanV1NGJ4UWw4L2puZUl3ZUcrNU9tClhMaDBQcUJQb3AxeVE4aTNwNkJM"
    "ZTJHZ3ZxbmhsZzRGRXRabnkzL1k3Q1FMTXE1QkRROXdOd3VBVDFvNzIweWQKdGdMa1lJWlBOdGZxR3ZYNGxwRlhwdW1FbHpx"
    "ZEkrTVRjVVE2WlpHcUZYeXBaejNyTXpnSnZRSmF5VzB3ZE5rdQoyNDZqbEdsaEdDUFkyQ1JuaHIrVnMrd2UrdnNuRC9PczBN"
    "NHBRYTNYaDhFbWd4VXU0YW1BZmU0anVMOGx5OGN2Cjk5WW9WM0Y3eWRHUkdXSnVQak9zTWJabG82RGQ0TXhDUGRTZ2JFWWxu"
    "b1h6dWZvVVhMbkoyT3JaaEJxcDhRU3cKV3NxL2wzU09Ecm03OXNaZXNtaElCSSt0dzlaZFVaVT0KLS0tLS1FTkQgQ0VSVElG"
    "SUNBVEUgUkVRVUVTVC0tLS0tCg=="
)
"""A request for the subject CN=ada, signed by its key."""
REQUEST = {"request": PKCS10, "signerName": "example.com/signer", "usages": ["client auth"]}
QUEUING = {"queues": 8, "handSize": 2, "queueLengthLimit": 5}
LIMITED = {
    "type": "Limited",
    "limited": {"nominalConcurrencyShares": 7, "limitResponse": {"type": "Queue", "queuing": QUEUING}},
}
SLICE = {
    "driver": "gpu.example.com",
    "pool": {"name": "rack", "generation": 1, "resourceSliceCount": 1},
    "nodeName": "node-a",
    "devices": [{"name": "gpu-0"}],
}
PARENT = {"group": "", "resource": "services", "namespace": "{ns}", "name": "web"}
CLAIM = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}}

CASES = [
    *(
        columns(root, resource, namespaced=True)
        for root, names in NAMESPACED.items()
        for resource in names.split()
    ),
    *(
        columns(root, resource, namespaced=False)
        for root, names in CLUSTER.items()
        for resource in names.split()
    ),
    row("a device class as a table", f"{DEVICES}/deviceclasses", named({})),
    row("a resource claim as a table", f"{DEVICES}/namespaces/{{ns}}/resourceclaims", named(CLAIM)),
    row(
        "a resource claim template as a table",
        f"{DEVICES}/namespaces/{{ns}}/resourceclaimtemplates",
        named({"spec": CLAIM}),
    ),
    row("a resource slice as a table", f"{DEVICES}/resourceslices", named(SLICE)),
    row("a limited priority level as a table", f"{FLOWS}/prioritylevelconfigurations", named(LIMITED)),
    row(
        "a priority level that rejects as a table",
        f"{FLOWS}/prioritylevelconfigurations",
        named({"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}, "reject-{ns}"),
    ),
    row("a CSI driver as a table", f"{STORAGE}/csidrivers", named({})),
    row(
        "a CSI driver with tokens as a table",
        f"{STORAGE}/csidrivers",
        named(
            {
                "attachRequired": False,
                "podInfoOnMount": True,
                "tokenRequests": [{"audience": "vault"}, {"audience": "other"}],
                "volumeLifecycleModes": ["Persistent", "Ephemeral"],
            },
            "tokens-{ns}",
        ),
    ),
    row(
        "a volume attributes class as a table",
        f"{STORAGE}/volumeattributesclasses",
        {
            "metadata": {"name": "gold-{ns}"},
            "driverName": "csi.example.com",
            "parameters": {"iops": "9"},
        },
    ),
    row("an IP address as a table", f"{NETWORKING}/ipaddresses", named({"parentRef": PARENT}, "10.99.1.7")),
    row(
        "a volume attachment as a table",
        f"{STORAGE}/volumeattachments",
        named({"attacher": "csi.example.com", "nodeName": "n", "source": {"persistentVolumeName": "pv"}}),
        merge(f"{STORAGE}/volumeattachments/table-{{ns}}/status", {"status": {"attached": True}}),
    ),
    case(
        "a deployment's scale as a table",
        post(DEPLOYMENTS, deployment()),
        get(f"{DEPLOYMENTS}/one/scale", accept=TABLE),
    ),
    case(
        "a widget's scale as a table",
        post(WIDGETS, widget(spec={"size": 2})),
        get(f"{WIDGETS}/one/scale", accept=TABLE),
    ),
    case(
        "a certificate request records its author",
        post(REQUESTS, {"metadata": {"name": "ada-{ns}"}, "spec": {**REQUEST, "username": "eve"}}),
        merge(f"{REQUESTS}/ada-{{ns}}", {"spec": {"username": "eve"}}),
        get(f"{REQUESTS}/ada-{{ns}}", accept=TABLE),
    ),
    case(
        "a certificate request without its parts is rejected",
        post(REQUESTS, {"metadata": {"name": "none-{ns}"}, "spec": {"request": "", "signerName": ""}}),
        post(
            REQUESTS,
            {
                "metadata": {"name": "none-{ns}"},
                "spec": {
                    **REQUEST,
                    "usages": ["client auth", "nonsense", "client auth"],
                    "expirationSeconds": 5,
                },
            },
        ),
        post(REQUESTS, {"metadata": {"name": "none-{ns}"}, "spec": {**REQUEST, "signerName": "nodomain"}}),
    ),
]
