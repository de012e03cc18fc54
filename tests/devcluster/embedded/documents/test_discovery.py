"""Discovery follows the registry, in one document or in many."""

from typing import Any

import msgspec
import pytest

from kapsa.devcluster.embedded.authentication.tokens import Tokens
from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.custom.resources import resources_of
from kapsa.devcluster.embedded.documents.discovery import DiscoveryDocuments
from kapsa.devcluster.embedded.documents.metrics import RequestMetrics
from kapsa.devcluster.embedded.documents.router import Documents
from kapsa.devcluster.embedded.kinds.builtins import builtin_resources
from kapsa.devcluster.embedded.kinds.registry import ResourceRegistry
from kapsa.devcluster.embedded.kinds.versions import version_priority
from kapsa.devcluster.wire.exchange import Reply, Request
from kapsa.devcluster.wire.status_errors import PlainError, StatusError

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
WIDGETS = {
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "versions": [
            {"name": "v1alpha1", "served": True, "storage": False},
            {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}},
            {"name": "v0", "served": False, "storage": False},
        ],
    },
}


@pytest.fixture
def registry() -> ResourceRegistry:
    return ResourceRegistry(builtin_resources())


def ask(target: DiscoveryDocuments | Documents, path: str, **headers: str) -> Reply:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    reply = target.answer(Request(method="GET", path=path, headers=names))
    assert reply is not None
    return reply


def read(target: DiscoveryDocuments | Documents, path: str, **headers: str) -> dict[str, Any]:
    body = ask(target, path, **headers).body
    assert isinstance(body, bytes)
    document: dict[str, Any] = msgspec.json.decode(body)
    return document


def test_the_core_group_and_the_named_groups_are_listed(registry: ResourceRegistry) -> None:
    discovery = DiscoveryDocuments(registry)
    assert read(discovery, "/api")["versions"] == ["v1"]
    groups = {group["name"]: group for group in read(discovery, "/apis")["groups"]}
    assert groups["autoscaling"]["preferredVersion"]["groupVersion"] == "autoscaling/v2"
    assert read(discovery, "/apis/apps")["kind"] == "APIGroup"


def test_a_resource_list_has_subresources_next_to_their_resource(registry: ResourceRegistry) -> None:
    listed = read(DiscoveryDocuments(registry), "/apis/apps/v1")
    assert listed["groupVersion"] == "apps/v1"
    names = [entry["name"] for entry in listed["resources"]]
    assert names[names.index("deployments") :][:3] == [
        "deployments",
        "deployments/scale",
        "deployments/status",
    ]
    deployments = next(entry for entry in listed["resources"] if entry["name"] == "deployments")
    assert deployments == {
        "name": "deployments",
        "singularName": "deployment",
        "namespaced": True,
        "kind": "Deployment",
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        "shortNames": ["deploy"],
        "categories": ["all"],
        "storageVersionHash": "8aSe+NMegvE=",
    }


def test_aggregated_discovery_has_all_groups_and_can_be_cached(registry: ResourceRegistry) -> None:
    discovery = DiscoveryDocuments(registry)
    reply = ask(discovery, "/apis", accept=f"{AGGREGATED},application/json")
    assert reply.headers["content-type"] == AGGREGATED
    assert isinstance(reply.body, bytes)
    document = msgspec.json.decode(reply.body)
    assert document["kind"] == "APIGroupDiscoveryList"
    apps = next(item for item in document["items"] if item["metadata"]["name"] == "apps")
    assert {"daemonsets", "deployments"} <= {each["resource"] for each in apps["versions"][0]["resources"]}
    again = ask(discovery, "/apis", accept=AGGREGATED, if_none_match=reply.headers["etag"])
    assert (again.status, again.body) == (304, b"")


def test_an_older_client_gets_the_form_it_requests(registry: ResourceRegistry) -> None:
    discovery = DiscoveryDocuments(registry)
    assert read(discovery, "/apis", accept=AGGREGATED.replace("v=v2", "v=v2beta1"))["apiVersion"].endswith(
        "/v2beta1"
    )
    assert read(discovery, "/apis", accept="application/json")["kind"] == "APIGroupList"
    with pytest.raises(StatusError) as refused:
        ask(discovery, "/apis", accept=AGGREGATED.replace("v=v2", "v=v3"))
    assert refused.value.code == 406


def test_custom_resources_appear_and_disappear(registry: ResourceRegistry) -> None:
    discovery = DiscoveryDocuments(registry)
    before = ask(discovery, "/apis", accept=AGGREGATED).headers["etag"]
    for info in resources_of(WIDGETS):
        registry.add(info)
    group = read(discovery, "/apis/example.com")
    assert [version["version"] for version in group["versions"]] == ["v1", "v1alpha1"]
    names = [entry["name"] for entry in read(discovery, "/apis/example.com/v1")["resources"]]
    assert names == ["widgets", "widgets/status"]
    assert ask(discovery, "/apis", accept=AGGREGATED).headers["etag"] != before
    for info in resources_of(WIDGETS):
        registry.remove(info.group, info.version, info.resource)
    assert ask(discovery, "/apis", accept=AGGREGATED).headers["etag"] == before


def test_versions_are_preferred_as_kubernetes_does() -> None:
    versions = ["v1alpha1", "foo", "v1", "v10", "v2beta1", "v1beta2", "v2", "v1beta1"]
    assert sorted(versions, key=version_priority) == [
        "v10",
        "v2",
        "v1",
        "v2beta1",
        "v1beta2",
        "v1beta1",
        "v1alpha1",
        "foo",
    ]


def documents_of(registry: ResourceRegistry) -> Documents:
    backend = Backend()
    return Documents(registry, Tokens(backend), RequestMetrics(registry), backend.store)


def test_health_and_version_are_served(registry: ResourceRegistry) -> None:
    documents = documents_of(registry)
    assert ask(documents, "/readyz").body == b"ok"
    assert ask(documents, "/livez/ping").body == b"ok"
    verbose = documents.answer(Request(method="GET", path="/healthz", query="verbose"))
    assert isinstance(verbose.body, bytes)
    assert verbose.body.startswith(b"[+]ping ok\n")
    assert verbose.body.endswith(b"healthz check passed\n")
    assert read(documents, "/version")["minor"] == "36"
    assert "/apis/apps/v1" in read(documents, "/")["paths"]


def test_unknown_paths_and_versions_are_not_found(registry: ResourceRegistry) -> None:
    documents = documents_of(registry)
    with pytest.raises(PlainError) as page:
        documents.answer(Request(method="GET", path="/apis/nope"))
    assert page.value.code == 404
    with pytest.raises(StatusError) as version:
        documents.answer(Request(method="GET", path="/apis/apps/v9"))
    assert version.value.code == 404
