"""Discovery of the resources behind kinds, in a cluster that changes."""

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from kapsa.runtime.client.discovery import Discovery
from kapsa.runtime.errors import ApiStatus, NotFound, TransportError, UnknownKind
from kapsa.runtime.resources.api_resource import ApiResource
from kapsa.runtime.resources.metadata import GroupVersionKind

APPS = {
    "resources": [
        {
            "name": "deployments",
            "singularName": "deployment",
            "kind": "Deployment",
            "namespaced": True,
            "verbs": ["get", "list"],
            "shortNames": ["deploy"],
        },
        {"name": "deployments/scale", "kind": "Scale", "namespaced": True, "group": "autoscaling"},
        {"name": "deployments/status", "kind": "Deployment", "namespaced": True},
    ]
}
DEPLOYMENT = ApiResource(
    group="apps",
    version="v1",
    kind="Deployment",
    plural="deployments",
    namespaced=True,
    verbs=("get", "list"),
    subresources=("scale", "status"),
    singular="deployment",
    short_names=("deploy",),
)


class Clock:
    time = 0.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.time, UTC)

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


class FakeCluster:
    """A cluster that serves discovery documents by path."""

    def __init__(self, **documents: Any) -> None:
        self.documents = {f"/{path.replace('__', '/')}": body for path, body in documents.items()}
        self.requested: list[str] = []

    async def fetch(self, path: str, accept: str) -> bytes:
        self.requested.append(path)
        await asyncio.sleep(0)
        if path not in self.documents:
            raise NotFound(ApiStatus("Failure", "404 page not found", "", 404))
        document = self.documents[path]
        if isinstance(document, Exception):
            raise document
        return json.dumps(document).encode()


def kind(text: str) -> GroupVersionKind:
    return GroupVersionKind.parse(text)


async def test_a_kind_is_resolved_with_its_plural_scope_and_subresources() -> None:
    cluster = FakeCluster(apis__apps__v1=APPS)
    discovery = Discovery(cluster.fetch, clock=Clock())
    assert await discovery.resource(kind("apps/v1/Deployment")) == DEPLOYMENT


async def test_a_group_version_is_requested_once_for_many_callers() -> None:
    cluster = FakeCluster(apis__apps__v1=APPS)
    discovery = Discovery(cluster.fetch, clock=Clock())
    await asyncio.gather(*(discovery.resource(kind("apps/v1/Deployment")) for _ in range(20)))
    assert cluster.requested == ["/apis/apps/v1"]


async def test_a_crd_installed_later_is_discovered_with_few_requests() -> None:
    cluster, clock = FakeCluster(), Clock()
    discovery = Discovery(cluster.fetch, clock=clock, refresh_after=2)
    app = kind("example.com/v1/App")
    for _ in range(10):
        with pytest.raises(
            UnknownKind, match=r"does not serve example.com/v1/App: install its CustomResource"
        ):
            await discovery.resource(app)
    assert len(cluster.requested) == 1
    cluster.documents["/apis/example.com/v1"] = {
        "resources": [{"name": "apps", "kind": "App", "namespaced": True}]
    }
    clock.time = 2.0
    assert (await discovery.resource(app)).plural == "apps"


async def test_a_failing_server_is_not_mistaken_for_a_missing_kind() -> None:
    cluster = FakeCluster(apis__apps__v1=TransportError("reset"))
    discovery = Discovery(cluster.fetch, clock=Clock())
    with pytest.raises(TransportError):
        await discovery.resource(kind("apps/v1/Deployment"))
    cluster.documents["/apis/apps/v1"] = APPS
    assert await discovery.resource(kind("apps/v1/Deployment")) == DEPLOYMENT


async def test_all_resources_are_listed_from_aggregated_discovery_in_two_requests() -> None:
    aggregated = {
        "kind": "APIGroupDiscoveryList",
        "items": [
            {
                "metadata": {"name": "apps"},
                "versions": [
                    {
                        "version": "v1",
                        "resources": [
                            {
                                "resource": "deployments",
                                "responseKind": {"group": "", "version": "", "kind": "Deployment"},
                                "scope": "Namespaced",
                                "singularResource": "deployment",
                                "verbs": ["get", "list"],
                                "shortNames": ["deploy"],
                                "subresources": [{"subresource": "scale"}, {"subresource": "status"}],
                            }
                        ],
                    }
                ],
            }
        ],
    }
    cluster = FakeCluster(api={"kind": "APIGroupDiscoveryList", "items": []}, apis=aggregated)
    discovery = Discovery(cluster.fetch, clock=Clock())
    assert await discovery.resources() == [DEPLOYMENT]
    assert await discovery.resource(kind("apps/v1/Deployment")) == DEPLOYMENT
    assert cluster.requested == ["/api", "/apis"]


async def test_all_resources_are_listed_without_aggregated_discovery() -> None:
    cluster = FakeCluster(
        api={"kind": "APIVersions", "versions": ["v1"]},
        apis={"kind": "APIGroupList", "groups": [{"versions": [{"groupVersion": "apps/v1"}]}]},
        api__v1={"resources": [{"name": "nodes", "kind": "Node", "namespaced": False}]},
        apis__apps__v1=APPS,
    )
    resources = await Discovery(cluster.fetch, clock=Clock()).resources()
    assert [resource.plural for resource in resources] == ["nodes", "deployments"]
    assert [resource.path for resource in resources] == ["/api/v1", "/apis/apps/v1"]
