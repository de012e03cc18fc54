"""The client's verbs over a transport that answers from a script: what is sent, and what comes of the answer."""

from typing import Any

import msgspec
import pytest

from kapsa.runtime import errors
from kapsa.runtime.client.http.transport import Response
from kapsa.runtime.resources.metadata import ObjectMeta
from tests.runtime.scripted import APP, App, AppSpec, Script, Service, client_of, ok, refusal

# Reading


async def test_a_kind_given_as_a_class_is_read_into_that_class_without_asking_discovery() -> None:
    script = Script(ok(APP))
    app = await client_of(script).get(App, "web", namespace="shop")
    assert isinstance(app, App)
    assert app.spec == AppSpec(image="nginx", replicas=3)
    assert script.sent[0].path == "/apis/example.com/v1/namespaces/shop/apps/web"


async def test_a_kind_given_as_text_is_read_as_a_dict() -> None:
    script = Script(ok({"kind": "Service", "metadata": {"name": "web"}}))
    service = await client_of(script).get("v1/Service", "web")
    assert service["metadata"]["name"] == "web"
    assert script.sent[0].path == "/api/v1/namespaces/home/services/web"


async def test_any_struct_that_names_its_kind_can_be_read() -> None:
    script = Script(ok({"kind": "Service", "metadata": {"name": "web"}, "spec": {"type": "ClusterIP"}}))
    service = await client_of(script).get(Service, "web")
    assert service.spec == {"type": "ClusterIP"}


async def test_a_cluster_scoped_kind_has_no_namespace_in_its_path() -> None:
    script = Script(ok({}))
    await client_of(script).get("v1/Node", "n1", namespace="ignored")
    assert script.sent[0].path == "/api/v1/nodes/n1"


async def test_into_reads_an_object_as_another_type() -> None:
    class OnlyMetadata(msgspec.Struct):
        metadata: ObjectMeta

    script = Script(ok(APP), ok(APP))
    client = client_of(script)
    assert (await client.get(App, "web", into=OnlyMetadata)).metadata.resource_version == "5"
    assert msgspec.json.decode(await client.get(App, "web", into=bytes)) == APP


async def test_an_object_that_does_not_fit_the_struct_is_named_with_the_field() -> None:
    script = Script(ok({"metadata": {"name": "web", "namespace": "shop"}, "spec": 7}))
    with pytest.raises(errors.DecodeError, match=r"Service shop/web does not fit Service: .*\$\.spec"):
        await client_of(script).get(Service, "web")


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b'{"items": 5}', b"[" * 200_000, b'{"items":' + b"[" * 200_000]
)
async def test_an_answer_that_is_no_object_is_a_decode_error_not_a_crash(body: bytes) -> None:
    client = client_of(Script(*[Response(200, {}, body)] * 2, [b'{"type":"ADDED","object":' + body + b"}\n"]))
    with pytest.raises(errors.DecodeError):
        await client.list("v1/Service")
    with pytest.raises(errors.DecodeError):
        await client.get(Service, "web")
    with pytest.raises((errors.DecodeError, errors.TransportError)):
        await anext(client.watch(Service))


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a%2fb"])
async def test_a_name_that_would_change_the_path_is_refused(name: str) -> None:
    script = Script()
    with pytest.raises(ValueError, match="is not a valid name"):
        await client_of(script).delete(App, name)
    assert script.sent == []


async def test_a_name_with_a_colon_or_an_odd_character_stays_one_segment() -> None:
    script = Script(ok({}), ok({}))
    client = client_of(script)
    await client.get("v1/Node", "system:node")
    await client.get("v1/Node", "a b?c")
    assert [sent.path for sent in script.sent] == ["/api/v1/nodes/system:node", "/api/v1/nodes/a%20b%3Fc"]


async def test_a_list_is_read_in_pages_of_500_and_carries_the_resource_version() -> None:
    first = {"metadata": {"resourceVersion": "9", "continue": "more"}, "items": [APP]}
    second = {"metadata": {"resourceVersion": "9"}, "items": [APP, APP]}
    script = Script(ok(first), ok(second))
    apps = await client_of(script).list(App, label_selector={"b": "2", "a": "1"}, resource_version="0")
    assert [app.name for app in apps.items] == ["web", "web", "web"]
    assert apps.resource_version == "9"
    assert script.sent[0].path == "/apis/example.com/v1/apps"
    assert script.sent[0].query == {"labelSelector": "a=1,b=2", "resourceVersion": "0", "limit": "500"}
    assert script.sent[1].query == {"labelSelector": "a=1,b=2", "limit": "500", "continue": "more"}
    assert script.sent[0].headers["Accept-Encoding"] == "gzip"


async def test_items_of_an_untyped_list_get_their_kind_back() -> None:
    script = Script(ok({"metadata": {}, "items": [{"metadata": {"name": "a"}}]}))
    services = await client_of(script).list("v1/Service", namespace="shop")
    assert services.items[0] == {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}}
    assert script.sent[0].path == "/api/v1/namespaces/shop/services"


async def test_a_list_whose_place_was_forgotten_is_read_again_at_once() -> None:
    first = {"metadata": {"resourceVersion": "9", "continue": "more"}, "items": [APP]}
    whole = {"metadata": {"resourceVersion": "12"}, "items": [APP, APP]}
    script = Script(ok(first), refusal(410, "Expired"), ok(whole))
    apps = await client_of(script).list(App)
    assert (len(apps.items), apps.resource_version) == (2, "12")
    assert "limit" not in script.sent[2].query


async def test_pages_raise_when_the_place_was_forgotten() -> None:
    first = {"metadata": {"continue": "more"}, "items": [APP]}
    script = Script(ok(first), refusal(410, "Expired"))
    pages = client_of(script).pages(App)
    assert len((await anext(pages)).items) == 1
    with pytest.raises(errors.Expired):
        await anext(pages)


# Writing


async def test_create_takes_and_returns_what_it_was_given_dict_or_class() -> None:
    script = Script(ok(APP, 201), ok(APP, 201))
    client = client_of(script)
    made = await client.create(
        App(metadata=ObjectMeta(name="web", namespace="shop"), spec=AppSpec(image="nginx"))
    )
    assert isinstance(made, App)
    assert made.metadata.resource_version == "5"
    assert await client.create(APP) == APP
    assert {(s.method, s.path) for s in script.sent} == {
        ("POST", "/apis/example.com/v1/namespaces/shop/apps")
    }
    assert msgspec.json.decode(script.sent[0].body)["spec"] == {"image": "nginx", "replicas": 1}
    assert script.sent[0].query == {"fieldManager": "tester"}


@pytest.mark.parametrize(
    ("kind", "patch", "media"),
    [
        ("merge", {"spec": {"replicas": 2}}, "application/merge-patch+json"),
        ("json", [{"op": "remove", "path": "/spec/x"}], "application/json-patch+json"),
        ("strategic", {"spec": {"ports": []}}, "application/strategic-merge-patch+json"),
    ],
)
async def test_each_kind_of_patch_has_its_media_type(kind: Any, patch: Any, media: str) -> None:
    script = Script(ok(APP))
    await client_of(script).patch(App, "web", patch, namespace="shop", type=kind, subresource="status")
    sent = script.sent[0]
    assert (sent.method, sent.path) == ("PATCH", "/apis/example.com/v1/namespaces/shop/apps/web/status")
    assert sent.headers["Content-Type"] == media
    assert msgspec.json.decode(sent.body) == patch


async def test_apply_sends_field_manager_force_and_dry_run() -> None:
    script = Script(ok(APP))
    await client_of(script).apply(APP, force=True, dry_run=True, field_validation="Strict")
    sent = script.sent[0]
    assert sent.headers["Content-Type"] == "application/apply-patch+yaml"
    assert sent.query == {
        "fieldManager": "tester", "force": "true", "dryRun": "All", "fieldValidation": "Strict",
    }  # fmt: skip


async def test_apply_has_the_server_parse_its_text_once() -> None:
    script = Script(ok(APP))
    await client_of(script).apply(APP)
    assert script.sent[0].query == {"fieldManager": "tester", "fieldValidation": "Ignore"}


async def test_delete_carries_its_preconditions_grace_and_propagation() -> None:
    script = Script(ok({"status": "Success"}))
    deleted = await client_of(script).delete(
        App,
        "web",
        namespace="shop",
        uid="u1",
        resource_version="7",
        grace_seconds=0,
        propagation="Foreground",
    )
    assert deleted is True
    assert msgspec.json.decode(script.sent[0].body) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Foreground",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "u1", "resourceVersion": "7"},
    }


async def test_deleting_what_is_not_there_is_an_error_unless_that_is_fine() -> None:
    client = client_of(Script(refusal(404, "NotFound", name="web"), refusal(404, "NotFound", name="web")))
    with pytest.raises(errors.NotFound):
        await client.delete(App, "web")
    assert await client.delete(App, "web", missing_ok=True) is False


async def test_delete_collection_goes_to_one_namespace_with_its_selectors() -> None:
    script = Script(ok({}))
    await client_of(script).delete_collection(App, namespace="shop", label_selector="a=b")
    assert (script.sent[0].method, script.sent[0].path) == (
        "DELETE",
        "/apis/example.com/v1/namespaces/shop/apps",
    )
    assert script.sent[0].query == {"labelSelector": "a=b"}


async def test_scale_goes_through_the_subresource() -> None:
    script = Script(ok({"kind": "Scale", "spec": {"replicas": 4}}))
    assert (await client_of(script).scale(App, "web", 4, namespace="shop"))["kind"] == "Scale"
    assert script.sent[0].path == "/apis/example.com/v1/namespaces/shop/apps/web/scale"
