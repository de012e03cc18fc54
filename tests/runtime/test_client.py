"""The client's verbs over a transport that answers from a script: what is sent, what is repeated, what is raised."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from kapsa.runtime import errors
from kapsa.runtime.client import Client
from kapsa.runtime.dispatch import Call
from kapsa.runtime.resource import CustomResource, ObjectMeta, Spec, Status
from kapsa.runtime.retry import RetryBudget, RetryPolicy
from kapsa.runtime.transport import Response
from kapsa.runtime.watch import Bookmark, WatchEvent


class AppSpec(Spec):
    image: str
    replicas: int = 1


class AppStatus(Status):
    ready: int = 0


class App(CustomResource[AppSpec, AppStatus], group="example.com", version="v1"):
    """An application."""


class Service(msgspec.Struct, kw_only=True):
    apiVersion: str = "v1"  # noqa: N815 - the wire's own name
    kind: str = "Service"
    metadata: dict[str, Any]
    spec: dict[str, Any] = {}


class ManualClock:
    def __init__(self) -> None:
        self.time = 0.0
        self.slept: list[float] = []

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.time, UTC)

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds


class Sent(msgspec.Struct):
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    timeout: float | None


CORE = {
    "resources": [
        {"name": "services", "kind": "Service", "namespaced": True, "verbs": ["get"]},
        {"name": "services/status", "kind": "Service", "namespaced": True},
        {"name": "nodes", "kind": "Node", "namespaced": False},
        {"name": "pods", "kind": "Pod", "namespaced": True},
        {"name": "pods/log", "kind": "Pod", "namespaced": True},
    ]
}
DISCOVERY = {
    "/api/v1": CORE,
    "/apis/example.com/v1": {"resources": [{"name": "apps", "kind": "App", "namespaced": True}]},
}


class Script:
    """A transport that answers from a list, in order, and serves discovery of the core group."""

    def __init__(self, *answers: "Response | Exception | Stream | list[bytes | Exception]") -> None:
        self.answers = list(answers)
        self.sent: list[Sent] = []
        self.closed = False

    def _next(
        self, method: str, path: str, query: Sequence[tuple[str, str]], headers: Mapping[str, str],
        body: bytes, timeout: float | None,
    ) -> Any:  # fmt: skip
        self.sent.append(Sent(method, path, dict(query), dict(headers), body, timeout))
        return self.answers.pop(0)

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] = {},
        body: bytes = b"",
        timeout: float | None = None,
    ) -> Response:
        if path in DISCOVERY:
            return ok(DISCOVERY[path])
        answer = self._next(method, path, query, headers, body, timeout)
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, Response)
        return answer

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        *,
        query: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] = {},
    ) -> AsyncIterator[Any]:
        answer = self._next(method, path, query, headers, b"", None)
        if isinstance(answer, Response):
            yield Stream([answer.body], answer.status, answer.headers)
        elif isinstance(answer, Stream):
            yield answer
        else:
            yield Stream(answer)

    async def close(self) -> None:
        self.closed = True


class Stream:
    def __init__(
        self,
        chunks: Sequence[bytes | Exception],
        status: int = 200,
        headers: Mapping[str, str] = {},
        *,
        stalls: bool = False,
    ) -> None:
        self.chunks, self.status, self.headers, self.stalls = chunks, status, headers, stalls

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self.chunks:
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk
        if self.stalls:
            await asyncio.Event().wait()


def ok(body: Any, status: int = 200) -> Response:
    return Response(status, {}, msgspec.json.encode(body))


def refusal(code: int, reason: str, headers: dict[str, str] | None = None, **details: Any) -> Response:
    body = {"status": "Failure", "code": code, "reason": reason, "message": reason, "details": details}
    return Response(code, headers or {}, msgspec.json.encode(body))


def client_of(script: Script, **options: Any) -> Client:
    options.setdefault("clock", ManualClock())
    return Client(script, field_manager="tester", namespace="home", **options)


APP = {
    "apiVersion": "example.com/v1",
    "kind": "App",
    "metadata": {"name": "web", "namespace": "shop", "resourceVersion": "5"},
    "spec": {"image": "nginx", "replicas": 3},
}


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
    with pytest.raises(ValueError, match="can't be the name"):
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


# Watching


def line(kind: str, body: Any) -> bytes:
    return msgspec.json.encode({"type": kind, "object": body}) + b"\n"


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
    with pytest.raises(errors.TransportError, match="cut in the middle"):
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
    assert logs[-1]["event"] == "further warnings of the API server are not logged"


async def test_a_long_warning_is_logged_by_its_start_and_once() -> None:
    client = client_of(Script(*(Response(200, warned("x" * 60_000 + end), b"{}") for end in "ab")))
    with capture_logs() as logs:
        await client.get("v1/Node", "n1")
        await client.get("v1/Node", "n1")
    assert [line["warning"] for line in logs] == ["x" * 512]


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


# Retrying


async def test_a_busy_server_is_asked_again_after_as_long_as_it_said() -> None:
    clock = ManualClock()
    script = Script(refusal(429, "TooManyRequests", {"Retry-After": "4"}), ok(APP, 201))
    await client_of(script, clock=clock).create(APP)
    assert len(script.sent) == 2
    assert 4 <= clock.slept[0] <= 4.4


@pytest.mark.parametrize(
    "failure",
    [
        refusal(503, "ServiceUnavailable"),
        refusal(504, "Timeout"),
        errors.TransportError("reset"),
        errors.NoResponse("late"),
    ],
    ids=["503", "504", "reset", "late"],
)
async def test_reads_and_idempotent_writes_are_repeated_when_the_answer_is_lost(failure: Any) -> None:
    for verb in ("get", "merge patch", "apply", "replace", "delete"):
        script = Script(failure, ok(APP))
        client = client_of(script)
        match verb:
            case "get":
                await client.get(App, "web")
            case "merge patch":
                await client.patch(App, "web", {})
            case "apply":
                await client.apply(APP)
            case "replace":
                await client.replace(APP)
            case "delete":
                await client.delete(App, "web")
        assert len(script.sent) == 2, verb


@pytest.mark.parametrize(
    "failure", [refusal(503, "ServiceUnavailable"), refusal(504, "Timeout"), errors.TransportError("reset")]
)
async def test_a_create_or_json_patch_whose_fate_is_unknown_is_never_repeated(failure: Any) -> None:
    script = Script(failure, failure)
    client = client_of(script)
    with pytest.raises(errors.ClientError):
        await client.create(APP)
    with pytest.raises(errors.ClientError):
        await client.patch(App, "web", [{"op": "add", "path": "/spec/list/-", "value": 1}], type="json")
    assert len(script.sent) == 2


async def test_a_create_that_never_reached_the_server_is_repeated() -> None:
    script = Script(errors.TransportError("refused", sent=False), ok(APP, 201))
    await client_of(script).create(APP)
    assert len(script.sent) == 2


@pytest.mark.parametrize(
    "code", [(409, "Conflict"), (422, "Invalid"), (403, "Forbidden"), (500, "InternalError")]
)
async def test_what_a_retry_cannot_help_is_raised_at_once(code: tuple[int, str]) -> None:
    script = Script(refusal(*code))
    with pytest.raises(errors.ApiError):
        await client_of(script).replace(APP)
    assert len(script.sent) == 1


async def test_retries_end_with_the_last_error_after_the_attempts_or_the_patience() -> None:
    script = Script(*[errors.TransportError("reset")] * 10)
    with pytest.raises(errors.TransportError):
        await client_of(script, retry=RetryPolicy(attempts=4)).get(App, "web")
    assert len(script.sent) == 4
    clock = ManualClock()
    script = Script(*[refusal(429, "TooManyRequests", {"Retry-After": "20"})] * 10)
    with pytest.raises(errors.TooManyRequests):
        await client_of(script, clock=clock, retry=RetryPolicy(patience=30)).get(App, "web")
    assert sum(clock.slept) <= 30
    assert len(script.sent) == 2


async def test_the_budget_stops_retries_of_a_whole_client_and_success_refills_it() -> None:
    budget = RetryBudget(size=2, refill=1)
    policy = RetryPolicy(attempts=10, budget=budget)
    script = Script(*[errors.TransportError("reset")] * 4, ok(APP))
    client = client_of(script, retry=policy)
    with pytest.raises(errors.TransportError):
        await client.get(App, "web")
    assert len(script.sent) == 3
    with pytest.raises(errors.TransportError):
        await client.get(App, "web")
    assert len(script.sent) == 4
    await client.get(App, "web")
    assert budget.left == 1


# Gate and observers


async def test_a_closed_gate_lets_no_write_leave_and_no_read_suffer() -> None:
    def closed() -> float | None:
        raise errors.WriteRefused("not the leader")

    script = Script(ok(APP))
    client = client_of(script, before_write=closed)
    for write in (client.create(APP), client.apply(APP), client.delete(App, "web"), client.replace(APP)):
        with pytest.raises(errors.WriteRefused):
            await write
    await client.get(App, "web")
    assert [sent.method for sent in script.sent] == ["GET"]


async def test_the_gate_is_asked_before_every_attempt_also_a_repeated_one() -> None:
    answers = iter([None, errors.WriteRefused("the lease ran out while waiting")])

    def gate() -> float | None:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    script = Script(refusal(429, "TooManyRequests"), ok(APP))
    with pytest.raises(errors.WriteRefused):
        await client_of(script, before_write=gate).apply(APP)
    assert len(script.sent) == 1


async def test_a_write_may_take_no_longer_than_the_gate_allows() -> None:
    script = Script(ok(APP), ok(APP))
    client = client_of(script, before_write=lambda: 2.5)
    await client.apply(APP)
    await client.get(App, "web")
    assert [sent.timeout for sent in script.sent] == [2.5, None]


async def test_a_derived_client_shares_connections_and_observers_but_not_the_gate() -> None:
    def closed() -> float | None:
        raise errors.WriteRefused("not the leader")

    seen: list[str] = []
    script = Script(ok(APP))
    client = client_of(script, before_write=closed)
    client.observe(lambda call, code, seconds: seen.append(call.verb))
    await client.derive(field_manager="election").apply(APP)
    assert script.sent[0].query["fieldManager"] == "election"
    assert seen == ["get", "patch"]  # discovery, then the write
    with pytest.raises(errors.WriteRefused):
        await client.apply(APP)


async def test_observers_are_told_of_every_attempt_in_the_words_of_rbac() -> None:
    seen: list[tuple[Call, int]] = []
    script = Script(errors.TransportError("reset"), ok(APP), [line("ADDED", APP)])
    client = client_of(script)
    client.observe(lambda call, code, seconds: seen.append((call, code)))
    await client.patch(App, "web", {}, namespace="shop", subresource="status")
    _ = [event async for event in client.watch(App)]
    patch = Call("patch", "example.com", "apps", "status", "shop", "web")
    assert seen == [(patch, 0), (patch, 200), (Call("watch", "example.com", "apps"), 200)]
