"""The queue of keys that wait for a reconcile: one run per key, delays, back-off, priorities, echoes.

The queue holds keys, never objects: a worker that takes a key reads the newest state from the cache. That is
why a burst of a hundred events costs one run.

It is also the one place that decides whether a change is news for a key. A run records each change it makes
(`Item.wrote`). The watch delivers that change again, before or after the response to the write, during the
run or later: an echo, which causes no run of this key. Every other change does, and for every other key the
change is news.
"""

from __future__ import annotations

import asyncio
import enum
import heapq
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec

__all__ = ["Backoff", "Item", "Priority", "QueueObserver", "QueueShutDownError", "Reason", "WorkQueue"]

K = TypeVar("K", bound=Hashable)

_PATIENCE = 8
"""One run of this many goes to the key that has waited longest, whatever its priority."""
_ECHOES_KEPT = 32
"""Echoes that one key may still expect when its next run begins; with more, some were lost in a relist."""


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """The wait after the nth failure of one key: initial * multiplier ** (n - 1), at most `max` seconds."""

    initial: float = 0.005
    """Seconds after the first failure."""
    max: float = 1000.0
    """The longest wait in seconds."""
    multiplier: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.initial <= self.max or self.multiplier < 1:
            raise ValueError(
                f"back-off must have 0 < initial <= max and multiplier >= 1, got initial={self.initial}, "
                f"max={self.max}, multiplier={self.multiplier}"
            )

    def delay(self, failures: int) -> float:
        """Return the seconds to wait after `failures` failures in a row."""
        # 64 doublings exceed every sensible maximum, and larger powers overflow.
        return min(self.max, self.initial * self.multiplier ** min(failures - 1, 64))


class Priority(enum.IntEnum):
    """The urgency of a key.

    The queue hands out the most urgent key first, and the oldest of those: a person's change never waits for
    the thousands of keys of a start-up list. One of every eight runs goes to the key that has waited longest,
    so a steady stream of changes cannot starve the rest.
    """

    BACKGROUND = 0
    """The list at start-up, a relist, a resync, Requeue(after=...)."""
    EVENT = 1
    """A child or a mapped object changed; the resource's status changed."""
    CHANGE = 2
    """The resource itself was created, changed or deleted."""


class Reason(NamedTuple):
    """The cause of a run."""

    event: str
    """Added, Updated, Deleted, Retry, Requeue, Resync ..."""
    kind: str = ""
    """The kind of the object that caused it, if one did."""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        if not self.kind:
            return self.event
        key = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {key} {self.event}"


class QueueShutDownError(Exception):
    """Raised by get() once the queue is shut down: the worker ends."""


class Item(Generic[K]):
    """One key handed to a worker: one run."""

    __slots__ = (
        "added_at",
        "dirty",
        "failures",
        "key",
        "own",
        "priority",
        "reasons",
        "started_at",
    )

    def __init__(
        self,
        waiting: _Waiting[K],
        *,
        failures: int = 0,
        own: set[Hashable] | None = None,
        now: float = 0.0,
    ) -> None:
        self.key = waiting.key
        self.priority = waiting.priority
        self.reasons = waiting.reasons
        """Each reason and how often it was given since the last run, in order of arrival."""
        self.added_at = waiting.added_at
        self.started_at = now
        self.failures = failures
        """Failures of this key in a row before this run."""
        self.own = own
        """Changes made by this run and the ones before it whose echo has not arrived."""
        self.dirty: _Waiting[K] | None = None

    def wrote(self, change: Hashable) -> None:
        """Record a change that this run made: its echo is not news for this key."""
        if self.own is None:
            self.own = set()
        self.own.add(change)


class _Waiting(Generic[K]):
    """A key that waits for a worker, or for its own running reconcile to end."""

    __slots__ = ("added_at", "changes", "key", "news", "priority", "reasons")

    def __init__(self, key: K, priority: Priority, now: float) -> None:
        self.key = key
        self.priority = priority
        self.added_at = now
        self.reasons: dict[Reason, int] = {}
        self.news = False
        """True if a reason was given that cannot be an echo of the running reconcile."""
        self.changes: set[Hashable] | None = None
        """Changes that are echoes if the running reconcile turns out to have made them."""


class QueueObserver(Protocol):
    """An observer of one queue, for its metrics."""

    def added(self) -> None: ...
    def started(self, waited: float) -> None: ...
    def finished(self, worked: float) -> None: ...
    def retried(self) -> None: ...


class WorkQueue(Generic[K]):
    """Keys that wait for a worker.

    - At most one run per key is in flight. A key added while it runs is run exactly once more afterwards.
    - A change that a run of the key made itself does not add the key.
    - `add_after` keeps the earliest time; a key that runs before its time has used it up.
    - `retry` waits longer with each failure in a row; `forget` starts again at the beginning.

    All methods are called from one event loop; only `get` waits.
    """

    def __init__(
        self,
        *,
        backoff: Backoff | None = None,
        observer: QueueObserver | None = None,
        time: Callable[[], float] | None = None,
    ) -> None:
        self.backoff = backoff or Backoff()
        self._observer = observer
        self._time = time
        self._waiting: dict[K, _Waiting[K]] = {}
        self._lanes: tuple[deque[_Waiting[K]], ...] = tuple(deque() for _ in Priority)
        self._urgent_first = tuple(reversed(self._lanes))
        self._handed_out = 0
        self._running: dict[K, Item[K]] = {}
        self._delayed: dict[K, tuple[float, Reason, Priority]] = {}
        self._timers: list[tuple[float, int, K]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._failures: dict[K, int] = {}
        self._echoes: dict[K, set[Hashable]] = {}
        self._takers: deque[asyncio.Future[None]] = deque()
        self._sequence = 0
        self._shut_down = False

    # -- inspection ------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the number of keys that could run now."""
        return len(self._waiting)

    @property
    def in_flight(self) -> Iterable[Item[K]]:
        """The runs in progress."""
        return self._running.values()

    @property
    def waiting(self) -> Mapping[K, _Waiting[K]]:
        """The keys that could run now, and why."""
        return self._waiting

    @property
    def postponed(self) -> Mapping[K, tuple[float, Reason, Priority]]:
        """The keys that are due later: the time on the queue's clock, the reason and the priority."""
        return self._delayed

    @property
    def delayed(self) -> dict[K, float]:
        """Keys that are due later, and the time on the loop's clock."""
        return {key: due for key, (due, _, _) in self._delayed.items()}

    @property
    def idle(self) -> bool:
        """True if nothing runs and nothing could run now; delayed keys do not count."""
        return not self._waiting and not self._running

    def failures(self, key: K) -> int:
        """Return the number of failures in a row of this key."""
        return self._failures.get(key, 0)

    def reasons(self, key: K) -> list[Reason]:
        """Return the reasons for which this key waits or runs."""
        waiting, running = self._waiting.get(key), self._running.get(key)
        reasons = list(running.reasons) if running else []
        if running and running.dirty:
            reasons += running.dirty.reasons
        return reasons + (list(waiting.reasons) if waiting else [])

    def now(self) -> float:
        """Return the seconds on the queue's clock: the event loop's own, unless one was handed in."""
        if self._time is None:
            self._time = asyncio.get_running_loop().time
        return self._time()

    # -- adding ----------------------------------------------------------------------------------------------

    def add(
        self,
        key: K,
        reason: Reason,
        *,
        priority: Priority = Priority.EVENT,
        change: Hashable | None = None,
    ) -> None:
        """Request a run that starts after now.

        `change` identifies the change that is the reason, if one is. If a run of this key made it, nothing
        happens.
        """
        if self._shut_down:
            return
        if change is not None and self._echoes and self._is_echo(key, change):
            return
        if self._observer is not None:
            self._observer.added()
        item = self._running.get(key)
        if item is not None:
            self._mark_dirty(item, reason, priority, change)
            return
        self._push(key, reason, priority)

    def add_after(
        self, key: K, delay: float, reason: Reason, *, priority: Priority = Priority.BACKGROUND
    ) -> None:
        """Request a run in `delay` seconds, or earlier if an earlier one is already requested."""
        if self._shut_down or key in self._waiting:
            return
        if delay <= 0:
            self.add(key, reason, priority=priority)
            return
        due = self.now() + delay
        delayed = self._delayed.get(key)
        if delayed is not None and delayed[0] <= due:
            return
        self._delayed[key] = (due, reason, priority)
        self._sequence += 1
        heapq.heappush(self._timers, (due, self._sequence, key))
        self._arm()

    def retry(self, key: K, reason: Reason, *, priority: Priority = Priority.EVENT) -> float:
        """Count a failure and request another run after the back-off. Return the wait in seconds."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay = self.backoff.delay(failures)
        if self._observer is not None:
            self._observer.retried()
        self.add_after(key, delay, reason, priority=priority)
        return delay

    def forget(self, key: K) -> None:
        """Reset the back-off of a key that succeeded."""
        self._failures.pop(key, None)

    def drop(self, key: K) -> None:
        """Discard what is remembered about a key whose object is gone: its failures and expected echoes."""
        self._failures.pop(key, None)
        self._echoes.pop(key, None)
        item = self._running.get(key)
        if item is not None:
            item.own = None  # else the end of the run would expect them again

    # -- taking ----------------------------------------------------------------------------------------------

    async def get(self) -> Item[K]:
        """Wait for the most urgent key and return its run. Every get() is followed by one done()."""
        while True:
            if self._shut_down:
                raise QueueShutDownError
            item = self._pop()
            if item is not None:
                return item
            taker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._takers.append(taker)
            try:
                await taker
            except asyncio.CancelledError:
                # A wake-up that arrived together with the cancellation goes to another worker.
                if taker.done() and not taker.cancelled():
                    self._wake_one()
                raise

    def done(self, key: K) -> bool:
        """End the run of this key. Return whether another run follows at once."""
        item = self._running.pop(key)
        if self._observer is not None:
            self._observer.finished(self.now() - item.started_at)
        if self._shut_down:
            return False
        dirty, own = item.dirty, item.own
        if dirty is not None and dirty.changes is not None:
            # Decided only now, since an echo may arrive before the response to its write.
            if own is None or not dirty.changes <= own:
                dirty.news = True
            if own is not None:
                own -= dirty.changes
        if own:
            self._echoes[key] = own
        if dirty is None or not dirty.news:
            return False
        self._enqueue(key, dirty)
        return True

    def shut_down(self) -> None:
        """Hand out no more keys and discard those that wait. Runs in progress may finish."""
        self._shut_down = True
        self._waiting.clear()
        for lane in self._lanes:
            lane.clear()
        self._delayed.clear()
        self._timers.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._takers:
            self._wake_one()

    def reopen(self) -> None:
        """Accept keys again after `shut_down`, with nothing remembered."""
        self._running.clear()
        self._failures.clear()
        self._echoes.clear()
        self._shut_down = False

    # -- internals -------------------------------------------------------------------------------------------

    def _is_echo(self, key: K, change: Hashable) -> bool:
        """Return whether an earlier run of this key made the change, and expect it no longer."""
        own = self._echoes.get(key)
        if own is None or change not in own:
            return False
        own.discard(change)
        if not own:
            del self._echoes[key]
        return True

    def _mark_dirty(self, item: Item[K], reason: Reason, priority: Priority, change: Hashable | None) -> None:
        dirty = item.dirty
        if dirty is None:
            dirty = item.dirty = _Waiting(item.key, priority, self.now())
        elif priority > dirty.priority:
            dirty.priority = priority
        dirty.reasons[reason] = dirty.reasons.get(reason, 0) + 1
        if change is None:
            dirty.news = True
        elif dirty.changes is None:
            dirty.changes = {change}
        else:
            dirty.changes.add(change)

    def _push(self, key: K, reason: Reason, priority: Priority) -> None:
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = _Waiting(key, priority, self.now())
            waiting.reasons[reason] = 1
            self._enqueue(key, waiting)
            return
        waiting.reasons[reason] = waiting.reasons.get(reason, 0) + 1
        if priority > waiting.priority:
            waiting.priority = priority
            self._lanes[priority].append(waiting)  # the entry in the other lane is skipped when it comes up

    def _enqueue(self, key: K, waiting: _Waiting[K]) -> None:
        self._delayed.pop(key, None)
        self._waiting[key] = waiting
        self._lanes[waiting.priority].append(waiting)
        self._wake_one()

    def _pop(self) -> Item[K] | None:
        self._handed_out += 1
        waiting = self._next(oldest=self._handed_out % _PATIENCE == 0)
        if waiting is None:
            return None
        key = waiting.key
        del self._waiting[key]
        now = self.now()
        own = self._echoes.pop(key, None) if self._echoes else None
        if own is not None and len(own) > _ECHOES_KEPT:
            own = None
        item = Item(waiting, failures=self._failures.get(key, 0), own=own, now=now)
        self._running[key] = item
        if self._observer is not None:
            self._observer.started(now - waiting.added_at)
        return item

    def _next(self, *, oldest: bool) -> _Waiting[K] | None:
        """Return the first key of the most urgent lane, or the one that has waited longest."""
        chosen: deque[_Waiting[K]] | None = None
        for lane in self._urgent_first:
            while lane and self._waiting.get(lane[0].key) is not lane[0]:
                lane.popleft()
            if lane and (chosen is None or lane[0].added_at < chosen[0].added_at):
                chosen = lane
                if not oldest:
                    break
        return None if chosen is None else chosen.popleft()

    def _wake_one(self) -> None:
        while self._takers:
            taker = self._takers.popleft()
            if not taker.done():
                taker.set_result(None)
                return

    def _arm(self) -> None:
        while self._timers:
            due, _, key = self._timers[0]
            delayed = self._delayed.get(key)
            if delayed is not None and delayed[0] == due:
                break
            heapq.heappop(self._timers)
        if not self._timers:
            return
        due = self._timers[0][0]
        loop = asyncio.get_running_loop()
        when = loop.time() + max(0.0, due - self.now())
        if self._timer is not None:
            if not self._timer.cancelled() and self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = loop.call_at(when, self._fire)

    def _fire(self) -> None:
        self._timer = None
        now = self.now()
        while self._timers and self._timers[0][0] <= now + 1e-9:
            due, _, key = heapq.heappop(self._timers)
            delayed = self._delayed.get(key)
            if delayed is None or delayed[0] != due:
                continue
            del self._delayed[key]
            self.add(key, delayed[1], priority=delayed[2])
        self._arm()
