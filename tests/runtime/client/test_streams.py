"""The client's watches and logs, cut anywhere, and the warnings that any answer may carry."""

import asyncio

import pytest
from structlog.testing import capture_logs

from kapsa.runtime import errors
from kapsa.runtime.client.http.transport import Response
from kapsa.runtime.client.watch import Bookmark, WatchEvent
from tests.runtime.scripted import APP, App, Script, Stream, client_of, line, refusal


async def test_a_watch_yields_typed_events_and_bookmarks_however_the_bytes_are_cut() -> None:
    big = {**APP, "spec": {"image": "x" * 1_500_000}}
    end = {"k8s.io/initial-events-end": "true"}
    stream = (
        line("ADDED", APP)
        + line("MODIFIED", big)
        + line("BOOKMARK", {"metadata": {"resourceVersion": "20", "annotations": end}})
        + line("DELETED", APP)
    )
    for size in (7919, 65536, len(stream)):
        chunks: list[bytes | Exception] = [stream[i : i + size] for i in range(0, len(stream), size)]
        events = [event async for event in client_of(Script(chunks)).watch(App, resource_version="5")]
        assert events[2] == Bookmark("20", initial_events_end=True)
        changes = [event for event in events if isinstance(event, WatchEvent)]
        assert [event.type for event in changes] == ["ADDED", "MODIFIED", "DELETED"]
        assert len(changes[1].object.spec.image) == 1_500_000


async def test_a_watch_asks_for_bookmarks_and_for_initial_events_only_when_told() -> None:
    script = Script([], [])
    client = client_of(script)
    assert [event async for event in client.watch(App, resource_version="5", timeout_seconds=300)] == []
    assert [event async for event in client.watch(App, send_initial_events=True)] == []
    assert script.sent[0].query == {
        "watch": "true", "allowWatchBookmarks": "true", "resourceVersion": "5", "timeoutSeconds": "300",
    }  # fmt: skip
    assert script.sent[1].query == {
        "watch": "true", "allowWatchBookmarks": "true", "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
    }  # fmt: skip


async def test_an_error_inside_a_watch_is_raised_as_its_type() -> None:
    gone = {"status": "Failure", "code": 410, "reason": "Expired", "message": "too old resource version"}
    script = Script([line("ADDED", APP), line("ERROR", gone)])
    events = client_of(script).watch(App)
    assert isinstance(await anext(events), WatchEvent)
    with pytest.raises(errors.Expired, match="too old resource version"):
        await anext(events)


async def test_a_watch_that_is_refused_raises_what_the_server_said() -> None:
    script = Script(refusal(403, "Forbidden"))
    with pytest.raises(errors.Forbidden):
        await anext(client_of(script).watch(App))


@pytest.mark.virtual_time
@pytest.mark.parametrize("start", [b"", b"bad gate"])
async def test_a_stream_refused_by_words_that_never_end_is_refused_all_the_same(start: bytes) -> None:
    client = client_of(Script(*[Stream([start], 502, stalls=True) for _ in range(2)]))
    async with asyncio.timeout(60):
        with pytest.raises(errors.ApiError, match=(start or b"HTTP 502").decode()) as caught:
            await anext(client.watch(App))
        assert caught.value.status.code == 502
        with pytest.raises(errors.ApiError):
            await anext(client.follow_logs("web-1"))


async def test_a_connection_that_breaks_in_the_words_of_a_refusal_does_not_hide_it() -> None:
    reset = errors.TransportError("reset")
    client = client_of(Script(Stream([reset], 410), Stream([b'{"kind": "Sta', reset], 401)))
    with pytest.raises(errors.Expired):
        await anext(client.watch(App))
    with pytest.raises(errors.Unauthorized):
        await anext(client.watch(App))


async def test_a_watch_cut_in_the_middle_of_an_event_is_an_error_not_an_end() -> None:
    script = Script([line("ADDED", APP), line("ADDED", APP)[:-20]])
    with pytest.raises(errors.TransportError, match="broke off in the middle"):
        _ = [event async for event in client_of(script).watch(App)]


async def test_followed_logs_come_line_by_line_also_without_a_last_line_break() -> None:
    script = Script([b"one\ntw", b"o\nthree"])
    lines = [text async for text in client_of(script).follow_logs("web-1", namespace="shop", tail_lines=5)]
    assert lines == ["one", "two", "three"]
    assert script.sent[0].path == "/api/v1/namespaces/shop/pods/web-1/log"
    assert script.sent[0].query == {"follow": "true", "tailLines": "5"}


# Warnings


def warned(*texts: str) -> dict[str, str]:
    return {"warning": ", ".join(f'299 - "{text}"' for text in texts)}


async def test_what_the_server_warns_of_is_heard_on_streams_too() -> None:
    script = Script(Response(200, warned("old version"), b""), Stream([b"", b"line"], 200, warned("old pod")))
    client = client_of(script)
    with capture_logs() as logs:
        assert [event async for event in client.watch(App)] == []
        assert [text async for text in client.follow_logs("web-1")] == ["line"]
    assert [(line["warning"], line["request"]) for line in logs] == [
        ("old version", "GET /apis/example.com/v1/apps"),
        ("old pod", "GET /api/v1/namespaces/home/pods/web-1/log"),
    ]


async def test_a_server_that_words_its_warnings_anew_each_time_does_not_fill_the_log() -> None:
    answers = [Response(200, warned(f"object {n}", "always the same"), b"{}") for n in range(1100)]
    client = client_of(Script(*answers, *answers))
    with capture_logs() as logs:
        for _ in range(2 * len(answers)):
            await client.get("v1/Node", "n1")
    assert len({line.get("warning") for line in logs}) == len(logs) == 1001
    assert logs[-1]["event"] == "further warnings from the API server will not be logged"


async def test_a_long_warning_is_logged_by_its_start_and_once() -> None:
    client = client_of(Script(*(Response(200, warned("x" * 60_000 + end), b"{}") for end in "ab")))
    with capture_logs() as logs:
        await client.get("v1/Node", "n1")
        await client.get("v1/Node", "n1")
    assert [line["warning"] for line in logs] == ["x" * 512]
