"""The client's watches and logs on a fake transport, and the warnings in responses."""

import asyncio

import pytest
from structlog.testing import capture_logs

from kapsa.runtime import errors
from kapsa.runtime.client.http.transport import Response
from kapsa.runtime.client.watch import Bookmark, WatchEvent
from tests.runtime.client.fake_transport import (
    APP,
    App,
    FakeStream,
    FakeTransport,
    client_with,
    error_response,
    event_line,
)


async def test_a_watch_yields_typed_events_and_bookmarks_however_the_bytes_are_split() -> None:
    big = {**APP, "spec": {"image": "x" * 1_500_000}}
    end = {"k8s.io/initial-events-end": "true"}
    stream = (
        event_line("ADDED", APP)
        + event_line("MODIFIED", big)
        + event_line("BOOKMARK", {"metadata": {"resourceVersion": "20", "annotations": end}})
        + event_line("DELETED", APP)
    )
    for size in (7919, 65536, len(stream)):
        chunks: list[bytes | Exception] = [stream[i : i + size] for i in range(0, len(stream), size)]
        events = [
            event async for event in client_with(FakeTransport(chunks)).watch(App, resource_version="5")
        ]
        assert events[2] == Bookmark("20", initial_events_end=True)
        changes = [event for event in events if isinstance(event, WatchEvent)]
        assert [event.type for event in changes] == ["ADDED", "MODIFIED", "DELETED"]
        assert len(changes[1].object.spec.image) == 1_500_000


async def test_a_watch_requests_bookmarks_and_requests_initial_events_only_if_set() -> None:
    transport = FakeTransport([], [])
    client = client_with(transport)
    assert [event async for event in client.watch(App, resource_version="5", timeout_seconds=300)] == []
    assert [event async for event in client.watch(App, send_initial_events=True)] == []
    assert transport.requests[0].query == {
        "watch": "true", "allowWatchBookmarks": "true", "resourceVersion": "5", "timeoutSeconds": "300",
    }  # fmt: skip
    assert transport.requests[1].query == {
        "watch": "true", "allowWatchBookmarks": "true", "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
    }  # fmt: skip


async def test_an_error_inside_a_watch_is_raised_as_its_type() -> None:
    gone = {"status": "Failure", "code": 410, "reason": "Expired", "message": "too old resource version"}
    transport = FakeTransport([event_line("ADDED", APP), event_line("ERROR", gone)])
    events = client_with(transport).watch(App)
    assert isinstance(await anext(events), WatchEvent)
    with pytest.raises(errors.Expired, match="too old resource version"):
        await anext(events)


async def test_a_rejected_watch_raises_the_error_of_the_server() -> None:
    transport = FakeTransport(error_response(403, "Forbidden"))
    with pytest.raises(errors.Forbidden):
        await anext(client_with(transport).watch(App))


@pytest.mark.virtual_time
@pytest.mark.parametrize("start", [b"", b"bad gate"])
async def test_a_rejected_stream_raises_its_error_although_the_body_never_ends(start: bytes) -> None:
    client = client_with(FakeTransport(*[FakeStream([start], 502, stalls=True) for _ in range(2)]))
    async with asyncio.timeout(60):
        with pytest.raises(errors.ApiError, match=(start or b"HTTP 502").decode()) as caught:
            await anext(client.watch(App))
        assert caught.value.status.code == 502
        with pytest.raises(errors.ApiError):
            await anext(client.follow_logs("web-1"))


async def test_a_rejected_stream_raises_its_error_although_the_connection_breaks() -> None:
    reset = errors.TransportError("reset")
    client = client_with(FakeTransport(FakeStream([reset], 410), FakeStream([b'{"kind": "Sta', reset], 401)))
    with pytest.raises(errors.Expired):
        await anext(client.watch(App))
    with pytest.raises(errors.Unauthorized):
        await anext(client.watch(App))


async def test_a_watch_that_breaks_off_within_an_event_is_an_error_not_an_end() -> None:
    transport = FakeTransport([event_line("ADDED", APP), event_line("ADDED", APP)[:-20]])
    with pytest.raises(errors.TransportError, match="broke off in the middle"):
        _ = [event async for event in client_with(transport).watch(App)]


async def test_followed_logs_yield_lines_even_without_a_final_line_break() -> None:
    transport = FakeTransport([b"one\ntw", b"o\nthree"])
    lines = [
        text async for text in client_with(transport).follow_logs("web-1", namespace="shop", tail_lines=5)
    ]
    assert lines == ["one", "two", "three"]
    assert transport.requests[0].path == "/api/v1/namespaces/shop/pods/web-1/log"
    assert transport.requests[0].query == {"follow": "true", "tailLines": "5"}


# Warnings


def warning_header(*texts: str) -> dict[str, str]:
    return {"warning": ", ".join(f'299 - "{text}"' for text in texts)}


async def test_warnings_of_streams_are_logged() -> None:
    transport = FakeTransport(
        Response(200, warning_header("old version"), b""),
        FakeStream([b"", b"line"], 200, warning_header("old pod")),
    )
    client = client_with(transport)
    with capture_logs() as logs:
        assert [event async for event in client.watch(App)] == []
        assert [text async for text in client.follow_logs("web-1")] == ["line"]
    assert [(line["warning"], line["request"]) for line in logs] == [
        ("old version", "GET /apis/example.com/v1/apps"),
        ("old pod", "GET /api/v1/namespaces/home/pods/web-1/log"),
    ]


async def test_ever_different_warnings_do_not_fill_the_log() -> None:
    responses = [Response(200, warning_header(f"object {n}", "always the same"), b"{}") for n in range(1100)]
    client = client_with(FakeTransport(*responses, *responses))
    with capture_logs() as logs:
        for _ in range(2 * len(responses)):
            await client.get("v1/Node", "n1")
    assert len({line.get("warning") for line in logs}) == len(logs) == 1001
    assert logs[-1]["event"] == "further warnings from the API server will not be logged"


async def test_a_long_warning_is_truncated_and_logged_once() -> None:
    client = client_with(
        FakeTransport(*(Response(200, warning_header("x" * 60_000 + end), b"{}") for end in "ab"))
    )
    with capture_logs() as logs:
        await client.get("v1/Node", "n1")
        await client.get("v1/Node", "n1")
    assert [line["warning"] for line in logs] == ["x" * 512]
