"""Negotiation: the forms of replies and bodies that are supported, and those that are rejected."""

from __future__ import annotations

import json

import pytest
import pytest_asyncio
import yaml

from kapsa.devcluster.embedded.server import Server
from tests.devcluster.embedded.api import CONFIGMAPS, CRDS, WIDGET_DEFINITION, WIDGETS, Api, configmap

ONE = f"{CONFIGMAPS}/one"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"


@pytest_asyncio.fixture
async def api() -> Api:
    api = Api(Server())
    await api.configmap("one", {"k": "v"}, a="1")
    return api


async def get(api: Api, path: str, accept: str, **query: str):
    return await api.send("GET", path, headers={"accept": accept}, **query)


async def test_json_is_the_default(api: Api):
    answer = await api.get(ONE)
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-cache, private"


async def test_yaml_can_be_read_and_written(api: Api):
    answer = await get(api, ONE, "application/yaml")
    assert answer.headers["content-type"] == "application/yaml"
    assert yaml.safe_load(answer.body)["data"] == {"a": "1"}
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: two\ndata:\n  when: 2026-01-01\n"
    refused = await api.post(CONFIGMAPS, body, content_type="application/yaml")
    assert refused.body["data"] == {"when": "2026-01-01"}


async def test_the_best_of_several_forms_is_chosen(api: Api):
    answer = await get(api, ONE, "application/vnd.kubernetes.protobuf, application/json;q=0.5")
    assert answer.headers["content-type"] == "application/json"
    preferred = await get(api, ONE, "application/json;q=0.1, application/yaml")
    assert preferred.headers["content-type"] == "application/yaml"


async def test_metadata_alone_can_be_requested(api: Api):
    answer = await get(api, ONE, METADATA)
    assert answer.body["kind"] == "PartialObjectMetadata"
    assert answer.body["apiVersion"] == "meta.k8s.io/v1"
    assert answer.meta["labels"] == {"k": "v"}
    assert "data" not in answer.body
    listed = await get(api, CONFIGMAPS, METADATA_LIST)
    assert listed.body["kind"] == "PartialObjectMetadataList"
    assert listed.names == ["one"]
    assert "data" not in listed.body["items"][0]


async def test_a_watch_can_send_metadata_alone(api: Api):
    reply = await api.open("GET", CONFIGMAPS, watch="1", headers={"accept": METADATA})
    event = json.loads((await anext(reply.body)).splitlines()[0])
    assert event["object"]["kind"] == "PartialObjectMetadata"
    await reply.body.aclose()


async def test_a_table_has_rows_and_columns(api: Api):
    answer = await get(api, CONFIGMAPS, TABLE)
    assert answer.body["kind"] == "Table"
    assert [column["name"] for column in answer.body["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert answer.body["rows"][0]["cells"][:2] == ["one", 1]


async def test_pretty_output_is_indented(api: Api):
    plain = await api.open("GET", ONE)
    pretty = await api.open("GET", ONE, pretty="true")
    assert b"\n  " not in plain.body
    assert b'\n  "kind"' in pretty.body
    curl = await api.open("GET", ONE, headers={"user-agent": "curl/8"})
    assert b'\n  "kind"' in curl.body


@pytest.mark.parametrize(
    ("path", "accept", "message"),
    [
        (ONE, "text/html", "406: Not Acceptable"),
        (ONE, "application/vnd.kubernetes.protobuf", "only the following media types are accepted"),
        (
            ONE,
            "application/json;as=Table;g=meta.k8s.io;v=v9",
            "only the following media types are accepted",
        ),
        (
            ONE,
            METADATA_LIST,
            "you requested PartialObjectMetadataList, but the requested object is not a list",
        ),
        (CONFIGMAPS, METADATA, "you requested PartialObjectMetadata, but the requested object is a list"),
    ],
)
async def test_a_form_that_is_not_supported_is_406(api: Api, path: str, accept: str, message: str):
    answer = await get(api, path, accept)
    assert (answer.status, answer.body["reason"]) == (406, "NotAcceptable")
    assert answer.message.startswith(message)


async def test_a_malformed_protobuf_body_is_rejected(api: Api):
    answer = await api.post(CONFIGMAPS, b"k8s\0...", content_type="application/vnd.kubernetes.protobuf")
    assert answer.status == 400
    assert "proto: illegal wireType 6" in answer.message


async def test_a_body_of_an_unknown_form_is_415(api: Api):
    answer = await api.post(CONFIGMAPS, configmap("two"), content_type="text/plain")
    assert (answer.status, answer.body["reason"]) == (415, "UnsupportedMediaType")
    patch = await api.send("PATCH", ONE, {}, content_type="application/json")
    assert (patch.status, patch.message) == (415, "415: Unsupported Media Type")


async def test_a_custom_resource_does_not_support_strategic_patches(api: Api):
    await api.post(CRDS, WIDGET_DEFINITION)
    body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "one"}}
    await api.post(WIDGETS, body)
    answer = await api.send(
        "PATCH", f"{WIDGETS}/one", {}, content_type="application/strategic-merge-patch+json"
    )
    assert answer.status == 415


async def test_two_groups_show_one_event_under_their_own_names(api: Api):
    core = "/api/v1/namespaces/default/events"
    event = {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reason": "Why",
        "message": "what happened",
        "type": "Normal",
    }
    assert (await api.post(core, event)).status == 201
    seen = await api.get("/apis/events.k8s.io/v1/namespaces/default/events/e")
    assert seen.body["apiVersion"] == "events.k8s.io/v1"
    assert seen.body["note"] == "what happened"
    assert seen.body["regarding"]["name"] == "p"


async def test_an_autoscaler_is_read_in_both_its_versions(api: Api):
    path = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers"
    body = {
        "metadata": {"name": "web"},
        "spec": {
            "maxReplicas": 5,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "targetCPUUtilizationPercentage": 70,
        },
    }
    assert (await api.post(path, body)).status == 201
    newer = await api.get("/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/web")
    assert newer.body["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 70
    assert (await api.get(f"{path}/web")).body["spec"]["targetCPUUtilizationPercentage"] == 70
