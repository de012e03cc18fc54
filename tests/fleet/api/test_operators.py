"""Operators over HTTP."""

from __future__ import annotations

import asyncio
import base64
import json
import uuid
from typing import Any

import pytest

from tests.fleet.api.harness import WIDGET, ApiClient

PATH = "/api/v1/operators"


async def test_an_operator_is_registered_read_changed_and_deleted(api: ApiClient) -> None:
    created = await api.post(PATH, {**WIDGET, "values": {"replicas": 2}})
    assert created.status_code == 201, created.text
    assert created.headers["location"] == f"{PATH}/widget"
    assert created.json()["version"]["version"] == "1.0.0"

    shown = await api.get(f"{PATH}/widget")
    assert shown.json() == created.json()["operator"]
    assert shown.headers["etag"] == '"1"'
    assert (await api.get(PATH)).json() == {"items": [shown.json()], "nextCursor": ""}

    changed = await api.patch(f"{PATH}/widget", {"values": {"replicas": 3}}, headers={"If-Match": '"1"'})
    assert changed.json()["values"] == {"replicas": 3}
    assert changed.headers["etag"] == '"2"'

    added = await api.post(f"{PATH}/widget/versions", {"version": "1.1.0"})
    assert added.status_code == 201
    versions = (await api.get(f"{PATH}/widget/versions")).json()["items"]
    assert [each["version"] for each in versions] == ["1.1.0", "1.0.0"]

    assert (await api.delete(f"{PATH}/widget")).status_code == 204
    assert (await api.get(f"{PATH}/widget")).status_code == 404


async def test_a_change_of_an_old_version_is_refused_with_412(api: ApiClient) -> None:
    await api.post(PATH, WIDGET)
    await api.patch(f"{PATH}/widget", {"values": {}})
    stale = await api.patch(f"{PATH}/widget", {"values": {"a": 1}}, headers={"If-Match": '"1"'})
    assert stale.status_code == 412
    assert "has version 2" in stale.json()["detail"]
    removal = await api.delete(f"{PATH}/widget", headers={"If-Match": '"1"'})
    assert removal.status_code == 412
    assert (await api.delete(f"{PATH}/widget", headers={"If-Match": '"2"'})).status_code == 204


@pytest.mark.parametrize(
    ("if_match", "status"),
    [
        ('"1"', 200),
        ("*", 200),
        ('"2"', 412),
        (f'"{"0" * 17}1{"9" * 30}"', 412),
        ('W/"1"', 400),
        ('"1", "2"', 400),
        ("1", 400),
        ('"-1"', 400),
        ('""', 400),
    ],
)
async def test_only_the_etag_of_the_present_version_matches(
    api: ApiClient, if_match: str, status: int
) -> None:
    await api.post(PATH, WIDGET)
    response = await api.patch(f"{PATH}/widget", {"values": {}}, headers={"If-Match": if_match})
    assert response.status_code == status, response.text


async def test_of_changes_at_the_same_time_with_if_match_one_wins_and_the_others_get_412(
    api: ApiClient,
) -> None:
    await api.post(PATH, WIDGET)
    changes = [
        api.patch(f"{PATH}/widget", {"values": {"n": number}}, headers={"If-Match": '"1"'})
        for number in range(8)
    ]
    statuses = sorted([response.status_code for response in await asyncio.gather(*changes)])
    assert statuses == [200] + [412] * 7


async def test_lists_are_paged_with_cursors(api: ApiClient) -> None:
    for name in ("a", "b", "c"):
        await api.post(PATH, {**WIDGET, "name": name})
    first = (await api.get(PATH, params={"limit": 2})).json()
    second = (await api.get(PATH, params={"limit": 2, "cursor": first["nextCursor"]})).json()
    assert [each["name"] for each in first["items"] + second["items"]] == ["a", "b", "c"]
    assert second["nextCursor"] == ""
    assert [each["name"] for each in (await api.get(PATH, params={"prefix": "b"})).json()["items"]] == ["b"]


async def _path_of(response: Any) -> str:
    assert response.status_code == 400, response.text
    assert response.headers["content-type"] == "application/problem+json"
    return str(response.json()["errors"][0]["path"])


async def test_an_error_has_the_full_path_of_the_offending_field(api: ApiClient) -> None:
    cases: list[tuple[Any, str]] = [
        ({**WIDGET, "name": 5}, "/name"),
        ({**WIDGET, "extra": 1}, "/extra"),
        ({"name": "a"}, "/namespace"),
        ({**WIDGET, "source": {"type": "http", "repository": 5}}, "/source/repository"),
        ({**WIDGET, "source": {"type": "http"}}, "/source/repository"),
        ({**WIDGET, "source": {**WIDGET["source"], "admin": True}}, "/source/admin"),  # type: ignore[dict-item]
        ({**WIDGET, "source": {"type": "ftp"}}, "/source/type"),
        ({**WIDGET, "environmentValues": {"Dev": []}}, "/environmentValues/*"),
        ({**WIDGET, "values": {"a": [{"b": "x\0y"}]}}, "/values/a/0/b"),
        ({**WIDGET, "name": "UPPER"}, "/name"),
        ({**WIDGET, "source": {"type": "upload", "chart": "../../etc"}}, "/source"),
        ({**WIDGET, "source": {"type": "upload", "chart": "c" * 5000}}, "/source"),
        ([], ""),
    ]
    for body, path in cases:
        assert await _path_of(await api.post(PATH, body)) == path, body
    assert await _path_of(await api.get(PATH, params={"limit": 0})) == "/limit"
    assert await _path_of(await api.get(PATH, params={"limit": 1000})) == "/limit"
    assert await _path_of(await api.get(PATH, params={"limits": 5})) == "/limits"
    assert await _path_of(await api.get(PATH, params={"cursor": "@@"})) == "/cursor"
    assert await _path_of(await api.get(f"{PATH}?limit=1&limit=2")) == "/limit"
    assert await _path_of(await api.get("/api/v1/approvals", params={"state": "Asleep"})) == "/state"


async def test_a_cursor_that_no_list_has_made_is_refused(api: ApiClient) -> None:
    moments = ("2026-01-01T00:00:00", "0000-00-00T00:00:00Z", "tomorrow")
    keys = [("a\0b",), ("a", "b\0"), ("a", "b", "c"), *((each, str(uuid.uuid4())) for each in moments)]
    cursors = [base64.urlsafe_b64encode(json.dumps(key).encode()).decode().rstrip("=") for key in keys]
    for path in ("operators", "clusters", "crds", "deployments", "approvals", "audit"):
        for cursor in (*cursors, "@@", "é", "A" * 2000, "9" * 30):
            response = await api.get(f"/api/v1/{path}", params={"cursor": cursor})
            plausible = path == "crds" and response.status_code == 200  # two texts are a key of this list
            assert plausible or await _path_of(response) == "/cursor", (path, cursor, response.text)


async def test_texts_are_not_converted_to_numbers_and_deep_bodies_are_refused(api: ApiClient) -> None:
    discard = await api.patch("/api/v1/clusters/dev-1", {"discardUpload": "true"})
    assert await _path_of(discard) == "/discardUpload"
    deep = b'{"values":' * 2000
    response = await api.request("POST", PATH, content=deep, headers={"Content-Type": "application/json"})
    assert response.status_code == 400
    nested: Any = {}
    for _ in range(70):
        nested = {"a": nested}
    assert "deeper" in (await api.post(PATH, {**WIDGET, "values": nested})).json()["detail"]


async def test_a_body_must_be_json_and_within_its_limit(api: ApiClient) -> None:
    form = await api.request("POST", PATH, content=b"name=a", headers={"Content-Type": "text/plain"})
    assert form.status_code == 415
    missing = await api.request("POST", PATH)
    assert (missing.status_code, missing.json()["detail"]) == (400, "the body is missing: send a JSON object")
    large = {"values": {"a": "x" * 1_100_000}}
    assert (await api.patch(f"{PATH}/widget", large)).status_code == 413
    upload = {**WIDGET, "source": {"type": "upload", "chart": "widget"}, "archive": "A" * 25 * 1024 * 1024}
    assert (await api.post(PATH, upload)).status_code == 413
