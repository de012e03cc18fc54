"""The work queue: one run per key, no lost wake-up, echoes, delays, back-off, priorities."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kapsa.runtime.controller.work.workqueue import (
    Backoff,
    Item,
    Priority,
    QueueShutDownError,
    Reason,
    WorkQueue,
)

CHANGED = Reason("Updated", "MyApp", "default", "web")


class ManualClock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


def queue_on_manual_clock(**settings: Backoff) -> tuple[WorkQueue[str], ManualClock]:
    clock = ManualClock()
    return WorkQueue[str](time=clock, **settings), clock


async def take(queue: WorkQueue[str]) -> Item[str]:
    return await asyncio.wait_for(queue.get(), 1)


async def test_a_key_added_many_times_runs_once() -> None:
    queue, _ = queue_on_manual_clock()
    for _ in range(100):
        queue.add("a", CHANGED)
    assert (await take(queue)).key == "a"
    queue.done("a")
    assert len(queue) == 0
    assert queue.idle


async def test_a_key_is_never_handed_out_while_it_runs() -> None:
    queue, _ = queue_on_manual_clock()
    queue.add("a", CHANGED)
    await take(queue)
    queue.add("a", CHANGED)
    queue.add("b", CHANGED)
    assert (await take(queue)).key == "b"
    assert len(queue) == 0


async def test_an_event_during_a_run_causes_exactly_one_more_run() -> None:
    queue, _ = queue_on_manual_clock()
    queue.add("a", CHANGED)
    await take(queue)
    for _ in range(5):
        queue.add("a", CHANGED)
    assert queue.done("a") is True
    assert (await take(queue)).key == "a"
    assert queue.done("a") is False
    assert queue.idle


async def test_an_echo_during_the_run_that_made_the_change_causes_no_further_run() -> None:
    queue, _ = queue_on_manual_clock()
    queue.add("a", CHANGED)
    item = await take(queue)
    item.wrote("v7")
    queue.add("a", CHANGED, change="v7")
    assert queue.done("a") is False


async def test_an_echo_that_arrives_before_the_response_causes_no_further_run() -> None:
    queue, _ = queue_on_manual_clock()
    queue.add("a", CHANGED)
    item = await take(queue)
    queue.add("a", CHANGED, change="v7")
    item.wrote("v7")
    assert queue.done("a") is False


async def test_an_echo_after_the_run_causes_no_run_and_is_expected_once() -> None:
    queue, _ = queue_on_manual_clock()
    queue.add("a", CHANGED)
    item = await take(queue)
    item.wrote("v7")
    queue.done("a")
    queue.add("a", CHANGED, change="v7")
    assert queue.idle
    queue.add("a", CHANGED, change="v7")
    assert len(queue) == 1


async def test_an_echo_that_arrives_during_a_later_run_causes_no_further_run() -> None:
    queue, _ = queue_on_manual_clock()
    queue.add("a", CHANGED)
    item = await take(queue)
    item.wrote("v7")
    queue.done("a")
    queue.add("a", CHANGED)
    await take(queue)
    queue.add("a", CHANGED, change="v7")
    assert queue.done("a") is False


async def test_a_change_by_another_party_causes_a_run_next_to_an_echo() -> None:
    queue, _ = queue_on_manual_clock()
    queue.add("a", CHANGED)
    item = await take(queue)
    item.wrote("v7")
    queue.add("a", CHANGED, change="v7")
    queue.add("a", CHANGED, change="v9")
    assert queue.done("a") is True


async def test_a_change_made_by_the_run_of_one_key_is_news_for_another() -> None:
    queue, _ = queue_on_manual_clock()
    queue.add("a", CHANGED)
    item = await take(queue)
    item.wrote("v7")
    queue.done("a")
    queue.add("b", CHANGED, change="v7")
    assert (await take(queue)).key == "b"


async def test_the_echoes_of_a_key_that_is_dropped_are_expected_no_longer() -> None:
    queue, _ = queue_on_manual_clock()
    queue.add("a", CHANGED)
    item = await take(queue)
    item.wrote("v7")
    queue.done("a")
    queue.drop("a")
    queue.add("a", CHANGED, change="v7")
    assert len(queue) == 1


async def test_the_echoes_of_a_key_that_is_dropped_during_its_run_are_expected_no_longer() -> None:
    queue, _ = queue_on_manual_clock()
    queue.add("a", CHANGED)
    item = await take(queue)
    item.wrote("v7")
    queue.drop("a")
    queue.done("a")
    queue.add("a", CHANGED, change="v7")
    assert len(queue) == 1


async def test_a_queue_that_is_opened_again_remembers_nothing() -> None:
    queue, _ = queue_on_manual_clock()
    queue.add("a", CHANGED)
    await take(queue)
    queue.retry("a", CHANGED)
    queue.shut_down()
    queue.done("a")
    queue.reopen()
    assert queue.idle
    assert queue.failures("a") == 0
    queue.add("a", CHANGED)
    assert (await take(queue)).key == "a"


async def test_all_reasons_are_kept_in_order() -> None:
    queue, _ = queue_on_manual_clock()
    child = Reason("Updated", "Deployment", "default", "web")
    queue.add("a", CHANGED)
    queue.add("a", child)
    queue.add("a", CHANGED)
    assert queue.reasons("a") == [CHANGED, child]
    item = await take(queue)
    assert item.reasons == {CHANGED: 2, child: 1}
    queue.add("a", Reason("Resync"))
    assert queue.reasons("a") == [CHANGED, child, Reason("Resync")]
    assert [str(reason) for reason in item.reasons] == [
        "MyApp default/web Updated",
        "Deployment default/web Updated",
    ]


async def test_delayed_adds_keep_the_earliest_time() -> None:
    queue, _ = queue_on_manual_clock()
    queue.add_after("a", 10, CHANGED)
    queue.add_after("a", 5, CHANGED)
    queue.add_after("a", 20, CHANGED)
    assert queue.delayed == {"a": 5.0}


async def test_a_delayed_key_runs_when_its_time_has_come() -> None:
    queue = WorkQueue[str]()
    queue.add_after("a", 0.02, CHANGED)
    queue.add_after("b", 0.01, CHANGED)
    assert len(queue) == 0
    assert (await take(queue)).key == "b"
    assert (await take(queue)).key == "a"


async def test_an_event_before_the_time_uses_up_the_delay() -> None:
    queue, _ = queue_on_manual_clock()
    queue.add_after("a", 10, CHANGED)
    queue.add("a", CHANGED)
    assert queue.delayed == {}
    await take(queue)
    queue.done("a")
    assert queue.idle


async def test_back_off_doubles_per_key_up_to_its_maximum_and_starts_again_after_success() -> None:
    queue, _ = queue_on_manual_clock(backoff=Backoff(initial=5, max=300))
    assert [queue.retry("a", CHANGED) for _ in range(8)] == [5, 10, 20, 40, 80, 160, 300, 300]
    assert queue.retry("b", CHANGED) == 5
    queue.forget("a")
    assert queue.failures("a") == 0
    assert queue.retry("a", CHANGED) == 5


def test_the_default_back_off_goes_from_5_milliseconds_to_1000_seconds() -> None:
    backoff = Backoff()
    assert backoff.delay(1) == 0.005
    assert backoff.delay(2) == 0.01
    assert backoff.delay(10_000) == 1000


@pytest.mark.parametrize(
    "wrong",
    [{"initial": 0}, {"initial": 10, "max": 5}, {"multiplier": 0.5}],
    ids=["zero", "above max", "shrinking"],
)
def test_an_invalid_back_off_is_rejected(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="back-off must have"):
        Backoff(**wrong)


async def test_a_change_overtakes_the_start_up_list() -> None:
    queue, _ = queue_on_manual_clock()
    for number in range(100):
        queue.add(f"listed-{number}", Reason("Added"), priority=Priority.BACKGROUND)
    queue.add("edited", CHANGED, priority=Priority.CHANGE)
    assert (await take(queue)).key == "edited"


async def test_a_waiting_key_moves_ahead_when_its_resource_changes() -> None:
    queue, _ = queue_on_manual_clock()
    queue.add("first", Reason("Added"), priority=Priority.BACKGROUND)
    queue.add("second", Reason("Added"), priority=Priority.BACKGROUND)
    queue.add("second", CHANGED, priority=Priority.CHANGE)
    assert [(await take(queue)).key for _ in range(2)] == ["second", "first"]
    assert len(queue) == 0


async def test_a_change_overtakes_a_start_up_list_that_has_waited_for_minutes() -> None:
    queue, clock = queue_on_manual_clock()
    for number in range(100):
        queue.add(f"listed-{number}", Reason("Added"), priority=Priority.BACKGROUND)
    clock.time += 600
    queue.add("edited", CHANGED, priority=Priority.CHANGE)
    assert (await take(queue)).key == "edited"


async def test_a_steady_stream_of_changes_starves_no_key() -> None:
    queue, clock = queue_on_manual_clock()
    waiting = {f"listed-{number}" for number in range(10)}
    for key in sorted(waiting):
        queue.add(key, Reason("Added"), priority=Priority.BACKGROUND)
    for run in range(8 * 10):
        clock.time += 1
        queue.add(f"change-{run}", CHANGED, priority=Priority.CHANGE)
        item = await take(queue)
        waiting.discard(item.key)
        queue.done(item.key)
    assert not waiting


async def test_keys_that_moved_ahead_leave_nothing_behind() -> None:
    queue, _ = queue_on_manual_clock()
    for run in range(1000):
        queue.add(f"key-{run}", Reason("Added"), priority=Priority.BACKGROUND)
        queue.add(f"key-{run}", CHANGED, priority=Priority.CHANGE)
        queue.done((await take(queue)).key)
    assert sum(map(len, queue._lanes)) <= 1


async def test_a_cancelled_worker_passes_its_wake_up_on() -> None:
    queue, _ = queue_on_manual_clock()
    first, second = (asyncio.ensure_future(queue.get()) for _ in range(2))
    await asyncio.sleep(0)
    queue.add("a", CHANGED)
    first.cancel()
    assert (await asyncio.wait_for(second, 1)).key == "a"


async def test_shutting_down_wakes_every_worker_and_hands_out_no_more_keys() -> None:
    queue, _ = queue_on_manual_clock()
    workers = [asyncio.ensure_future(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    queue.shut_down()
    for worker in workers:
        with pytest.raises(QueueShutDownError):
            await worker
    queue.add("a", CHANGED)
    with pytest.raises(QueueShutDownError):
        await queue.get()


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["add", "take", "done"]),
            st.sampled_from(["a", "b", "c"]),
            st.sampled_from(Priority),
        ),
        max_size=60,
    )
)
def test_every_add_is_followed_by_a_run_that_starts_after_it(steps: list[tuple[str, str, Priority]]) -> None:
    """No wake-up is lost and no key has two runs at a time, in any order of adds, gets and ends."""

    async def play() -> None:
        queue, clock = queue_on_manual_clock()
        added: dict[str, int] = {}
        started: dict[str, int] = {}
        running: list[str] = []
        for step, (action, key, priority) in enumerate(steps):
            clock.time += 1
            if action == "add":
                queue.add(key, CHANGED, priority=priority)
                added[key] = step
            elif action == "take" and len(queue):
                taken = (await take(queue)).key
                assert taken not in running
                running.append(taken)
                started[taken] = step
            elif action == "done" and running:
                queue.done(running.pop(0))
        while running or len(queue):
            if len(queue):
                taken = (await take(queue)).key
                running.append(taken)
                started[taken] = len(steps)
            queue.done(running.pop(0))
        assert all(started[key] > step for key, step in added.items())

    asyncio.run(play())


@given(steps=st.lists(st.sampled_from(["take", "send", "respond", "echo", "foreign", "done"]), max_size=30))
def test_only_changes_by_others_cause_runs_whenever_echoes_and_responses_arrive(steps: list[str]) -> None:
    """Echoes arrive before or after the response, during the run or later; changes by others in between."""

    async def play() -> None:
        queue, _ = queue_on_manual_clock()
        queue.add("a", CHANGED)
        item: Item[str] | None = None
        sent: list[int] = []  # requests of the run that have no response yet
        undelivered: list[int] = []  # changes that the watch has not delivered yet
        runs, foreign, news_since_start = 0, 0, False
        for version, action in enumerate(steps):
            if action == "take" and len(queue) and item is None:
                item, runs, news_since_start = await take(queue), runs + 1, False
            elif action == "send" and item is not None:
                sent.append(version)
                undelivered.append(version)
            elif action == "respond" and item is not None and sent:
                item.wrote(sent.pop(0))
            elif action == "echo" and undelivered:
                queue.add("a", CHANGED, change=undelivered.pop(0))
            elif action == "foreign":
                queue.add("a", CHANGED, change=-version)
                foreign, news_since_start = foreign + 1, True
            elif action == "done" and item is not None:
                while sent:
                    item.wrote(sent.pop(0))
                assert queue.done("a") is news_since_start
                item = None
        assert runs <= 1 + foreign

    asyncio.run(play())
