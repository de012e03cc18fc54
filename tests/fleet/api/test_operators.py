"""Operators over HTTP."""

from __future__ import annotations

from typing import Any

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
    malformed = await api.patch(f"{PATH}/widget", {"values": {}}, headers={"If-Match": "W/1"})
    assert malformed.status_code == 400


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
        ([], ""),
    ]
    for body, path in cases:
        assert await _path_of(await api.post(PATH, body)) == path, body
    assert await _path_of(await api.get(PATH, params={"limit": 0})) == "/limit"
    assert await _path_of(await api.get(PATH, params={"limit": 1000})) == "/limit"
    assert await _path_of(await api.get(PATH, params={"limits": 5})) == "/limits"
    assert await _path_of(await api.get(PATH, params={"cursor": "@@"})) == "/cursor"
    assert await _path_of(await api.get(f"{PATH}?limit=1&limit=2")) == "/limit"


async def test_texts_are_not_converted_to_numbers_and_deep_bodies_are_refused(api: ApiClient) -> None:
    assert await _path_of(await api.patch(f"{PATH}/widget", {"expectedVersion": "1"})) == "/expectedVersion"
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
    assert (await api.request("POST", PATH)).status_code == 400
    large = {"values": {"a": "x" * 1_100_000}}
    assert (await api.patch(f"{PATH}/widget", large)).status_code == 413
    upload = {**WIDGET, "source": {"type": "upload", "chart": "widget"}, "archive": "A" * 25 * 1024 * 1024}
    assert (await api.post(PATH, upload)).status_code == 413
