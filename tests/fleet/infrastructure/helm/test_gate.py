"""The gate: who may pass, what is forwarded, and what happens after the lease."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import pytest

from kapsa.fleet.domain.rollout.plans import FieldConflict
from kapsa.fleet.infrastructure.helm import gate_session
from kapsa.fleet.infrastructure.helm.api_path import ApiPath, parse_path
from kapsa.fleet.infrastructure.helm.gate import GateAccess, HelmGate
from kapsa.fleet.infrastructure.helm.gate_rules import Restoration
from kapsa.fleet.infrastructure.helm.gate_session import GateSession
from kapsa.fleet.orchestrator.ports.leases import LeaseGuard
from kapsa.runtime import Response, TransportError

APPLY = {"Content-Type": "application/apply-patch+yaml"}
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CONFIG_MAPS = "/api/v1/namespaces/shop/configmaps"


class BusyReply(msgspec.Struct, frozen=True):
    """A failure that an API server answers."""

    status: int
    headers: dict[str, str] = {}
    reason: str = ""
    message: str = "too many requests"

    @property
    def response(self) -> Response:
        body = {"status": "Failure", "code": self.status, "reason": self.reason, "message": self.message}
        headers = {"content-type": "application/json", "set-cookie": "no", **self.headers}
        return Response(self.status, headers, msgspec.json.encode(body))


class FakeServer:
    """A transport to an API server that answers each request with 200, or as a test wants."""

    def __init__(self) -> None:
        self.busy: list[BusyReply] = []
        """The answers to the next requests."""
        self.requests: list[tuple[str, str, Mapping[str, str], bytes]] = []
        self.failures: list[TransportError] = []
        self.status = 200
        self.watches_break = False

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Any = (),
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        timeout: float | None = None,
        before_send: Any = None,
    ) -> Response:
        if self.failures:
            raise self.failures.pop(0)
        self.requests.append((method, path, headers or {}, body))
        if self.busy:
            return self.busy.pop(0).response
        return Response(self.status, {"content-type": "application/json", "set-cookie": "no"}, b"{}")

    @asynccontextmanager
    async def stream(self, method: str, path: str, **options: Any) -> AsyncIterator[Any]:
        self.requests.append((method, path, options["headers"], b""))
        if self.busy:
            reply = self.busy.pop(0)
            yield _Events(reply.status, breaks=False, headers=reply.headers)
        else:
            yield _Events(self.status, breaks=self.watches_break)

    async def close(self) -> None:
        pass

    @property
    def lines(self) -> list[str]:
        return [f"{method} {path}" for method, path, _, _ in self.requests]


class _Events:
    status: int

    def __init__(self, status: int, *, breaks: bool, headers: Mapping[str, str] | None = None) -> None:
        self.status = status
        self.headers = {"content-type": "application/json", **(headers or {})}
        self._breaks = breaks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b'{"type":"ADDED"}\n'
        if self._breaks:
            raise TransportError("the watch broke off")
        await asyncio.Event().wait()


class OpenGate:
    """A gate with one run under way, and an HTTP client in the place of helm."""

    def __init__(self, gate: HelmGate, session: GateSession, access: GateAccess, http: Any) -> None:
        self.gate = gate
        self.session = session
        self.access = access
        self.http = http

    async def send(self, method: str, target: str, token: str = "", **options: Any) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {token or self.access.token}", **options.pop("headers", {})}
        async with self.http.request(
            method, f"{self.access.server}{target}", headers=headers, **options
        ) as response:
            return response.status, json.loads(await response.read())


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@asynccontextmanager
async def opened(server: FakeServer, clock: Clock, **options: Any) -> AsyncIterator[OpenGate]:
    gate = HelmGate()
    guard = LeaseGuard(10.0, clock)
    async with gate.open(server, guard, **options) as (session, access):  # type: ignore[arg-type]
        trust = ssl.create_default_context(cadata=access.authority.decode())
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as http:
            yield OpenGate(gate, session, access, http)
    await gate.close()


async def test_only_the_token_of_a_run_opens_the_gate(server: FakeServer, clock: Clock) -> None:
    async with opened(server, clock) as gate:
        assert (await gate.send("GET", "/version", token="wrong"))[0] == 401
        assert (await gate.send("GET", "/version", token="\u00fc".encode().decode("latin-1")))[0] == 401
        assert server.requests == []
        assert (await gate.send("GET", "/version"))[0] == 200
        async with gate.gate.open(server, LeaseGuard(10.0, clock)) as (_, other):  # type: ignore[arg-type]
            assert (await gate.send("GET", "/version", token=other.token))[0] == 200
        status, body = await gate.send("GET", "/version", token=other.token)
        assert (status, body["reason"]) == (401, "Unauthorized")


async def test_no_credential_and_no_impersonation_of_helm_is_forwarded(
    server: FakeServer, clock: Clock
) -> None:
    async with opened(server, clock) as gate:
        headers = {"Impersonate-User": "admin", "Cookie": "a=b", "Accept": "application/json"}
        await gate.send("GET", f"{CONFIG_MAPS}?limit=5", headers=headers)
    _, target, forwarded, _ = server.requests[0]
    assert target == f"{CONFIG_MAPS}?limit=5"
    assert forwarded == {"Accept": "application/json"}


async def test_nothing_is_forwarded_after_the_lease(server: FakeServer, clock: Clock) -> None:
    async with opened(server, clock) as gate:
        assert (await gate.send("PATCH", f"{CONFIG_MAPS}/a", data=b"{}", headers=APPLY))[0] == 200
        clock.seconds = 10.0
        status, body = await gate.send("PATCH", f"{CONFIG_MAPS}/a", data=b"{}", headers=APPLY)
        assert (status, gate.session.lapsed) == (403, True)
        assert "lease of this run has lapsed" in body["message"]
        clock.seconds = 0.0  # a clock that jumps back opens nothing again
        assert (await gate.send("GET", "/version"))[0] == 403
        assert (await gate.send("DELETE", f"{CONFIG_MAPS}/a"))[0] == 403
    assert server.lines == [f"PATCH {CONFIG_MAPS}/a"]


async def test_a_write_that_waited_for_a_connection_until_the_lease_was_over_is_not_sent(
    clock: Clock,
) -> None:
    class FullServer(FakeServer):
        async def request(self, *arguments: Any, before_send: Any = None, **options: Any) -> Response:
            clock.seconds = 10.0
            if before_send is not None:
                before_send()
            return await super().request(*arguments, **options)

    server = FullServer()
    async with opened(server, clock) as gate:
        status, body = await gate.send("PATCH", f"{CONFIG_MAPS}/a", data=b"{}", headers=APPLY)
        assert (status, gate.session.lapsed) == (403, True)
        assert "lease of this run has lapsed" in body["message"]
    assert server.requests == []


async def test_a_run_that_got_no_answer_to_a_write_writes_nothing_more(
    server: FakeServer, clock: Clock
) -> None:
    server.failures = [TransportError("PATCH: the connection failed", sent=True)]
    async with opened(server, clock) as gate:
        assert (await gate.send("PATCH", f"{CONFIG_MAPS}/a", data=b"{}"))[0] == 503
        assert (await gate.send("PUT", "/api/v1/namespaces/shop/secrets/s", data=b"{}"))[0] == 503
        assert gate.session.unreachable == "PATCH: the connection failed"
    assert server.requests == []
    assert [(write.verb, write.status) for write in gate.session.writes] == [("PATCH", 0)]


async def test_a_write_that_was_not_sent_and_a_read_are_tried_again(server: FakeServer, clock: Clock) -> None:
    async with opened(server, clock) as gate:
        server.failures = [TransportError("cannot connect", sent=False)]
        assert (await gate.send("PATCH", f"{CONFIG_MAPS}/a", data=b"{}"))[0] == 200
        server.failures = [TransportError("broke off", sent=True)]
        assert (await gate.send("GET", CONFIG_MAPS))[0] == 200
        assert gate.session.unreachable == ""


async def test_a_crd_is_tried_and_never_changed_or_deleted(server: FakeServer, clock: Clock) -> None:
    async with opened(server, clock) as gate:
        target = f"{CRDS}/widgets.example.com"
        query = "?dryRun=&fieldManager=helm&force=false"
        assert (await gate.send("PATCH", f"{target}{query}", data=b"{}", headers=APPLY))[0] == 200
        assert (await gate.send("PUT", target, data=b"{}"))[0] == 200
        for spelled in (target, target.replace("customr", "custom%72"), CRDS):
            status, body = await gate.send("DELETE", spelled)
            assert (status, body["reason"]) == (404, "NotFound")
    assert server.lines == [
        f"PATCH {target}?fieldManager=helm&dryRun=All&force=true",
        f"PUT {target}?dryRun=All",
    ]
    assert {write.effect for write in gate.session.writes} == {"try", "refused"}


async def test_a_namespace_is_never_deleted_and_what_is_in_it_may_be(
    server: FakeServer, clock: Clock
) -> None:
    async with opened(server, clock) as gate:
        for spelled in ("/api/v1/namespaces/shop", "/api/v1/name%73paces/shop", "/api/v1/namespaces"):
            status, answer = await gate.send("DELETE", spelled)
            assert (status, answer["reason"]) == (404, "NotFound")
        assert "a Helm run deletes no namespace" in answer["message"]
        assert (await gate.send("PATCH", "/api/v1/namespaces/shop", headers=APPLY))[0] == 200
        assert (await gate.send("DELETE", f"{CONFIG_MAPS}/a"))[0] == 200
    assert server.lines == ["PATCH /api/v1/namespaces/shop", f"DELETE {CONFIG_MAPS}/a"]


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "/api/v1/namespaces/shop/pods/p/exec?command=sh"),
        ("POST", "/api/v1/namespaces/shop/pods/p/attach"),
        ("GET", "/api/v1/namespaces/shop/services/s/proxy"),
        ("POST", "/api/v1/namespaces/kube-system/serviceaccounts/default/token"),
        ("POST", "/logs"),
        ("DELETE", "/api/v1/namespaces/shop/configmaps/a%2Fb"),
        ("OPTIONS", "/api/v1/nodes"),
    ],
)
async def test_ways_into_containers_and_to_lasting_credentials_are_closed(
    server: FakeServer, clock: Clock, method: str, target: str
) -> None:
    import yarl

    async with opened(server, clock) as gate:
        url = yarl.URL(f"{gate.access.server}{target}", encoded=True)
        headers = {"Authorization": f"Bearer {gate.access.token}"}
        async with gate.http.request(method, url, headers=headers) as response:
            assert response.status in (403, 405)
    assert server.requests == []


async def test_a_watch_is_passed_on_as_it_arrives_and_ends_with_the_run(
    server: FakeServer, clock: Clock
) -> None:
    async with opened(server, clock) as gate:
        headers = {"Authorization": f"Bearer {gate.access.token}"}
        url = f"{gate.access.server}{CONFIG_MAPS}?watch=true"
        async with gate.http.get(url, headers=headers) as response:
            assert await response.content.readline() == b'{"type":"ADDED"}\n'
            await gate.session.close()
            with pytest.raises(aiohttp.ClientError):
                await response.content.read()


async def test_a_watch_that_breaks_off_does_not_end_the_run(server: FakeServer, clock: Clock) -> None:
    server.watches_break = True
    async with opened(server, clock) as gate:
        assert (await gate.send("GET", f"{CONFIG_MAPS}?watch=1"))[1] == {"type": "ADDED"}
        assert (await gate.send("PATCH", f"{CONFIG_MAPS}/a", data=b"{}", headers=APPLY))[0] == 200


THROTTLED = BusyReply(429, {"retry-after": "0"})
SHORT_PAUSE = 0.01


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the gate wait for hundredths of a second where it waits for seconds."""
    for name in ("_FIRST_PAUSE", "_LONGEST_PAUSE", "_REQUEST_PAUSES", "_RUN_PAUSES"):
        monkeypatch.setattr(gate_session, name, getattr(gate_session, name) * SHORT_PAUSE)


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("method", ["GET", "PATCH", "POST", "WATCH"])
@pytest.mark.parametrize("status", [429, 503])
async def test_helm_is_answered_once_a_busy_api_server_has_done_what_it_asks(
    server: FakeServer, clock: Clock, method: str, status: int
) -> None:
    server.busy = [BusyReply(status, {"retry-after": "0"})] * 3
    async with opened(server, clock) as gate:
        server.watches_break = True
        target = f"{CONFIG_MAPS}?watch=1" if method == "WATCH" else CONFIG_MAPS
        answer = await gate.send("GET" if method == "WATCH" else method, target, headers=APPLY)
        assert answer[0] == 200
        assert gate.session.unreachable == ""
    assert len(server.requests) == 4


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize(
    ("method", "reply"),
    [
        *((method, THROTTLED) for method in ("GET", "PATCH", "WATCH")),
        ("GET", BusyReply(503)),
        ("GET", BusyReply(504)),
        ("WATCH", BusyReply(504)),
        ("PATCH", BusyReply(503, {"retry-after": "120"})),
    ],
)
async def test_an_api_server_that_stays_busy_ends_the_run_like_a_lost_answer(
    server: FakeServer, clock: Clock, method: str, reply: BusyReply
) -> None:
    server.busy = [reply] * 100
    async with opened(server, clock) as gate:
        target = f"{CONFIG_MAPS}?watch=1" if method == "WATCH" else CONFIG_MAPS
        status, _ = await gate.send("GET" if method == "WATCH" else method, target, headers=APPLY)
        assert status == 503
        assert gate.session.unreachable.startswith(f"the API server answered {reply.status}")
        server.busy = []
        assert (await gate.send("POST", CONFIG_MAPS, data=b"{}"))[0] == 503
    assert 0 < len(server.requests) < 12


@pytest.mark.parametrize(
    "reply",
    [
        BusyReply(502),
        BusyReply(503),
        BusyReply(504),
        BusyReply(500, reason="ServerTimeout"),
        BusyReply(500, message="etcdserver: request timed out"),
    ],
)
async def test_a_write_that_a_busy_api_server_may_have_carried_out_is_not_sent_again(
    server: FakeServer, clock: Clock, reply: BusyReply
) -> None:
    server.busy = [reply]
    async with opened(server, clock) as gate:
        assert (await gate.send("POST", CONFIG_MAPS, data=b"{}"))[0] == 503
        assert gate.session.unreachable.startswith(f"the API server answered {reply.status}")
    assert server.lines == [f"POST {CONFIG_MAPS}"]
    assert [write.status for write in gate.session.writes] == [reply.status]


@pytest.mark.usefixtures("brief")
async def test_no_write_is_sent_again_after_the_lease(clock: Clock) -> None:
    class SlowServer(FakeServer):
        async def request(self, *arguments: Any, **options: Any) -> Response:
            clock.seconds = 10.0
            return await super().request(*arguments, **options)

    server = SlowServer()
    server.busy = [THROTTLED] * 100
    async with opened(server, clock) as gate:
        assert (await gate.send("PATCH", f"{CONFIG_MAPS}/a", data=b"{}", headers=APPLY))[0] == 403
        assert gate.session.lapsed
    assert server.lines == [f"PATCH {CONFIG_MAPS}/a"]


@pytest.mark.usefixtures("brief")
async def test_all_requests_of_a_run_wait_for_a_busy_api_server_for_a_limited_time(
    server: FakeServer, clock: Clock
) -> None:
    statuses: list[int] = []
    async with opened(server, clock) as gate:
        for _ in range(100):
            server.busy = [THROTTLED] * 4
            statuses.append((await gate.send("GET", CONFIG_MAPS))[0])
    assert 200 in statuses
    assert 503 in statuses[:20]
    assert gate.session.unreachable


async def test_helm_goes_on_without_a_group_that_cannot_be_discovered(
    server: FakeServer, clock: Clock
) -> None:
    async with opened(server, clock) as gate:
        server.busy = [BusyReply(503)]
        url, headers = "/apis/metrics.k8s.io/v1beta1", {"Authorization": f"Bearer {gate.access.token}"}
        async with gate.http.get(f"{gate.access.server}{url}", headers=headers) as response:
            assert (response.status, response.headers["Retry-After"]) == (503, "1")
            assert "Set-Cookie" not in response.headers
        assert gate.session.unreachable == ""
        assert gate.session.undiscovered == f"GET {url}: the API server answered 503: too many requests"
        assert (await gate.send("PATCH", f"{CONFIG_MAPS}/a", data=b"{}", headers=APPLY))[0] == 200


@pytest.mark.parametrize(
    ("status", "message"),
    [
        *((status, "denied") for status in (400, 403, 404, 409, 422, 500)),
        (500, "etcdserver: request is too large"),
    ],
)
async def test_other_failures_are_helms_to_judge(
    server: FakeServer, clock: Clock, status: int, message: str
) -> None:
    server.busy = [BusyReply(status, message=message)]
    async with opened(server, clock) as gate:
        answer = await gate.send("PATCH", f"{CONFIG_MAPS}/a", data=b"{}", headers=APPLY)
        assert (answer[0], answer[1]["message"]) == (status, message)
        assert gate.session.unreachable == ""


async def test_a_rollback_wakes_what_was_stored_at_rest(server: FakeServer, clock: Clock) -> None:
    resting: dict[str, Any] = {
        "metadata": {"annotations": {"fleet.kapsa-project.io/replicas": "3"}},
        "spec": {"replicas": 0},
    }
    condition = {"name": "fleet.kapsa-project.io/idle", "expression": "false"}
    configuration = {"webhooks": [{"name": "a", "matchConditions": [condition]}]}
    plain = {"metadata": {}, "spec": {}}
    webhooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/w"
    deployments = "/apis/apps/v1/namespaces/shop/deployments"
    for restoration in (Restoration(), None):
        async with opened(server, clock, restoration=restoration) as gate:
            await gate.send("PATCH", f"{deployments}/c", json=resting, headers=APPLY)
            await gate.send("PATCH", f"{deployments}/plain", json=plain, headers=APPLY)
            await gate.send("PATCH", webhooks, json=configuration, headers=APPLY)
    bodies = [json.loads(body) for *_, body in server.requests]
    assert bodies[0]["spec"] == {"replicas": 3}
    assert bodies[2] == {"webhooks": [{"name": "a"}]}
    assert [bodies[1], *bodies[3:]] == [plain, resting, plain, configuration]


async def test_a_rollback_leaves_the_fields_that_its_deployment_left_to_their_owners(
    server: FakeServer, clock: Clock
) -> None:
    left = (
        FieldConflict("ConfigMap shop/a", ".data.level", "tuner"),
        FieldConflict("ConfigMap shop/a", ".data.absent", "tuner"),
        FieldConflict("ClusterRole reader", ".aggregationRule", "platform"),
    )
    tuned = {"kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"level": "1", "size": "2"}}
    secret = {**tuned, "kind": "Secret"}
    role = {"kind": "ClusterRole", "metadata": {"name": "reader"}, "aggregationRule": {}, "rules": []}
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles/reader"
    async with opened(server, clock, restoration=Restoration(left)) as gate:
        await gate.send("PATCH", f"{CONFIG_MAPS}/a", json=tuned, headers=APPLY)
        await gate.send("PATCH", f"{CONFIG_MAPS}/b", json=tuned, headers=APPLY)
        await gate.send("PATCH", "/api/v1/namespaces/shop/secrets/a", json=secret, headers=APPLY)
        await gate.send("PATCH", roles, json=role, headers=APPLY)
    first, *others, last = [json.loads(body) for *_, body in server.requests]
    assert first == {**tuned, "data": {"size": "2"}}
    assert others == [tuned, secret]
    assert last == {"kind": "ClusterRole", "metadata": {"name": "reader"}, "rules": []}


async def test_the_trace_context_reaches_the_api_server(server: FakeServer, clock: Clock) -> None:
    from opentelemetry import trace

    context = trace.SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=trace.TraceFlags(1))
    with trace.use_span(trace.NonRecordingSpan(context)):
        async with opened(server, clock) as gate:
            await gate.send("GET", "/version")
    assert server.requests[0][2]["traceparent"] == f"00-{0xABC:032x}-{0xDEF:016x}-01"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/v1/namespaces", ApiPath("", "namespaces")),
        ("/api/v1/namespaces/shop", ApiPath("", "namespaces", "", "shop")),
        ("/api/v1/namespaces/shop/finalize", ApiPath("", "namespaces", "", "shop", "finalize")),
        ("/api/v1/namespaces/shop/pods/p/log", ApiPath("", "pods", "shop", "p", "log")),
        ("/apis/apps/v1/deployments", ApiPath("apps", "deployments")),
        ("/apis/apps/v1/namespaces/shop/deployments/d", ApiPath("apps", "deployments", "shop", "d")),
        ("/version", None),
        ("/api/v1/namespaces/../secrets", None),
        ("//api/v1/secrets", None),
    ],
)
def test_a_path_names_a_resource(path: str, expected: ApiPath | None) -> None:
    assert parse_path(path) == expected


@pytest.mark.parametrize("method", ["GET", "PATCH", "WATCH"])
async def test_a_rejected_token_ends_the_run_like_a_lost_answer_and_not_like_a_failure_of_the_version(
    server: FakeServer, clock: Clock, method: str
) -> None:
    server.status = 401
    async with opened(server, clock) as gate:
        if method == "WATCH":
            first = await gate.send("GET", f"{CONFIG_MAPS}?watch=true")
        else:
            first = await gate.send(method, f"{CONFIG_MAPS}/a", headers=APPLY)
        assert first[0] == 503
        assert gate.session.unreachable == "the cluster rejected the token of this manager"
        server.status = 200
        assert (await gate.send("POST", CONFIG_MAPS, data=b"{}"))[0] == 503
        assert not [line for line in server.lines if line.startswith("POST")]
