"""Custom resources: served, changed, converted, and deleted with their definition."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kapsa.devcluster.embedded.server import Server
from kapsa.devcluster.wire.exchange import Request

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
WIDGETS_V2 = "/apis/example.com/v2/namespaces/default/widgets"


class Client:
    """A client that sends JSON requests to an embedded server."""

    def __init__(self) -> None:
        self.server = Server()

    async def __call__(self, method: str, path: str, body: Any = None, **query: str) -> tuple[int, Any]:
        raw = b"" if body is None else msgspec.json.encode(body)
        text = "&".join(f"{key}={value}" for key, value in query.items())
        headers = {"content-type": "application/json"}
        reply = await self.server.handle(
            Request(method=method, path=path, query=text, headers=headers, body=raw)
        )
        assert isinstance(reply.body, bytes)
        is_json = reply.headers.get("content-type") == "application/json"
        return reply.status, msgspec.json.decode(reply.body) if is_json else reply.body

    async def define(self, **changes: Any) -> dict[str, Any]:
        status, body = await self("POST", CRDS, definition(**changes))
        assert status == 201, body
        stored: dict[str, Any] = (await self("GET", f"{CRDS}/widgets.example.com"))[1]
        return stored


@pytest.fixture
async def client() -> Client:
    return Client()


def version(name: str, *, storage: bool = False, spec: dict[str, Any] | None = None) -> dict[str, Any]:
    properties = {
        "spec": spec or {"type": "object", "properties": {"size": {"type": "integer", "default": 3}}}
    }
    schema = {"type": "object", "properties": properties}
    return {"name": name, "served": True, "storage": storage, "schema": {"openAPIV3Schema": schema}}


def definition(**changes: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [version("v1", storage=True)],
            **changes,
        },
    }


def widget(name: str, api_version: str = "example.com/v1", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": "Widget", "metadata": {"name": name}, "spec": spec}


def conditions(crd: dict[str, Any]) -> dict[str, str]:
    return {condition["type"]: condition["status"] for condition in crd["status"]["conditions"]}


async def test_a_definition_is_established_and_served_at_once(client: Client) -> None:
    status, created = await client("POST", CRDS, definition())
    assert (status, created["status"]["conditions"]) == (201, None)
    _, crd = await client("GET", f"{CRDS}/widgets.example.com")
    assert conditions(crd) == {"NamesAccepted": "True", "Established": "True"}
    assert crd["status"]["acceptedNames"] == {
        "plural": "widgets",
        "singular": "widget",
        "shortNames": ["wd"],
        "kind": "Widget",
        "listKind": "WidgetList",
    }
    assert crd["status"]["storedVersions"] == ["v1"]
    status, made = await client("POST", WIDGETS, widget("a"))
    assert (status, made["spec"]) == (201, {"size": 3})


async def test_an_invalid_definition_is_rejected(client: Client) -> None:
    status, refused = await client("POST", CRDS, definition(scope="World"))
    assert status == 422
    assert refused["details"]["causes"][0]["field"] == "spec.scope"


async def test_a_definition_with_a_name_in_use_is_not_served(client: Client) -> None:
    await client.define()
    other = definition(names={"plural": "gadgets", "kind": "Gadget", "shortNames": ["wd"]})
    other["metadata"]["name"] = "gadgets.example.com"
    await client("POST", CRDS, other)
    _, crd = await client("GET", f"{CRDS}/gadgets.example.com")
    assert conditions(crd) == {"NamesAccepted": "False", "Established": "False"}
    assert crd["status"]["conditions"][0]["reason"] == "ShortNamesConflict"
    assert (await client("GET", "/apis/example.com/v1/gadgets"))[0] == 404
    await client("DELETE", f"{CRDS}/widgets.example.com")
    _, crd = await client("GET", f"{CRDS}/gadgets.example.com")
    assert conditions(crd) == {"NamesAccepted": "True", "Established": "True"}


async def test_a_new_default_appears_in_existing_objects(client: Client) -> None:
    crd = await client.define()
    _, made = await client("POST", WIDGETS, widget("a"))
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["color"] = {"type": "string", "default": "red"}
    assert (await client("PUT", f"{CRDS}/widgets.example.com", crd))[0] == 200
    _, seen = await client("GET", f"{WIDGETS}/a")
    assert seen["spec"] == {"size": 3, "color": "red"}
    assert seen["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_a_definition_is_deleted_with_its_objects(client: Client) -> None:
    await client.define()
    await client("POST", WIDGETS, widget("a"))
    status, deleted = await client("DELETE", f"{CRDS}/widgets.example.com")
    assert status == 200
    assert deleted["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    assert (await client("GET", f"{CRDS}/widgets.example.com"))[0] == 404
    assert (await client("GET", WIDGETS))[0] == 404


async def test_a_finalizer_of_an_object_holds_its_definition(client: Client) -> None:
    await client.define()
    held = widget("a")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    await client("POST", WIDGETS, held)
    await client("DELETE", f"{CRDS}/widgets.example.com")
    _, crd = await client("GET", f"{CRDS}/widgets.example.com")
    assert conditions(crd)["Terminating"] == "True"
    status, refused = await client("POST", WIDGETS, widget("b"))
    assert status == 405
    assert refused["message"] == "create not allowed while custom resource definition is terminating"
    _, seen = await client("GET", f"{WIDGETS}/a")
    assert "deletionTimestamp" in seen["metadata"]
    seen["metadata"]["finalizers"] = []
    await client("PUT", f"{WIDGETS}/a", seen)
    client.server.custom_resources.settle()
    assert (await client("GET", f"{CRDS}/widgets.example.com"))[0] == 404


async def test_a_version_that_is_no_longer_served_is_gone(client: Client) -> None:
    crd = await client.define(versions=[version("v1", storage=True), version("v2")])
    assert (await client("GET", WIDGETS_V2))[0] == 200
    crd["spec"]["versions"][1]["served"] = False
    await client("PUT", f"{CRDS}/widgets.example.com", crd)
    assert (await client("GET", WIDGETS_V2))[0] == 404
    assert (await client("GET", WIDGETS))[0] == 200


async def test_a_scale_path_must_point_to_a_number(client: Client) -> None:
    scaled = version("v1", storage=True)
    scaled["subresources"] = {
        "status": {},
        "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"},
    }
    await client.define(versions=[scaled])
    status, refused = await client("POST", WIDGETS, widget("a", size=-1))
    assert status == 422
    assert refused["details"]["causes"][0]["message"] == "Invalid value: -1: should be a non-negative integer"


async def test_a_finalizer_without_a_domain_causes_a_warning(client: Client) -> None:
    await client.define()
    body = widget("a")
    body["metadata"]["finalizers"] = ["hold"]
    reply = await client.server.handle(
        Request(
            method="POST",
            path=WIDGETS,
            headers={"content-type": "application/json"},
            body=msgspec.json.encode(body),
        )
    )
    assert "prefer a domain-qualified finalizer name" in reply.headers["warning"]


# Versions


async def test_without_conversion_versions_differ_by_name_and_fields(client: Client) -> None:
    wide = {"type": "object", "properties": {"size": {"type": "integer"}, "color": {"type": "string"}}}
    await client.define(versions=[version("v1", storage=True, spec=wide), version("v2")])
    await client("POST", WIDGETS, widget("a", size=1, color="red"))
    _, seen = await client("GET", f"{WIDGETS_V2}/a")
    assert (seen["apiVersion"], seen["spec"]) == ("example.com/v2", {"size": 1})
    _, listed = await client("GET", WIDGETS_V2)
    assert listed["items"][0]["apiVersion"] == "example.com/v2"
    await client("POST", WIDGETS_V2, widget("b", "example.com/v2", size=2))
    _, stored = await client("GET", f"{WIDGETS}/b")
    assert stored["apiVersion"] == "example.com/v1"


def renaming(calls: list[dict[str, Any]]) -> Callable[[str, bytes], Any]:
    """A conversion webhook: `size` of v1 is called `length` in v2."""

    async def answer(path: str, body: bytes) -> tuple[int, bytes]:
        request = json.loads(body)["request"]
        calls.append(request)
        old, new = ("size", "length") if request["desiredAPIVersion"].endswith("v2") else ("length", "size")
        converted = []
        for obj in request["objects"]:
            spec = {new if key == old else key: value for key, value in obj["spec"].items()}
            converted.append({**obj, "apiVersion": request["desiredAPIVersion"], "spec": spec})
        response = {"uid": request["uid"], "convertedObjects": converted, "result": {"status": "Success"}}
        review = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response}
        return 200, json.dumps(review).encode()

    return answer


async def with_webhook(client: Client, answer: Callable[[str, bytes], Any]) -> None:
    client.server.webhooks.client.route("default/converter", answer)
    service = {"namespace": "default", "name": "converter", "path": "/convert"}
    webhook = {"clientConfig": {"service": service}, "conversionReviewVersions": ["v1"]}
    length = {"type": "object", "properties": {"length": {"type": "integer"}}}
    await client.define(
        versions=[version("v1", storage=True), version("v2", spec=length)],
        conversion={"strategy": "Webhook", "webhook": webhook},
    )


async def test_a_webhook_converts_reads_and_writes(client: Client) -> None:
    calls: list[dict[str, Any]] = []
    await with_webhook(client, renaming(calls))
    await client("POST", WIDGETS, widget("a", size=1))
    assert calls == []
    _, seen = await client("GET", f"{WIDGETS_V2}/a")
    assert (seen["apiVersion"], seen["spec"]) == ("example.com/v2", {"length": 1})
    status, made = await client("POST", WIDGETS_V2, widget("b", "example.com/v2", length=2))
    assert (status, made["spec"]) == (201, {"length": 2})
    _, stored = await client("GET", f"{WIDGETS}/b")
    assert (stored["apiVersion"], stored["spec"]) == ("example.com/v1", {"size": 2})
    _, listed = await client("GET", WIDGETS_V2)
    assert [item["spec"] for item in listed["items"]] == [{"length": 1}, {"length": 2}]
    seen["spec"]["length"] = 9
    status, changed = await client("PUT", f"{WIDGETS_V2}/a", seen)
    assert (status, changed["spec"]) == (200, {"length": 9})
    assert (await client("GET", f"{WIDGETS}/a"))[1]["spec"] == {"size": 9}


async def test_a_webhook_converts_objects_that_are_stored_in_an_earlier_version(client: Client) -> None:
    await with_webhook(client, renaming([]))
    await client("POST", WIDGETS, widget("a", size=1))
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com"
    _, crd = await client("GET", path)
    for each in crd["spec"]["versions"]:
        each["storage"] = each["name"] == "v2"
    status, changed = await client("PUT", path, crd)
    assert (status, changed["status"]["storedVersions"]) == (200, ["v1", "v2"])
    _, seen = await client("GET", f"{WIDGETS_V2}/a")
    _, listed = await client("GET", WIDGETS_V2)
    for each in (seen, *listed["items"]):
        assert (each["apiVersion"], each["spec"]) == ("example.com/v2", {"length": 1})


async def test_a_watch_converts_its_events(client: Client) -> None:
    await with_webhook(client, renaming([]))
    await client("POST", WIDGETS, widget("a", size=1))
    reply = await client.server.handle(
        Request(method="GET", path=WIDGETS_V2, query="watch=1&timeoutSeconds=5")
    )
    assert not isinstance(reply.body, bytes)
    events = reply.body
    first = json.loads(await anext(events))
    assert (first["type"], first["object"]["spec"]) == ("ADDED", {"length": 1})
    await client("POST", WIDGETS, widget("b", size=2))
    second = json.loads(await anext(events))
    assert (second["type"], second["object"]["spec"]) == ("ADDED", {"length": 2})
    await events.aclose()  # type: ignore[attr-defined]  # the server's watches are generators


async def test_an_object_is_converted_once_per_revision(client: Client) -> None:
    calls: list[dict[str, Any]] = []
    await with_webhook(client, renaming(calls))
    await client("POST", WIDGETS, widget("a", size=1))
    for _ in range(3):
        await client("GET", f"{WIDGETS_V2}/a")
    assert len(calls) == 1


async def test_a_webhook_that_fails_fails_the_request(client: Client) -> None:
    async def broken(path: str, body: bytes) -> tuple[int, bytes]:
        uid = json.loads(body)["request"]["uid"]
        response = {"uid": uid, "result": {"status": "Failure", "message": "cannot do that"}}
        review = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response}
        return 200, json.dumps(review).encode()

    await with_webhook(client, broken)
    await client("POST", WIDGETS, widget("a", size=1))
    status, failed = await client("GET", f"{WIDGETS_V2}/a")
    assert status == 500
    assert failed["message"] == "conversion webhook for example.com/v1, Kind=Widget failed: cannot do that"


async def test_a_webhook_may_not_rename_an_object(client: Client) -> None:
    calls: list[dict[str, Any]] = []
    honest = renaming(calls)

    async def renames(path: str, body: bytes) -> tuple[int, bytes]:
        status, answer = await honest(path, body)
        review = json.loads(answer)
        review["response"]["convertedObjects"][0]["metadata"]["name"] = "other"
        return status, json.dumps(review).encode()

    await with_webhook(client, renames)
    await client("POST", WIDGETS, widget("a", size=1))
    status, failed = await client("GET", f"{WIDGETS_V2}/a")
    assert status == 500
    assert "must have the same name: a != other" in failed["message"]
