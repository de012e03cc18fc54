"""Retries, the write gate, and the observers of a client."""

from typing import Any

import pytest

from kapsa.runtime import errors
from kapsa.runtime.client.dispatch import Call
from kapsa.runtime.client.retry import RetryBudget, RetryPolicy
from tests.runtime.client.fake_transport import (
    APP,
    App,
    FakeTransport,
    ManualClock,
    client_with,
    error_response,
    event_line,
    ok,
)


async def test_a_request_rejected_with_429_is_retried_after_retry_after() -> None:
    clock = ManualClock()
    transport = FakeTransport(error_response(429, "TooManyRequests", {"Retry-After": "4"}), ok(APP, 201))
    await client_with(transport, clock=clock).create(APP)
    assert len(transport.requests) == 2
    assert 4 <= clock.slept[0] <= 4.4


@pytest.mark.parametrize(
    "failure",
    [
        error_response(503, "ServiceUnavailable"),
        error_response(504, "Timeout"),
        errors.TransportError("reset"),
        errors.NoResponse("late"),
    ],
    ids=["503", "504", "reset", "late"],
)
async def test_reads_and_idempotent_writes_are_retried_when_the_response_is_lost(failure: Any) -> None:
    for verb in ("get", "merge patch", "apply", "replace", "delete"):
        transport = FakeTransport(failure, ok(APP))
        client = client_with(transport)
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
        assert len(transport.requests) == 2, verb


@pytest.mark.parametrize(
    "failure",
    [
        error_response(503, "ServiceUnavailable"),
        error_response(504, "Timeout"),
        errors.TransportError("reset"),
    ],
)
async def test_a_create_or_json_patch_whose_outcome_is_unknown_is_never_retried(failure: Any) -> None:
    transport = FakeTransport(failure, failure)
    client = client_with(transport)
    with pytest.raises(errors.ClientError):
        await client.create(APP)
    with pytest.raises(errors.ClientError):
        await client.patch(App, "web", [{"op": "add", "path": "/spec/list/-", "value": 1}], type="json")
    assert len(transport.requests) == 2


async def test_a_create_that_did_not_reach_the_server_is_retried() -> None:
    transport = FakeTransport(errors.TransportError("refused", sent=False), ok(APP, 201))
    await client_with(transport).create(APP)
    assert len(transport.requests) == 2


@pytest.mark.parametrize(
    "code", [(409, "Conflict"), (422, "Invalid"), (403, "Forbidden"), (500, "InternalError")]
)
async def test_an_error_that_a_retry_cannot_fix_is_raised_at_once(code: tuple[int, str]) -> None:
    transport = FakeTransport(error_response(*code))
    with pytest.raises(errors.ApiError):
        await client_with(transport).replace(APP)
    assert len(transport.requests) == 1


async def test_retries_end_with_the_last_error_after_the_attempts_or_the_patience() -> None:
    transport = FakeTransport(*[errors.TransportError("reset")] * 10)
    with pytest.raises(errors.TransportError):
        await client_with(transport, retry=RetryPolicy(attempts=4)).get(App, "web")
    assert len(transport.requests) == 4
    clock = ManualClock()
    transport = FakeTransport(*[error_response(429, "TooManyRequests", {"Retry-After": "20"})] * 10)
    with pytest.raises(errors.TooManyRequests):
        await client_with(transport, clock=clock, retry=RetryPolicy(patience=30)).get(App, "web")
    assert sum(clock.slept) <= 30
    assert len(transport.requests) == 2


async def test_the_budget_stops_retries_of_a_whole_client_and_success_refills_it() -> None:
    budget = RetryBudget(size=2, refill=1)
    policy = RetryPolicy(attempts=10, budget=budget)
    transport = FakeTransport(*[errors.TransportError("reset")] * 4, ok(APP))
    client = client_with(transport, retry=policy)
    with pytest.raises(errors.TransportError):
        await client.get(App, "web")
    assert len(transport.requests) == 3
    with pytest.raises(errors.TransportError):
        await client.get(App, "web")
    assert len(transport.requests) == 4
    await client.get(App, "web")
    assert budget.left == 1


# Gate and observers


async def test_a_closed_gate_stops_writes_and_not_reads() -> None:
    def closed() -> float | None:
        raise errors.WriteRefused("not the leader")

    transport = FakeTransport(ok(APP))
    client = client_with(transport, before_write=closed)
    for write in (client.create(APP), client.apply(APP), client.delete(App, "web"), client.replace(APP)):
        with pytest.raises(errors.WriteRefused):
            await write
    await client.get(App, "web")
    assert [request.method for request in transport.requests] == ["GET"]


async def test_the_gate_is_called_before_each_attempt_including_retries() -> None:
    results = iter([None, errors.WriteRefused("the lease expired in the meantime")])

    def gate() -> float | None:
        result = next(results)
        if isinstance(result, Exception):
            raise result
        return result

    transport = FakeTransport(error_response(429, "TooManyRequests"), ok(APP))
    with pytest.raises(errors.WriteRefused):
        await client_with(transport, before_write=gate).apply(APP)
    assert len(transport.requests) == 1


async def test_the_gate_limits_the_time_of_a_write() -> None:
    transport = FakeTransport(ok(APP), ok(APP))
    client = client_with(transport, before_write=lambda: 2.5)
    await client.apply(APP)
    await client.get(App, "web")
    assert [request.timeout for request in transport.requests] == [2.5, None]


async def test_a_derived_client_shares_connections_and_observers_but_not_the_gate() -> None:
    def closed() -> float | None:
        raise errors.WriteRefused("not the leader")

    seen: list[str] = []
    transport = FakeTransport(ok(APP))
    client = client_with(transport, before_write=closed)
    client.observe(lambda call, code, seconds: seen.append(call.verb))
    await client.derive(field_manager="election").apply(APP)
    assert transport.requests[0].query["fieldManager"] == "election"
    assert seen == ["get", "patch"]  # discovery, then the write
    with pytest.raises(errors.WriteRefused):
        await client.apply(APP)


async def test_observers_get_each_attempt_in_rbac_terms() -> None:
    seen: list[tuple[Call, int]] = []
    transport = FakeTransport(errors.TransportError("reset"), ok(APP), [event_line("ADDED", APP)])
    client = client_with(transport)
    client.observe(lambda call, code, seconds: seen.append((call, code)))
    await client.patch(App, "web", {}, namespace="shop", subresource="status")
    _ = [event async for event in client.watch(App)]
    patch = Call("patch", "example.com", "apps", "status", "shop", "web")
    assert seen == [(patch, 0), (patch, 200), (Call("watch", "example.com", "apps"), 200)]
