"""The history of runs: what it keeps of many resources and of many controllers."""

from __future__ import annotations

from datetime import UTC, datetime

from kapsa.runtime.controller.work.run_history import RunArchive, RunHistory
from kapsa.runtime.controller.work.workqueue import Item, Priority, Reason, WorkQueue
from kapsa.runtime.resources.stored_object import Key


class FixedClock:
    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)


def history_in(archive: RunArchive) -> RunHistory:
    return RunHistory(archive, FixedClock())  # type: ignore[arg-type]


async def item_of(name: str) -> Item[Key]:
    queue: WorkQueue[Key] = WorkQueue()
    queue.add(Key("default", name), Reason("Added"), priority=Priority.CHANGE)
    return await queue.get()


async def test_the_history_of_many_resources_stays_bounded() -> None:
    history = history_in(RunArchive())
    item = await item_of("one")
    for number in range(6000):
        item.key = Key("default", f"app-{number}")
        history.fail(item.key, RuntimeError("x" * 5000))
        history.end(item, "error", 0.1)
    assert history.runs(Key("default", "app-0")) == []
    assert len(history.runs(Key("default", "app-5999"))) == 1
    assert len(history.errors) == 100
    assert len(history.last_error(Key("default", "app-5999"))) == 1000
    for _ in range(20):
        history.end(item, "success", 0.1)
    assert [run.result for run in history.runs(item.key)] == ["success"] * 10


async def test_the_history_of_many_controllers_stays_bounded() -> None:
    archive = RunArchive()
    histories = [history_in(archive) for _ in range(30)]  # shards, or clusters
    item = await item_of("one")
    keys = [Key("default", f"app-{number}") for number in range(300)]
    for history in histories:
        for item.key in keys:
            history.fail(item.key, RuntimeError("x"))
            history.end(item, "error", 0.1)
    assert sum(bool(history.runs(key)) for history in histories for key in keys) == 5000
    assert sum(len(history.errors) for history in histories) == 2000
    assert len(histories[0].errors) == 0
    assert len(histories[-1].errors) == 100
    assert len(histories[-1].runs(keys[0])) == 1


async def test_the_same_key_of_two_controllers_has_two_histories() -> None:
    archive = RunArchive()
    first, second = history_in(archive), history_in(archive)
    item = await item_of("web")
    first.end(item, "success", 0.1)
    assert len(first.runs(item.key)) == 1
    assert second.runs(item.key) == []
