"""The queue of keys that wait for a reconcile: one run per key in flight, delays, back-off, priorities.

The queue never holds an object, only keys: whoever takes a key reads the newest state from the cache. That is what
makes a burst of a hundred events cost one run.
"""

from __future__ import annotations

import asyncio
import enum
import heapq
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec

__all__ = ["Backoff", "Item", "Priority", "QueueObserver", "QueueShutDownError", "Reason", "WorkQueue"]

K = TypeVar("K", bound=Hashable)


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """How long to wait after the nth failure of one key: initial * multiplier ** (n - 1), at most `max` seconds."""

    initial: float = 0.005
    """Seconds after the first failure."""
    max: float = 1000.0
    """The longest wait in seconds."""
    multiplier: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.initial <= self.max or self.multiplier < 1:
            raise ValueError(
                f"a back-off needs 0 < initial <= max and multiplier >= 1, not initial={self.initial}, "
                f"max={self.max}, multiplier={self.multiplier}"
            )

    def delay(self, failures: int) -> float:
        """The wait after `failures` failures in a row."""
        # 64 doublings of any sane start pass every sane maximum, and larger powers overflow.
        return min(self.max, self.initial * self.multiplier ** min(failures - 1, 64))


class Priority(enum.IntEnum):
    """The head start of a key, in seconds of waiting.

    The queue orders keys by `time of arrival - head start`: a change overtakes everything of the background that
    arrived less than a minute before it, and nothing that has waited longer. So waiting raises priority by itself,
    and no steady stream of changes can starve the rest.
    """

    BACKGROUND = 0
    """The list at start-up, a relist, a resync, Requeue(after=...)."""
    EVENT = 30
    """A child or a mapped object changed; the resource's status changed."""
    CHANGE = 60
    """Somebody made, changed or deleted the resource itself."""


class Reason(NamedTuple):
    """Why a key was queued."""

    event: str
    """Added, Updated, Deleted, Retry, Requeue, Resync ..."""
    kind: str = ""
    """The kind of the object that caused it, if one did."""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        if not self.kind:
            return self.event
        place = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {place} {self.event}"


class QueueShutDownError(Exception):
    """Raised by get() once the queue is shut down: the worker ends."""


class Item(Generic[K]):
    """One key handed to a worker, with all that is known about why."""

    __slots__ = ("added_at", "dirty", "dirty_tokens", "key", "priority", "reasons", "started_at")

    def __init__(
        self, key: K, priority: int, reasons: dict[Reason, int], added_at: float, now: float
    ) -> None:
        self.key = key
        self.priority = priority
        self.reasons = reasons
        """Each reason and how often it was given since the last run, in order of arrival."""
        self.added_at = added_at
        self.started_at = now
        self.dirty: _Waiting | None = None
        self.dirty_tokens: set[Hashable] | None = None


class _Waiting:
    """A key that waits for a worker, or for its own running reconcile to end."""

    __slots__ = ("added_at", "order", "priority", "reasons")

    def __init__(self, priority: int, now: float) -> None:
        self.priority = priority
        self.added_at = now
        self.order = now - priority
        self.reasons: dict[Reason, int] = {}


class QueueObserver(Protocol):
    """What the queue tells its metrics."""

    def added(self) -> None: ...
    def started(self, waited: float) -> None: ...
    def finished(self, worked: float) -> None: ...
    def retried(self) -> None: ...


class WorkQueue(Generic[K]):
    """Keys waiting for a worker.

    - At most one run per key is in flight. A key added while it runs is run exactly once more, after that run.
    - `add_after` keeps the earliest time; a key that runs before its time has used it up.
    - `retry` waits longer with each failure in a row; `forget` starts again at the beginning.

    Everything is called from one event loop; nothing here waits except `get`.
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
        self._waiting: dict[K, _Waiting] = {}
        self._ready: list[tuple[float, int, K, _Waiting]] = []
        self._running: dict[K, Item[K]] = {}
        self._delayed: dict[K, tuple[float, Reason, int]] = {}
        self._timers: list[tuple[float, int, K]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._failures: dict[K, int] = {}
        self._takers: deque[asyncio.Future[None]] = deque()
        self._sequence = 0
        self._shut_down = False

    # -- what a person wants to know ---------------------------------------------------------------------------

    def __len__(self) -> int:
        """Keys that could run now."""
        return len(self._waiting)

    @property
    def in_flight(self) -> Iterable[Item[K]]:
        """What runs now."""
        return self._running.values()

    @property
    def delayed(self) -> dict[K, float]:
        """Keys that wait for their time, and the time on the loop's clock."""
        return {key: due for key, (due, _, _) in self._delayed.items()}

    @property
    def idle(self) -> bool:
        """Nothing runs and nothing could run now; delayed keys do not count."""
        return not self._waiting and not self._running

    def failures(self, key: K) -> int:
        """Failures in a row of this key."""
        return self._failures.get(key, 0)

    def reasons(self, key: K) -> list[Reason]:
        """Why this key waits or runs."""
        waiting, running = self._waiting.get(key), self._running.get(key)
        found = list(running.reasons) if running else []
        if running and running.dirty:
            found += running.dirty.reasons
        return found + (list(waiting.reasons) if waiting else [])

    def now(self) -> float:
        """Seconds on the queue's clock: the event loop's own, unless one was handed in."""
        return self._time() if self._time is not None else asyncio.get_running_loop().time()

    # -- adding ------------------------------------------------------------------------------------------------

    def add(
        self,
        key: K,
        reason: Reason,
        *,
        priority: int = Priority.EVENT,
        token: Hashable | None = None,
    ) -> None:
        """Ask for a run that starts after now.

        `token` names the change that caused it. If the key is running, and that run turns out to have made the
        change itself (see `done`), there is nothing new in it and no further run follows.
        """
        if self._shut_down:
            return
        if self._observer is not None:
            self._observer.added()
        item = self._running.get(key)
        if item is not None:
            self._mark_dirty(item, reason, priority, token)
            return
        self._push(key, reason, priority)

    def add_after(self, key: K, delay: float, reason: Reason, *, priority: int = Priority.BACKGROUND) -> None:
        """Ask for a run in `delay` seconds, or earlier if an earlier one is already asked for."""
        if self._shut_down or key in self._waiting:
            return
        if delay <= 0:
            self.add(key, reason, priority=priority)
            return
        due = self.now() + delay
        known = self._delayed.get(key)
        if known is not None and known[0] <= due:
            return
        self._delayed[key] = (due, reason, priority)
        self._sequence += 1
        heapq.heappush(self._timers, (due, self._sequence, key))
        self._arm()

    def retry(self, key: K, reason: Reason, *, priority: int = Priority.EVENT) -> float:
        """Count a failure and ask for another run after the back-off. Returns the wait in seconds."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay = self.backoff.delay(failures)
        if self._observer is not None:
            self._observer.retried()
        self.add_after(key, delay, reason, priority=priority)
        return delay

    def forget(self, key: K) -> None:
        """The key succeeded: its back-off starts from the beginning again."""
        self._failures.pop(key, None)

    # -- taking ------------------------------------------------------------------------------------------------

    async def get(self) -> Item[K]:
        """The most urgent key, once there is one. Every get() is followed by one done()."""
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
                # A wake-up that came together with the cancellation belongs to somebody else now.
                if taker.done() and not taker.cancelled():
                    self._wake_one()
                raise

    def done(self, key: K, *, own: set[Hashable] | None = None) -> bool:
        """The run of this key ended. Returns whether another run follows at once.

        `own` holds the tokens of the changes that the run made itself: being told of them is no news.
        """
        item = self._running.pop(key)
        if self._observer is not None:
            self._observer.finished(self.now() - item.started_at)
        dirty = item.dirty
        if dirty is None or self._shut_down:
            return False
        if item.dirty_tokens is not None and own is not None and item.dirty_tokens <= own:
            own -= item.dirty_tokens
            return False
        self._enqueue(key, dirty)
        return True

    def shut_down(self) -> None:
        """Hand out nothing more and forget what waits. What runs may finish."""
        self._shut_down = True
        self._waiting.clear()
        self._ready.clear()
        self._delayed.clear()
        self._timers.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._takers:
            self._wake_one()

    # -- inside ------------------------------------------------------------------------------------------------

    def _mark_dirty(self, item: Item[K], reason: Reason, priority: int, token: Hashable | None) -> None:
        dirty = item.dirty
        if dirty is None:
            dirty = item.dirty = _Waiting(priority, self.now())
            item.dirty_tokens = set() if token is not None else None
        elif priority > dirty.priority:
            dirty.priority = priority
            dirty.order = min(dirty.order, self.now() - priority)
        dirty.reasons[reason] = dirty.reasons.get(reason, 0) + 1
        if token is None:
            item.dirty_tokens = None  # one reason without a token is news, whatever the run wrote
        elif item.dirty_tokens is not None:
            item.dirty_tokens.add(token)

    def _push(self, key: K, reason: Reason, priority: int) -> None:
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = _Waiting(priority, self.now())
            waiting.reasons[reason] = 1
            self._enqueue(key, waiting)
            return
        waiting.reasons[reason] = waiting.reasons.get(reason, 0) + 1
        order = self.now() - priority
        if priority > waiting.priority:
            waiting.priority = priority
            if order < waiting.order:  # the older, later entry in the heap is skipped when it comes up
                waiting.order = order
                self._sequence += 1
                heapq.heappush(self._ready, (order, self._sequence, key, waiting))

    def _enqueue(self, key: K, waiting: _Waiting) -> None:
        self._delayed.pop(key, None)
        self._waiting[key] = waiting
        self._sequence += 1
        heapq.heappush(self._ready, (waiting.order, self._sequence, key, waiting))
        self._wake_one()

    def _pop(self) -> Item[K] | None:
        while self._ready:
            _, _, key, waiting = heapq.heappop(self._ready)
            if self._waiting.get(key) is not waiting:
                continue
            del self._waiting[key]
            now = self.now()
            item = Item(key, waiting.priority, waiting.reasons, waiting.added_at, now)
            self._running[key] = item
            if self._observer is not None:
                self._observer.started(now - waiting.added_at)
            return item
        return None

    def _wake_one(self) -> None:
        while self._takers:
            taker = self._takers.popleft()
            if not taker.done():
                taker.set_result(None)
                return

    def _arm(self) -> None:
        while self._timers:
            due, _, key = self._timers[0]
            known = self._delayed.get(key)
            if known is not None and known[0] == due:
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
            known = self._delayed.get(key)
            if known is None or known[0] != due:
                continue
            del self._delayed[key]
            self.add(key, known[1], priority=known[2])
        self._arm()
