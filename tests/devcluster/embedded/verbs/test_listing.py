"""Lists: revisions, pages, and expired continue tokens."""

from __future__ import annotations

import base64
import json

import pytest
import pytest_asyncio

from kapsa.devcluster.embedded.server import Server
from tests.devcluster.embedded.api import CONFIGMAPS, Api


@pytest_asyncio.fixture
async def api() -> Api:
    api = Api(Server())
    for name in "abcde":
        await api.configmap(name)
    return api


async def test_a_list_has_the_revision_at_which_it_was_read(api: Api):
    listed = await api.get(CONFIGMAPS)
    assert listed.body["kind"] == "ConfigMapList"
    assert listed.names == ["a", "b", "c", "d", "e"]
    assert listed.revision == api.server.backend.store.revision
    assert all("kind" not in item for item in listed.body["items"])


async def test_a_page_continues_after_the_previous_one(api: Api):
    first = await api.get(CONFIGMAPS, limit=2)
    assert (first.names, first.meta["remainingItemCount"]) == (["a", "b"], 3)
    second = await api.get(CONFIGMAPS, limit=2, **{"continue": first.meta["continue"]})
    assert (second.names, second.meta["remainingItemCount"]) == (["c", "d"], 1)
    third = await api.get(CONFIGMAPS, limit=2, **{"continue": second.meta["continue"]})
    assert third.names == ["e"]
    assert "continue" not in third.meta


async def test_pages_show_one_revision_while_objects_change(api: Api):
    first = await api.get(CONFIGMAPS, limit=2)
    await api.delete(f"{CONFIGMAPS}/c")
    await api.configmap("dd")
    rest = await api.get(CONFIGMAPS, **{"continue": first.meta["continue"]})
    assert rest.names == ["c", "d", "e"]
    assert rest.revision == first.revision


async def test_a_page_of_selected_objects_does_not_count_the_rest(api: Api):
    first = await api.get(CONFIGMAPS, limit=1, labelSelector="!missing")
    assert first.meta["continue"]
    assert "remainingItemCount" not in first.meta


async def test_an_expired_token_can_be_exchanged_for_an_inconsistent_one(api: Api):
    first = await api.get(CONFIGMAPS, limit=2)
    await api.delete(f"{CONFIGMAPS}/d")
    api.server.backend.store.compact()
    gone = await api.get(CONFIGMAPS, **{"continue": first.meta["continue"]})
    assert (gone.status, gone.body["reason"]) == (410, "Expired")
    assert gone.message.startswith("The provided continue parameter is too old")
    rest = await api.get(CONFIGMAPS, **{"continue": gone.meta["continue"]})
    assert rest.names == ["c", "e"]


async def test_an_exact_revision_shows_the_past(api: Api):
    then = api.server.backend.store.revision
    await api.delete(f"{CONFIGMAPS}/a")
    past = await api.get(CONFIGMAPS, resourceVersion=then, resourceVersionMatch="Exact")
    assert past.names == ["a", "b", "c", "d", "e"]
    assert past.revision == then
    newer = await api.get(CONFIGMAPS, resourceVersion=then, resourceVersionMatch="NotOlderThan")
    assert newer.names == ["b", "c", "d", "e"]
    assert (await api.get(CONFIGMAPS, resourceVersion="0")).names == ["b", "c", "d", "e"]


async def test_a_compacted_revision_is_gone(api: Api):
    then = api.server.backend.store.revision
    await api.delete(f"{CONFIGMAPS}/a")
    api.server.backend.store.compact()
    gone = await api.get(CONFIGMAPS, resourceVersion=then, resourceVersionMatch="Exact")
    assert (gone.status, gone.body["reason"]) == (410, "Expired")
    assert gone.message == "The resourceVersion for the provided list is too old."


async def test_a_future_revision_times_out(api: Api):
    answer = await api.get(CONFIGMAPS, resourceVersion="999999")
    assert (answer.status, answer.headers["retry-after"]) == (504, "1")
    assert answer.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


def token(**fields: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(fields).encode()).rstrip(b"=").decode()


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        ({"limit": "abc"}, 400, 'strconv.ParseInt: parsing "abc": invalid syntax'),
        ({"limit": "9" * 5000}, 400, "strconv.ParseInt: parsing"),
        ({"resourceVersion": "9" * 5000}, 400, "value out of range"),
        ({"resourceVersion": "abc"}, 400, "invalid resource version: resourceVersion: Invalid value"),
        ({"continue": "%%%"}, 400, "invalid continue token: continue key is not valid: illegal base64"),
        ({"continue": "abc"}, 400, "invalid continue token: continue key is not valid: invalid character"),
        ({"continue": token(v="v9", rv=1, start="a")}, 400, "does not recognize this encoded version"),
        (
            {"continue": token(v="meta.k8s.io/v1", rv=0, start="a")},
            400,
            "incorrect encoded start resourceVersion",
        ),
        ({"continue": token(v="meta.k8s.io/v1", rv=1, start="")}, 400, "encoded start key empty"),
        ({"continue": token(v="meta.k8s.io/v1", rv=1, start="../../x")}, 400, "continue key is not valid"),
        ({"resourceVersionMatch": "Exact"}, 422, "forbidden unless resourceVersion is provided"),
        ({"resourceVersion": "1", "resourceVersionMatch": "Odd"}, 422, "Unsupported value"),
        (
            {"resourceVersion": "0", "resourceVersionMatch": "Exact"},
            422,
            'is forbidden for resourceVersion "0"',
        ),
        ({"sendInitialEvents": "true"}, 422, "sendInitialEvents is forbidden for list"),
    ],
)
async def test_invalid_options_are_rejected(api: Api, query: dict[str, str], status: int, message: str):
    answer = await api.get(CONFIGMAPS, **query)
    assert answer.status == status
    assert message in answer.message


async def test_all_namespaces_are_listed_in_order(api: Api):
    await api.post("/api/v1/namespaces", {"metadata": {"name": "aaa"}})
    await api.post("/api/v1/namespaces/aaa/configmaps", {"metadata": {"name": "z"}})
    listed = await api.get("/api/v1/configmaps", limit=2)
    assert listed.names == ["z", "a"]
    rest = await api.get("/api/v1/configmaps", **{"continue": listed.meta["continue"]})
    assert rest.names == ["b", "c", "d", "e"]
