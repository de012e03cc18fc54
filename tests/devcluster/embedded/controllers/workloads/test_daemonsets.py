"""DaemonSets: a pod on each eligible node."""

from __future__ import annotations

from typing import Any

import pytest

from tests.devcluster.embedded.controllers.client import ObjectClient, template

pytestmark = pytest.mark.virtual_time


def daemon(**more: Any) -> dict[str, Any]:
    return {"selector": {"matchLabels": {"app": "web"}}, "template": template(), **more}


def nodes(client: ObjectClient) -> list[str]:
    return sorted(p["spec"]["nodeName"] for p in client.list("pods"))


async def test_each_node_gets_a_pod_including_one_added_later(client: ObjectClient) -> None:
    await client.create("nodes", "node-2")
    await client.create("daemonsets", "agent", daemon())
    await client.settle(1)
    assert nodes(client) == ["node-1", "node-2"]
    await client.create("nodes", "node-3")
    await client.settle(1)
    assert nodes(client) == ["node-1", "node-2", "node-3"]
    status = client.get("daemonsets", "agent")["status"]
    assert status == {
        "currentNumberScheduled": 3,
        "desiredNumberScheduled": 3,
        "numberAvailable": 3,
        "numberMisscheduled": 0,
        "numberReady": 3,
        "observedGeneration": 1,
        "updatedNumberScheduled": 3,
    }


async def test_a_node_that_does_not_match_or_has_a_taint_gets_no_pod(client: ObjectClient) -> None:
    await client.create("nodes", "tainted", {"taints": [{"key": "gpu", "effect": "NoSchedule"}]})
    await client.create("nodes", "labelled", metadata={"labels": {"role": "edge"}})
    await client.create("daemonsets", "agent", daemon())
    await client.create(
        "daemonsets",
        "edge",
        {
            "selector": {"matchLabels": {"app": "edge"}},
            "template": {
                "metadata": {"labels": {"app": "edge"}},
                "spec": {"nodeSelector": {"role": "edge"}, "containers": [{"name": "c", "image": "app:1"}]},
            },
        },
    )
    await client.settle(1)
    assert [p["spec"]["nodeName"] for p in client.list("pods", labels="app=edge")] == ["labelled"]
    general = sorted(p["spec"]["nodeName"] for p in client.list("pods", labels="app=web"))
    assert general == ["labelled", "node-1"]


async def test_an_update_replaces_one_node_at_a_time(client: ObjectClient) -> None:
    for number in (2, 3):
        await client.create("nodes", f"node-{number}")
    await client.create("daemonsets", "agent", daemon())
    await client.settle(1)
    client.workloads.delay(ready=10)
    await client.change("daemonsets", "agent", template=template("app:2"))
    updated = []
    for _ in range(4):
        await client.settle(8)
        updated.append(sum(p["spec"]["containers"][0]["image"] == "app:2" for p in client.list("pods")))
    assert updated == [1, 2, 3, 3]
    labels = client.list("pods")[0]["metadata"]["labels"]
    assert labels["pod-template-generation"] == "2"
    revisions = client.list("controllerrevisions")
    assert sorted(r["revision"] for r in revisions) == [1, 2]
    newest = max(revisions, key=lambda r: r["revision"])
    assert newest["metadata"]["labels"]["controller-revision-hash"] == labels["controller-revision-hash"]


async def test_daemon_pods_stay_on_a_node_that_is_cordoned(client: ObjectClient) -> None:
    await client.create("daemonsets", "agent", daemon())
    await client.settle(1)
    before = client.names("pods")
    await client.change("nodes", "node-1", unschedulable=True)
    await client.settle(600)
    assert client.names("pods") == before
