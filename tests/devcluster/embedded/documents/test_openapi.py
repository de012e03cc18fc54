"""OpenAPI documents for built-in kinds and live custom resources."""

from typing import Any

import msgspec
import pytest

from kapsa.devcluster.embedded.custom.resources import resources_of
from kapsa.devcluster.embedded.documents.openapi import OpenApi
from kapsa.devcluster.embedded.kinds.builtins import builtin_resources
from kapsa.devcluster.embedded.kinds.registry import ResourceRegistry
from kapsa.devcluster.wire.exchange import Reply, Request
from kapsa.devcluster.wire.status_errors import StatusError

WIDGET = "com.example.v1.Widget"


def widgets(text: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "description": text}}}
    return {
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
            ],
        },
    }


@pytest.fixture
def registry() -> ResourceRegistry:
    return ResourceRegistry(builtin_resources())


def ask(open_api: OpenApi, url: str, **headers: str) -> Reply:
    path, _, query = url.partition("?")
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    reply = open_api.answer(Request(method="GET", path=path, query=query, headers=names))
    assert reply is not None
    return reply


def read(open_api: OpenApi, url: str) -> dict[str, Any]:
    body = ask(open_api, url).body
    assert isinstance(body, bytes)
    document: dict[str, Any] = msgspec.json.decode(body)
    return document


def test_the_index_links_to_each_document(registry: ResourceRegistry) -> None:
    open_api = OpenApi(registry)
    paths = read(open_api, "/openapi/v3")["paths"]
    assert {"api/v1", "apis/apps/v1", "apis/batch/v1"} <= paths.keys()
    for entry in paths.values():
        reply = ask(open_api, entry["serverRelativeURL"])
        assert reply.status == 200
        assert reply.headers["cache-control"] == "public, immutable"


def test_all_references_of_a_document_resolve(registry: ResourceRegistry) -> None:
    document = OpenApi(registry).document("apps", "v1")
    text = msgspec.json.encode(document).decode()
    references = {part.partition('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert references <= document["components"]["schemas"].keys()


def test_a_stale_hash_is_redirected_and_a_known_etag_is_not_sent_again(registry: ResourceRegistry) -> None:
    open_api = OpenApi(registry)
    fresh = read(open_api, "/openapi/v3")["paths"]["apis/apps/v1"]["serverRelativeURL"]
    stale = ask(open_api, "/openapi/v3/apis/apps/v1?hash=OLD")
    assert (stale.status, stale.headers["location"]) == (301, fresh)
    etag = ask(open_api, fresh).headers["etag"]
    assert ask(open_api, fresh, if_none_match=etag).status == 304


def test_patch_operations_declare_field_validation(registry: ResourceRegistry) -> None:
    item = OpenApi(registry).document("apps", "v1")["paths"][
        "/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
    ]
    patch = item["patch"]
    assert patch["x-kubernetes-group-version-kind"] == {
        "group": "apps",
        "version": "v1",
        "kind": "Deployment",
    }
    assert {"fieldValidation", "dryRun", "force"} <= {parameter["name"] for parameter in patch["parameters"]}
    assert "application/apply-patch+yaml" in patch["requestBody"]["content"]


def test_schemas_carry_list_types_and_merge_keys(registry: ResourceRegistry) -> None:
    schemas = OpenApi(registry).document("", "v1")["components"]["schemas"]
    containers = schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    assert containers["x-kubernetes-list-map-keys"] == ["name"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert schemas["io.k8s.api.core.v1.Pod"]["x-kubernetes-group-version-kind"] == [
        {"group": "", "kind": "Pod", "version": "v1"}
    ]


def test_descriptions_of_custom_resources_follow_their_definition(registry: ResourceRegistry) -> None:
    open_api = OpenApi(registry)
    assert ask(open_api, "/openapi/v3/apis/example.com/v1").status == 404
    [first] = resources_of(widgets("how big"))
    registry.add(first)
    document = read(open_api, "/openapi/v3/apis/example.com/v1")
    schema = document["components"]["schemas"][WIDGET]
    assert schema["properties"]["spec"]["description"] == "how big"
    assert schema["x-kubernetes-group-version-kind"][0]["kind"] == "Widget"
    before = read(open_api, "/openapi/v3")["paths"]["apis/example.com/v1"]
    [second] = resources_of(widgets("how small"))
    registry.add(second)
    assert read(open_api, "/openapi/v3")["paths"]["apis/example.com/v1"] != before


def test_version_2_is_one_document(registry: ResourceRegistry) -> None:
    document = read(OpenApi(registry), "/openapi/v2")
    assert document["swagger"] == "2.0"
    pod = document["definitions"]["io.k8s.api.core.v1.Pod"]
    assert pod["properties"]["spec"]["$ref"] == "#/definitions/io.k8s.api.core.v1.PodSpec"


def test_a_client_that_accepts_only_protobuf_for_version_3_is_rejected(registry: ResourceRegistry) -> None:
    accept = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"
    with pytest.raises(StatusError) as refused:
        ask(OpenApi(registry), "/openapi/v3/apis/apps/v1", accept=accept)
    assert refused.value.code == 406


@pytest.mark.parametrize("name", ["v2@v1.0", "v2.v1.0"])
def test_version_2_is_served_as_protobuf_with_the_custom_kinds(registry: ResourceRegistry, name: str):
    for info in resources_of(widgets("What is wanted.")):
        registry.add(info)
    reply = ask(
        OpenApi(registry), "/openapi/v2", accept=f"application/com.github.proto-openapi.spec.{name}+protobuf"
    )
    assert reply.headers["content-type"] == "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
    assert isinstance(reply.body, bytes)
    assert reply.body.startswith(b"\x0a\x032.0")
    assert WIDGET.encode() in reply.body
    assert b'"kind":"Deployment"' in reply.body


def test_built_in_fields_have_descriptions(registry: ResourceRegistry) -> None:
    schemas = read(OpenApi(registry), "/openapi/v3/apis/apps/v1")["components"]["schemas"]
    kind = schemas["io.k8s.api.apps.v1.Deployment"]
    assert kind["description"] == "Deployment enables declarative updates for Pods and ReplicaSets."
    described = [name for name, schema in schemas.items() if schema.get("description")]
    assert len(described) > 0.9 * len(schemas)
    assert (
        "number of desired pods"
        in schemas["io.k8s.api.apps.v1.DeploymentSpec"]["properties"]["replicas"]["description"].lower()
    )
