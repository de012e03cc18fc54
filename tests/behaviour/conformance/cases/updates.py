"""Updates of what is fixed once it was created: storage, nodes, events, Jobs."""

from __future__ import annotations

from typing import Any

from tests.behaviour.conformance.cases.requests import case, json_patch, merge, named, post
from tests.behaviour.conformance.exchange import Call, Case

EVENTS = "/apis/events.k8s.io/v1/namespaces/{ns}/events"
CLAIMS = "/api/v1/namespaces/{ns}/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
NODES = "/api/v1/nodes"
CSI_NODES = "/apis/storage.k8s.io/v1/csinodes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
JOBS = "/apis/batch/v1/namespaces/{ns}/jobs"

ZONE, BETA_ZONE = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"


def in_cluster(**fields: Any) -> dict[str, Any]:
    """Return an object without a namespace, with a name of the case's own."""
    return {"metadata": {"name": "{ns}"}, **fields}


EVENT = {
    "metadata": {"name": "one"},
    "eventTime": "2026-01-02T03:04:05.000000Z",
    "regarding": {"kind": "Pod", "name": "a", "namespace": "{ns}"},
    "reason": "Started",
    "note": "It has started.",
    "type": "Normal",
    "action": "Start",
    "reportingController": "example.com/controller",
    "reportingInstance": "controller-1",
}
EVENT_CHANGES: dict[str, Any] = {
    "reason": {"reason": "Stopped"},
    "note": {"note": "It has stopped."},
    "type": {"type": "Warning"},
    "action": {"action": "Stop"},
    "time": {"eventTime": "2026-01-02T03:04:06.000000Z"},
    "object": {"regarding": {"name": "b"}},
    "related object": {"related": {"kind": "Node", "name": "b"}},
    "reporter": {"reportingController": "example.com/other"},
    "instance": {"reportingInstance": "controller-2"},
    "old count": {"deprecatedCount": 3},
    "old source": {"deprecatedSource": {"component": "c"}},
    "old time": {"deprecatedFirstTimestamp": "2026-01-02T03:04:06Z"},
    "series": {"series": {"count": 2, "lastObservedTime": "2026-01-02T03:04:06.000000Z"}},
    "series of one": {"series": {"count": 1, "lastObservedTime": "2026-01-02T03:04:06.000000Z"}},
    "labels": {"metadata": {"labels": {"a": "b"}}},
}
EVENTS_OF_V1 = [
    case(f"an update of an event's {what}", post(EVENTS, EVENT), merge(f"{EVENTS}/one", change))
    for what, change in EVENT_CHANGES.items()
]


def node(what: str, spec: dict[str, Any], change: dict[str, Any]) -> Case:
    return case(
        f"a node {what}", post(NODES, in_cluster(spec=spec)), merge(f"{NODES}/{{ns}}", {"spec": change})
    )


NODE = {"providerID": "a://1", "podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"]}
NODES_FIXED = [
    node("gets another provider's ID", NODE, {"providerID": "a://2"}),
    node("loses its provider's ID", NODE, {"providerID": None}),
    node("gets its first provider's ID", {}, {"providerID": "a://2"}),
    node("gets another range of addresses", NODE, {"podCIDR": "10.0.1.0/24", "podCIDRs": ["10.0.1.0/24"]}),
    node("loses its range of addresses", NODE, {"podCIDR": None, "podCIDRs": None}),
    node("gets a second range of addresses", NODE, {"podCIDRs": ["10.0.0.0/24", "fd00::/64"]}),
    node("gets its first range of addresses", {}, {"podCIDR": "10.0.1.0/24", "podCIDRs": ["10.0.1.0/24"]}),
    case(
        "a node has an address twice",
        post(NODES, in_cluster()),
        merge(
            f"{NODES}/{{ns}}/status",
            {"status": {"addresses": [{"type": "InternalIP", "address": "1.2.3.4"}] * 2}},
        ),
    ),
]


def driver(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "nodeID": "n", "topologyKeys": ["k"], **fields}


def drivers(what: str, *after: Any) -> Case:
    made = post(
        CSI_NODES, in_cluster(spec={"drivers": [driver("a.b"), driver("c.d", allocatable={"count": 1})]})
    )
    return case(
        f"the drivers of a node: {what}", made, merge(f"{CSI_NODES}/{{ns}}", {"spec": {"drivers": after}})
    )


CSI = [
    drivers("another ID", driver("a.b", nodeID="m"), driver("c.d")),
    drivers("other keys", driver("a.b", topologyKeys=["k", "l"]), driver("c.d")),
    drivers("no keys", driver("a.b", topologyKeys=None), driver("c.d")),
    drivers("another number of volumes", driver("a.b"), driver("c.d", allocatable={"count": 2})),
    drivers("one less", driver("a.b")),
    drivers("one more", driver("a.b"), driver("c.d"), driver("e.f")),
    drivers("another order", driver("c.d"), driver("a.b")),
]


def storage_class(what: str, change: dict[str, Any]) -> Case:
    made = post(CLASSES, in_cluster(provisioner="a.b/c", parameters={"a": "b"}))
    return case(f"a storage class gets {what}", made, merge(f"{CLASSES}/{{ns}}", change))


STORAGE_CLASSES = [
    storage_class("another provisioner", {"provisioner": "a.b/d"}),
    storage_class("other parameters", {"parameters": {"a": "c"}}),
    storage_class("no parameters", {"parameters": None}),
    storage_class("another reclaim policy", {"reclaimPolicy": "Retain"}),
    storage_class("an empty reclaim policy", {"reclaimPolicy": ""}),
    storage_class("another binding mode", {"volumeBindingMode": "WaitForFirstConsumer"}),
    storage_class("the right to expand", {"allowVolumeExpansion": True}),
    case(
        "a storage class with an empty reclaim policy",
        post(CLASSES, in_cluster(provisioner="a.b/c", reclaimPolicy="")),
    ),
]

CONTAINERS = [{"name": "main", "image": "example.com/app:1"}]
JOB = {
    "completions": 2,
    "completionMode": "Indexed",
    "backoffLimitPerIndex": 1,
    "managedBy": "example.com/controller",
    "template": {"spec": {"restartPolicy": "Never", "containers": CONTAINERS}},
}


def job(what: str, change: dict[str, Any]) -> Case:
    return case(f"a job gets {what}", post(JOBS, named(JOB)), merge(f"{JOBS}/one", {"spec": change}))


JOBS_FIXED = [
    job("another backoff limit per index", {"backoffLimitPerIndex": 2}),
    job("no backoff limit per index", {"backoffLimitPerIndex": None}),
    job("another manager", {"managedBy": "example.com/other"}),
    job("no manager", {"managedBy": None}),
    job("another limit of failed indexes", {"maxFailedIndexes": 1}),
    job("another backoff limit", {"backoffLimit": 3}),
]

AFFINITY = {
    "required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": BETA_ZONE, "operator": "Exists"}]}]}
}
VOLUME = {
    "capacity": {"storage": "1Gi"},
    "accessModes": ["ReadWriteOnce"],
    "csi": {"driver": "a.b", "volumeHandle": "c"},
}
KEY = "/spec/nodeAffinity/required/nodeSelectorTerms/0/matchExpressions/0/key"


def volume(what: str, change: dict[str, Any], **fields: Any) -> Case:
    made = post(VOLUMES, in_cluster(spec={**VOLUME, **fields}))
    return case(f"a volume gets {what}", made, merge(f"{VOLUMES}/{{ns}}", {"spec": change}))


def relabelled(what: str, key: str) -> Case:
    made = post(VOLUMES, in_cluster(spec={**VOLUME, "nodeAffinity": AFFINITY}))
    change = {"op": "replace", "path": KEY, "value": key}
    return case(
        f"the label of a volume's affinity becomes {what}", made, json_patch(f"{VOLUMES}/{{ns}}", change)
    )


SECRET = {"name": "s", "namespace": "t"}
VOLUMES_FIXED = [
    volume("a secret to expand it", {"csi": {"controllerExpandSecretRef": SECRET}}),
    volume("its first affinity", {"nodeAffinity": AFFINITY}),
    volume("no affinity", {"nodeAffinity": None}, nodeAffinity=AFFINITY),
    volume("another mode", {"volumeMode": "Block"}),
    volume("another size", {"capacity": {"storage": "2Gi"}}),
    volume("another reclaim policy", {"persistentVolumeReclaimPolicy": "Delete"}),
    volume("another class", {"storageClassName": "x"}),
    volume("other access modes", {"accessModes": ["ReadWriteMany"]}),
    volume("a claim", {"claimRef": {"namespace": "a", "name": "b"}}),
    relabelled("that of today", ZONE),
    relabelled("another", "example.com/zone"),
]

CLAIM = {
    "accessModes": ["ReadWriteOnce"],
    "storageClassName": "{ns}",
    "resources": {"requests": {"storage": "3Gi"}},
}
EXPANDABLE = post(CLASSES, in_cluster(provisioner="a.b/c", allowVolumeExpansion=True))
BOUND = {"status": {"phase": "Bound", "capacity": {"storage": "2Gi"}}}


def bound_claim(what: str, change: dict[str, Any]) -> Case:
    steps: list[Call] = [
        EXPANDABLE,
        post(CLAIMS, named({**CLAIM, "volumeName": "v"})),
        merge(f"{CLAIMS}/one/status", BOUND),
        merge(f"{CLAIMS}/one", {"spec": change}, "dryRun=All"),
    ]
    return case(f"a bound claim gets {what}", *steps)


def storage(amount: str) -> dict[str, Any]:
    return {"resources": {"requests": {"storage": amount}}}


CLAIMS_FIXED = [
    bound_claim("more storage", storage("4Gi")),
    bound_claim("less storage, but more than it has", storage("2500Mi")),
    bound_claim("as much storage as it has", storage("2Gi")),
    bound_claim("less storage than it has", storage("1Gi")),
    case(
        "a claim gets its volume",
        post(CLAIMS, named(CLAIM)),
        merge(f"{CLAIMS}/one", {"spec": {"volumeName": "v"}}),
    ),
    case(
        "a claim loses the source that old clients know",
        post(CLAIMS, named({**CLAIM, "dataSource": {"kind": "PersistentVolumeClaim", "name": "a"}})),
        merge(f"{CLAIMS}/one", {"spec": {"dataSource": None}}),
    ),
]

CASES = [
    *EVENTS_OF_V1,
    *NODES_FIXED,
    *CSI,
    *STORAGE_CLASSES,
    *JOBS_FIXED,
    *VOLUMES_FIXED,
    *CLAIMS_FIXED,
]
