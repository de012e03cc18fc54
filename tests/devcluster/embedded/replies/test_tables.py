"""Tables as kubectl prints them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kapsa.devcluster.embedded.custom.resources import resources_of
from kapsa.devcluster.embedded.kinds.builtins import builtin_resources
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo, ResourceRegistry
from kapsa.devcluster.embedded.replies.printers.cells import human_duration
from kapsa.devcluster.embedded.replies.tables import table

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
CREATED = "2026-01-01T11:55:00Z"
REGISTRY = ResourceRegistry(builtin_resources())


def row(info: ResourceInfo, obj: dict[str, Any], **options: Any) -> dict[str, Any]:
    whole = {"metadata": {"name": "x", "creationTimestamp": CREATED, **obj.pop("metadata", {})}, **obj}
    shown = table(info, [whole], {"resourceVersion": "1"}, now=NOW, **options)
    rows: list[dict[str, Any]] = shown["rows"]
    assert len(rows) == 1
    return rows[0]


def cells(group: str, version: str, resource: str, obj: dict[str, Any]) -> list[Any]:
    values: list[Any] = row(REGISTRY.get(group, version, resource), obj)["cells"]
    return values


def running(**more: Any) -> dict[str, Any]:
    return {"name": "c", "ready": True, "restartCount": 0, "state": {"running": {}}, **more}


def pod(**status: Any) -> list[Any]:
    return cells("", "v1", "pods", {"spec": {"containers": [{"name": "c"}]}, "status": status})[1:4]


def test_a_running_pod_is_ready() -> None:
    assert pod(phase="Running", containerStatuses=[running()]) == ["1/1", "Running", "0"]


def test_a_crash_looping_pod_shows_the_reason_and_the_restarts() -> None:
    finished = {"terminated": {"finishedAt": "2026-01-01T11:59:00Z"}}
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    status = running(ready=False, restartCount=3, state=waiting, lastState=finished)
    assert pod(phase="Running", containerStatuses=[status]) == ["0/1", "CrashLoopBackOff", "3 (60s ago)"]


def test_a_pod_that_initializes_counts_its_init_containers() -> None:
    obj = {
        "spec": {"containers": [{"name": "c"}], "initContainers": [{"name": "a"}, {"name": "b"}]},
        "status": {"phase": "Pending", "initContainerStatuses": [{"name": "a", "state": {"running": {}}}]},
    }
    assert cells("", "v1", "pods", obj)[1:3] == ["0/1", "Init:0/2"]


def test_a_deleted_pod_is_terminating_until_it_is_gone() -> None:
    obj = {
        "metadata": {"deletionTimestamp": CREATED},
        "spec": {"containers": [{"name": "c"}]},
        "status": {"phase": "Running", "containerStatuses": [running()]},
    }
    assert cells("", "v1", "pods", obj)[2] == "Terminating"


def test_a_completed_pod_carries_a_row_condition() -> None:
    shown = row(REGISTRY.get("", "v1", "pods"), {"spec": {}, "status": {"phase": "Succeeded"}})
    assert shown["conditions"][0]["reason"] == "Succeeded"


@pytest.mark.parametrize(
    ("where", "obj", "expected"),
    [
        (
            ("apps", "v1", "deployments"),
            {
                "spec": {
                    "replicas": 3,
                    "selector": {"matchLabels": {"app": "a"}},
                    "template": {"spec": {"containers": [{"name": "c", "image": "i:1"}]}},
                },
                "status": {"readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 2},
            },
            ["x", "2/3", 3, 2, "5m", "c", "i:1", "app=a"],
        ),
        (
            ("", "v1", "services"),
            {
                "spec": {
                    "type": "NodePort",
                    "clusterIPs": ["10.0.0.1"],
                    "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}],
                }
            },
            ["x", "NodePort", "10.0.0.1", "<none>", "80:30080/TCP", "5m", "<none>"],
        ),
        (("", "v1", "configmaps"), {"data": {"a": "", "b": ""}, "binaryData": {"c": ""}}, ["x", 3, "5m"]),
        (("", "v1", "namespaces"), {"status": {"phase": "Active"}}, ["x", "Active", "5m"]),
        (
            ("batch", "v1", "jobs"),
            {
                "spec": {"completions": 2},
                "status": {
                    "succeeded": 2,
                    "startTime": CREATED,
                    "completionTime": "2026-01-01T11:56:30Z",
                    "conditions": [{"type": "Complete", "status": "True"}],
                },
            },
            ["x", "Complete", "2/2", "90s", "5m", "", "", "<none>"],
        ),
        (
            ("networking.k8s.io", "v1", "ingresses"),
            {"spec": {"rules": [{"host": "a.example"}], "tls": [{}]}},
            ["x", "<none>", "a.example", "", "80, 443", "5m"],
        ),
        (
            ("autoscaling", "v2", "horizontalpodautoscalers"),
            {
                "spec": {
                    "scaleTargetRef": {"kind": "Deployment", "name": "d"},
                    "maxReplicas": 5,
                    "metrics": [
                        {
                            "type": "Resource",
                            "resource": {"name": "cpu", "target": {"averageUtilization": 80}},
                        }
                    ],
                }
            },
            ["x", "Deployment/d", "cpu: <unknown>/80%", "<unset>", 5, 0, "5m"],
        ),
        (
            ("", "v1", "resourcequotas"),
            {"status": {"hard": {"pods": "5", "limits.cpu": "1"}, "used": {"pods": "2"}}},
            ["x", "pods: 2/5", "limits.cpu: 0/1", "5m"],
        ),
        (("rbac.authorization.k8s.io", "v1", "roles"), {}, ["x", CREATED]),
    ],
)
def test_built_in_kinds_are_printed_as_the_real_server_does(
    where: tuple[str, str, str], obj: dict[str, Any], expected: list[Any]
) -> None:
    assert cells(*where, obj) == expected


def test_an_event_starts_with_the_time_it_was_last_seen() -> None:
    obj = {
        "involvedObject": {"kind": "Pod", "name": "p"},
        "type": "Normal",
        "reason": "Started",
        "message": " hello ",
        "lastTimestamp": "2026-01-01T11:59:30Z",
        "source": {"component": "kubelet", "host": "n"},
        "count": 2,
    }
    assert cells("", "v1", "events", obj)[:7] == [
        "30s",
        "Normal",
        "Started",
        "pod/p",
        "",
        "kubelet, n",
        "hello",
    ]


def widgets(columns: list[dict[str, Any]]) -> ResourceInfo:
    version = {"name": "v1", "served": True, "storage": True, "additionalPrinterColumns": columns}
    [info] = resources_of(
        {
            "metadata": {"name": "widgets.example.com"},
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": {"plural": "widgets", "kind": "Widget"},
                "versions": [version],
            },
        }
    )
    return info


def test_printer_columns_follow_their_json_paths() -> None:
    info = widgets(
        [
            {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
            {"name": "Since", "type": "date", "jsonPath": ".status.since"},
            {"name": "First", "type": "string", "jsonPath": ".spec.tags[0]"},
            {"name": "Map", "type": "string", "jsonPath": ".spec.map"},
            {"name": "Missing", "type": "string", "jsonPath": ".spec.nope"},
            {"name": "Label", "type": "string", "jsonPath": r".metadata.labels.example\.com/team"},
        ]
    )
    obj = {
        "metadata": {"labels": {"example.com/team": "blue"}},
        "spec": {"size": 3, "tags": ["a", "b"], "map": {"k": 1}},
        "status": {
            "since": "2026-01-01T10:00:00Z",
            "conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}],
        },
    }
    assert row(info, obj)["cells"] == ["x", "True", 3, "120m", "a", '{"k":1}', None, "blue"]


def test_a_custom_resource_without_columns_shows_its_age() -> None:
    assert row(widgets([]), {})["cells"] == ["x", "5m"]


def test_rows_contain_the_object_that_the_client_requests() -> None:
    info = REGISTRY.get("", "v1", "configmaps")
    assert row(info, {"data": {}})["object"]["kind"] == "PartialObjectMetadata"
    assert row(info, {"data": {}}, include="Object")["object"]["data"] == {}
    assert row(info, {"data": {}}, include="None")["object"] is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (119, "119s"),
        (125, "2m5s"),
        (600, "10m"),
        (3 * 3600, "3h"),
        (5 * 3600 + 60, "5h1m"),
        (47 * 3600, "47h"),
        (49 * 3600, "2d1h"),
        (30 * 86400, "30d"),
        (3 * 365 * 86400, "3y"),
        (9 * 365 * 86400, "9y"),
    ],
)
def test_ages_are_short(seconds: int, text: str) -> None:
    assert human_duration(timedelta(seconds=seconds)) == text


def test_a_signing_request_shows_its_signer_its_duration_and_its_state() -> None:
    spec = {"signerName": "example.com/signer", "username": "ada", "expirationSeconds": 7200}
    conditions = [{"type": "Approved"}, {"type": "Failed"}]
    obj = {"spec": spec, "status": {"conditions": conditions, "certificate": "x"}}
    shown = cells("certificates.k8s.io", "v1", "certificatesigningrequests", obj)
    assert shown == ["x", "5m", "example.com/signer", "ada", "120m", "Approved,Failed,Issued"]


@pytest.mark.parametrize(
    ("conditions", "missing"), [([], "?"), ([{"type": "Dangling", "status": "True"}], "True")]
)
def test_a_flow_schema_shows_whether_its_priority_level_is_missing(
    conditions: list[Any], missing: str
) -> None:
    spec = {"priorityLevelConfiguration": {"name": "exempt"}, "matchingPrecedence": 7}
    obj = {"spec": {**spec, "distinguisherMethod": {"type": "ByUser"}}, "status": {"conditions": conditions}}
    shown = cells("flowcontrol.apiserver.k8s.io", "v1", "flowschemas", obj)
    assert shown == ["x", "exempt", 7, "ByUser", "5m", missing]


def test_a_component_shows_its_health() -> None:
    healthy = {"conditions": [{"type": "Healthy", "status": "True", "message": "ok"}]}
    assert cells("", "v1", "componentstatuses", healthy) == ["x", "Healthy", "ok", ""]
    failing = {"conditions": [{"type": "Healthy", "status": "False", "error": "refused"}]}
    assert cells("", "v1", "componentstatuses", failing) == ["x", "Unhealthy", "", "refused"]
    assert cells("", "v1", "componentstatuses", {}) == ["x", "Unknown", "", ""]


def test_an_allocated_and_deleted_claim_shows_its_states() -> None:
    obj = {
        "metadata": {"deletionTimestamp": CREATED},
        "status": {"allocation": {}, "reservedFor": [{"name": "p"}]},
    }
    assert cells("resource.k8s.io", "v1", "resourceclaims", obj)[1] == "deleted,allocated,reserved"
