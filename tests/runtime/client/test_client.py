"""The client's methods on a fake transport: the requests they send, and the results they return."""

from typing import Any

import msgspec
import pytest

from kapsa.runtime import errors
from kapsa.runtime.client.http.transport import Response
from kapsa.runtime.resources.metadata import ObjectMeta
from tests.runtime.client.fake_transport import (
    APP,
    App,
    AppSpec,
    FakeTransport,
    Service,
    client_with,
    error_response,
    ok,
)

# Reading


async def test_a_kind_given_as_a_class_is_read_into_that_class_without_discovery() -> None:
    transport = FakeTransport(ok(APP))
    app = await client_with(transport).get(App, "web", namespace="shop")
    assert isinstance(app, App)
    assert app.spec == AppSpec(image="nginx", replicas=3)
    assert transport.requests[0].path == "/apis/example.com/v1/namespaces/shop/apps/web"


async def test_a_kind_given_as_a_string_is_read_as_a_dict() -> None:
    transport = FakeTransport(ok({"kind": "Service", "metadata": {"name": "web"}}))
    service = await client_with(transport).get("v1/Service", "web")
    assert service["metadata"]["name"] == "web"
    assert transport.requests[0].path == "/api/v1/namespaces/home/services/web"


async def test_a_struct_that_declares_its_kind_can_be_read() -> None:
    transport = FakeTransport(
        ok({"kind": "Service", "metadata": {"name": "web"}, "spec": {"type": "ClusterIP"}})
    )
    service = await client_with(transport).get(Service, "web")
    assert service.spec == {"type": "ClusterIP"}


async def test_a_cluster_scoped_kind_has_no_namespace_in_its_path() -> None:
    transport = FakeTransport(ok({}))
    await client_with(transport).get("v1/Node", "n1", namespace="ignored")
    assert transport.requests[0].path == "/api/v1/nodes/n1"


async def test_into_reads_an_object_as_another_type() -> None:
    class OnlyMetadata(msgspec.Struct):
        metadata: ObjectMeta

    transport = FakeTransport(ok(APP), ok(APP))
    client = client_with(transport)
    assert (await client.get(App, "web", into=OnlyMetadata)).metadata.resource_version == "5"
    assert msgspec.json.decode(await client.get(App, "web", into=bytes)) == APP


async def test_the_error_for_an_object_that_does_not_fit_names_the_object_and_the_field() -> None:
    transport = FakeTransport(ok({"metadata": {"name": "web", "namespace": "shop"}, "spec": 7}))
    with pytest.raises(errors.DecodeError, match=r"Service shop/web does not fit Service: .*\$\.spec"):
        await client_with(transport).get(Service, "web")


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b'{"items": 5}', b"[" * 200_000, b'{"items":' + b"[" * 200_000]
)
async def test_a_response_that_is_not_an_object_is_a_decode_error(body: bytes) -> None:
    client = client_with(
        FakeTransport(*[Response(200, {}, body)] * 2, [b'{"type":"ADDED","object":' + body + b"}\n"])
    )
    with pytest.raises(errors.DecodeError):
        await client.list("v1/Service")
    with pytest.raises(errors.DecodeError):
        await client.get(Service, "web")
    with pytest.raises((errors.DecodeError, errors.TransportError)):
        await anext(client.watch(Service))


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a%2fb"])
async def test_a_name_that_would_change_the_path_is_rejected(name: str) -> None:
    transport = FakeTransport()
    with pytest.raises(ValueError, match="is not a valid name"):
        await client_with(transport).delete(App, name)
    assert transport.requests == []


async def test_a_name_with_special_characters_stays_one_segment_of_the_path() -> None:
    transport = FakeTransport(ok({}), ok({}))
    client = client_with(transport)
    await client.get("v1/Node", "system:node")
    await client.get("v1/Node", "a b?c")
    assert [request.path for request in transport.requests] == [
        "/api/v1/nodes/system:node",
        "/api/v1/nodes/a%20b%3Fc",
    ]


async def test_a_list_is_read_in_pages_of_500_and_carries_the_resource_version() -> None:
    first = {"metadata": {"resourceVersion": "9", "continue": "more"}, "items": [APP]}
    second = {"metadata": {"resourceVersion": "9"}, "items": [APP, APP]}
    transport = FakeTransport(ok(first), ok(second))
    apps = await client_with(transport).list(App, label_selector={"b": "2", "a": "1"}, resource_version="0")
    assert [app.name for app in apps.items] == ["web", "web", "web"]
    assert apps.resource_version == "9"
    assert transport.requests[0].path == "/apis/example.com/v1/apps"
    assert transport.requests[0].query == {"labelSelector": "a=1,b=2", "resourceVersion": "0", "limit": "500"}
    assert transport.requests[1].query == {"labelSelector": "a=1,b=2", "limit": "500", "continue": "more"}
    assert transport.requests[0].headers["Accept-Encoding"] == "gzip"


async def test_items_of_an_untyped_list_get_their_kind_back() -> None:
    transport = FakeTransport(ok({"metadata": {}, "items": [{"metadata": {"name": "a"}}]}))
    services = await client_with(transport).list("v1/Service", namespace="shop")
    assert services.items[0] == {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}}
    assert transport.requests[0].path == "/api/v1/namespaces/shop/services"


async def test_a_list_whose_continue_token_expired_is_read_again_on_one_page() -> None:
    first = {"metadata": {"resourceVersion": "9", "continue": "more"}, "items": [APP]}
    whole = {"metadata": {"resourceVersion": "12"}, "items": [APP, APP]}
    transport = FakeTransport(ok(first), error_response(410, "Expired"), ok(whole))
    apps = await client_with(transport).list(App)
    assert (len(apps.items), apps.resource_version) == (2, "12")
    assert "limit" not in transport.requests[2].query


async def test_pages_raise_expired_when_the_continue_token_expired() -> None:
    first = {"metadata": {"continue": "more"}, "items": [APP]}
    transport = FakeTransport(ok(first), error_response(410, "Expired"))
    pages = client_with(transport).pages(App)
    assert len((await anext(pages)).items) == 1
    with pytest.raises(errors.Expired):
        await anext(pages)


# Writing


async def test_create_returns_the_type_of_its_argument() -> None:
    transport = FakeTransport(ok(APP, 201), ok(APP, 201))
    client = client_with(transport)
    created = await client.create(
        App(metadata=ObjectMeta(name="web", namespace="shop"), spec=AppSpec(image="nginx"))
    )
    assert isinstance(created, App)
    assert created.metadata.resource_version == "5"
    assert await client.create(APP) == APP
    assert {(s.method, s.path) for s in transport.requests} == {
        ("POST", "/apis/example.com/v1/namespaces/shop/apps")
    }
    assert msgspec.json.decode(transport.requests[0].body)["spec"] == {"image": "nginx", "replicas": 1}
    assert transport.requests[0].query == {"fieldManager": "tester"}


@pytest.mark.parametrize(
    ("kind", "patch", "media"),
    [
        ("merge", {"spec": {"replicas": 2}}, "application/merge-patch+json"),
        ("json", [{"op": "remove", "path": "/spec/x"}], "application/json-patch+json"),
        ("strategic", {"spec": {"ports": []}}, "application/strategic-merge-patch+json"),
    ],
)
async def test_each_patch_type_has_its_media_type(kind: Any, patch: Any, media: str) -> None:
    transport = FakeTransport(ok(APP))
    await client_with(transport).patch(App, "web", patch, namespace="shop", type=kind, subresource="status")
    request = transport.requests[0]
    assert (request.method, request.path) == ("PATCH", "/apis/example.com/v1/namespaces/shop/apps/web/status")
    assert request.headers["Content-Type"] == media
    assert msgspec.json.decode(request.body) == patch


async def test_apply_sends_field_manager_force_and_dry_run() -> None:
    transport = FakeTransport(ok(APP))
    await client_with(transport).apply(APP, force=True, dry_run=True, field_validation="Strict")
    request = transport.requests[0]
    assert request.headers["Content-Type"] == "application/apply-patch+yaml"
    assert request.query == {
        "fieldManager": "tester", "force": "true", "dryRun": "All", "fieldValidation": "Strict",
    }  # fmt: skip


async def test_apply_makes_the_server_parse_the_body_once() -> None:
    transport = FakeTransport(ok(APP))
    await client_with(transport).apply(APP)
    assert transport.requests[0].query == {"fieldManager": "tester", "fieldValidation": "Ignore"}


async def test_delete_sends_preconditions_grace_period_and_propagation() -> None:
    transport = FakeTransport(ok({"status": "Success"}))
    deleted = await client_with(transport).delete(
        App,
        "web",
        namespace="shop",
        uid="u1",
        resource_version="7",
        grace_seconds=0,
        propagation="Foreground",
    )
    assert deleted is True
    assert msgspec.json.decode(transport.requests[0].body) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Foreground",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "u1", "resourceVersion": "7"},
    }


async def test_deleting_an_object_that_does_not_exist_is_an_error_unless_missing_ok() -> None:
    client = client_with(
        FakeTransport(
            error_response(404, "NotFound", name="web"), error_response(404, "NotFound", name="web")
        )
    )
    with pytest.raises(errors.NotFound):
        await client.delete(App, "web")
    assert await client.delete(App, "web", missing_ok=True) is False


async def test_delete_collection_sends_namespace_and_selectors() -> None:
    transport = FakeTransport(ok({}))
    await client_with(transport).delete_collection(App, namespace="shop", label_selector="a=b")
    assert (transport.requests[0].method, transport.requests[0].path) == (
        "DELETE",
        "/apis/example.com/v1/namespaces/shop/apps",
    )
    assert transport.requests[0].query == {"labelSelector": "a=b"}


async def test_scale_uses_the_scale_subresource() -> None:
    transport = FakeTransport(ok({"kind": "Scale", "spec": {"replicas": 4}}))
    assert (await client_with(transport).scale(App, "web", 4, namespace="shop"))["kind"] == "Scale"
    assert transport.requests[0].path == "/apis/example.com/v1/namespaces/shop/apps/web/scale"
