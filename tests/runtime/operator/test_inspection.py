"""The debug endpoint: what it shows of queues, runs and caches, and who may ask."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from kapsa.runtime import Backoff, Context, Operator, Requeue, RunningOperator, TerminalError
from kapsa.runtime.controller.work import run_history
from kapsa.runtime.operator.inspection import InspectionReport, KeyReport
from kapsa.runtime.testing import Harness
from kapsa.runtime.testing.plugin import faults, harness, plain_logs
from tests.runtime.sample_app import App, Recorder, app

__all__ = ["faults", "harness", "plain_logs"]


class Shop(Recorder):
    """A controller that does with each App what its image says."""

    retry_backoff = Backoff(initial=3600, max=3600)  # no retry during a test, however busy the machine
    max_concurrent_reconciles = 1

    def __init__(self) -> None:
        super().__init__()
        self.go_on = asyncio.Event()

    async def reconcile(self, resource: App, ctx: Context[App]) -> Requeue | None:
        match resource.spec.image:
            case "slow":
                await self.go_on.wait()
            case "broken":
                raise RuntimeError("no such image")
            case "terminal":
                raise TerminalError("will never work")
            case "timer":
                return Requeue(after=3600)
        return None


async def ask(run: RunningOperator, query: str = "", *, host: str = "127.0.0.1") -> tuple[int, bytes]:
    """Send a request to the debug port, as `kapsa inspect` does."""
    reader, writer = await asyncio.open_connection("127.0.0.1", run.probes.ports["debug"])
    writer.write(f"GET /debug?{query} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


async def report(run: RunningOperator, query: str = "") -> InspectionReport:
    status, body = await ask(run, query)
    assert status == 200
    return msgspec.json.decode(body, type=InspectionReport)


async def until_key(run: RunningOperator, name: str, state: str) -> KeyReport:
    """Wait until the key has a state, for two minutes at most."""
    for _ in range(2400):
        (controller,) = (await report(run, f"key=default/{name}")).controllers
        (key,) = controller.keys
        if key.state == state and (key.runs or state != "idle"):
            return key
        await asyncio.sleep(0.05)
    raise AssertionError(f"{name} is {key.state}, not {state}: {key}")


async def until_working(run: RunningOperator) -> None:
    """Wait until the controller works, so that a new resource is an event, not part of its first list."""
    for _ in range(2400):
        if [each.state for each in (await report(run)).controllers] == ["working"]:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the controller does not work within two minutes")


async def started(harness: Harness, **settings: Any) -> tuple[RunningOperator, Shop]:
    shop = Shop()
    operator = Operator(
        controllers=[shop],
        metrics_port=None,
        health_port=None,
        **{"debug_port": 0, **settings},
    )
    await harness.install(App)
    client = harness.connect("inspected")
    run = await operator.start(client)
    if run.operator.debug_port is not None:
        await until_working(run)
    return run, shop


async def test_each_key_says_why_it_is_queued_and_what_it_waits_for(harness: Harness) -> None:
    run, shop = await started(harness)
    try:
        for image in ("broken", "terminal", "timer", "fine"):
            await harness.apply(app(image, image=image))
        broken = await until_key(run, "broken", "delayed")
        assert broken.waits_for == "its retry after an error"
        assert (broken.failures, broken.error) == (1, "RuntimeError: no such image")
        assert 0 < broken.seconds <= 3600
        terminal = await until_key(run, "terminal", "given up")
        assert terminal.waits_for.startswith("a change of the resource")
        assert terminal.runs[0].result == "terminal"
        timer = await until_key(run, "timer", "delayed")
        assert timer.waits_for == "the time it requested"
        assert timer.runs[0].again_after == 3600
        fine = await until_key(run, "fine", "idle")
        assert (fine.waits_for, fine.runs[0].result) == ("the next event", "success")
        assert fine.runs[0].reasons == ("App default/fine Added",)
        await harness.apply(app("slow", image="slow"))
        slow = await until_key(run, "slow", "running")
        assert slow.reasons == ("App default/slow Added",)
        await harness.apply(app("next", image="fine"))
        waiting = await until_key(run, "next", "waiting")
        assert waiting.waits_for == "a free worker, priority CHANGE"
        (controller,) = (await report(run)).controllers
        counts = (controller.running, controller.waiting, controller.delayed, controller.given_up)
        assert counts == (1, 1, 2, 1)
        assert [each.state for each in controller.keys] == [
            "running",
            "waiting",
            "delayed",
            "delayed",
            "given up",
        ]
        assert {each.text for each in controller.errors} >= {"RuntimeError: no such image"}
    finally:
        shop.go_on.set()
        await run.stop(grace=0)


async def test_caches_are_listed_with_their_age(harness: Harness) -> None:
    run, _ = await started(harness)
    try:
        await harness.apply(app("fine", image="fine"))
        await until_key(run, "fine", "idle")
        (cache,) = (await report(run)).caches
        assert (cache.state, cache.objects, cache.trouble) == ("watching", 1, "")
        assert cache.age >= 0
        assert cache.listed is not None
    finally:
        await run.stop(grace=0)


async def test_lists_are_cut_and_counts_are_whole(harness: Harness) -> None:
    run, _ = await started(harness)
    try:
        for number in range(5):
            await harness.apply(app(f"timer-{number}", image="timer"))
        for number in range(5):
            await until_key(run, f"timer-{number}", "delayed")
        (controller,) = (await report(run, "limit=2")).controllers
        assert (controller.delayed, len(controller.keys)) == (5, 2)
        assert (await report(run, "controller=other")).controllers == ()
    finally:
        await run.stop(grace=0)


@pytest.mark.parametrize("host", ["evil.example.com", "127.0.0.1.evil.example.com", "10.0.0.1:8082"])
async def test_a_request_by_another_name_of_this_machine_is_refused(harness: Harness, host: str) -> None:
    run, _ = await started(harness)
    try:
        status, body = await ask(run, host=host)
        assert status == 403
        assert b"operator" not in body
    finally:
        await run.stop(grace=0)


async def test_without_a_debug_port_nothing_is_served_or_recorded(harness: Harness) -> None:
    run, _ = await started(harness, debug_port=None)
    try:
        assert "debug" not in run.probes.ports
        assert [reconciler.history for reconciler in run.reconcilers] == [None]
    finally:
        await run.stop(grace=0)


async def test_the_endpoint_listens_on_loopback_whatever_the_host_of_the_probes(harness: Harness) -> None:
    run, _ = await started(harness, host="0.0.0.0")
    try:
        sockets = [socket.getsockname()[0] for server in run.probes._servers for socket in server.sockets]
        assert sockets == ["127.0.0.1"]
    finally:
        await run.stop(grace=0)


@pytest.mark.parametrize("port", ["metrics_port", "health_port"])
def test_the_debug_port_is_one_of_its_own(port: str) -> None:
    with pytest.raises(ValueError, match="debug_port 9000 is taken"):
        Operator(controllers=[], debug_port=9000, **{port: 9000})


async def test_all_controllers_of_an_operator_share_one_limit_of_runs(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_history, "_KEYS", 3)
    await harness.install(App)
    controllers = [Recorder(name="one"), Recorder(name="two")]
    operator = Operator(controllers=controllers, metrics_port=None, health_port=None, debug_port=0)
    run = await operator.start(harness.connect("inspected"))
    try:
        names = [f"app-{number}" for number in range(4)]
        await harness.apply(*map(app, names))
        for _ in range(2400):
            if run.idle and all(set(each.runs) == set(names) for each in controllers):
                break
            await asyncio.sleep(0.05)
        kept = [
            part.keys[0].runs
            for name in names
            for part in (await report(run, f"key=default/{name}")).controllers
        ]
        assert len([runs for runs in kept if runs]) == 3
    finally:
        await run.stop(grace=0)
