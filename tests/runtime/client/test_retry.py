"""What the client sends again, what it holds back, and who is told of it."""

from typing import Any

import pytest

from kapsa.runtime import errors
from kapsa.runtime.client.dispatch import Call
from kapsa.runtime.client.retry import RetryBudget, RetryPolicy
from tests.runtime.scripted import APP, App, ManualClock, Script, client_of, line, ok, refusal


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
