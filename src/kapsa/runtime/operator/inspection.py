"""The inside of a running operator, for a person: queues, why each key is in them, what it waits for, caches, runs.

The page of the debug endpoint. Everything is read when somebody asks; lists are cut, and only their counts are whole.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from urllib.parse import parse_qs

import msgspec

from kapsa.runtime.cache.informer import Informer
from kapsa.runtime.controller.reconciler import Reconciler
from kapsa.runtime.controller.work.run_history import RunError, RunRecord
from kapsa.runtime.controller.work.workqueue import Item, Reason
from kapsa.runtime.operator.cluster_run import ClusterRun, Fence
from kapsa.runtime.operator.shard_leases import Shards
from kapsa.runtime.resources.stored_object import Key

__all__ = ["CacheReport", "ControllerReport", "Inspection", "InspectionReport", "KeyReport", "ShardsReport"]

_LIMIT = 50
_MOST = 1000
"""Keys of one list that a request may ask for."""
_REASONS = 20


class KeyReport(msgspec.Struct, frozen=True, kw_only=True):
    """One resource and its place in the queue of a controller."""

    key: str
    state: str
    """running, waiting, delayed, given up or idle; elsewhere if another replica holds its shard."""
    waits_for: str
    seconds: float = 0.0
    """Seconds that it has run or waited; until it is due, if it is delayed."""
    reasons: tuple[str, ...] = ()
    failures: int = 0
    """Failures in a row."""
    error: str = ""
    """The error of the last run."""
    cached: bool = True
    """True if the cache has the resource."""
    runs: tuple[RunRecord, ...] = ()
    """The last runs, newest first; only if a single resource was asked for."""


class ControllerReport(msgspec.Struct, frozen=True, kw_only=True):
    """A controller, its queue and its last errors."""

    name: str
    kind: str
    cluster: str
    """Empty if the operator has only one."""
    shard: int | None = None
    """The shard of the keys; None without sharding."""
    holder: str = ""
    """The replica that holds the shard, as far as this one has read; empty if none does, and without sharding."""
    state: str
    workers: int
    running: int
    waiting: int
    delayed: int
    given_up: int
    keys: tuple[KeyReport, ...]
    """Those that run first, then those that wait, are delayed and are given up; each list cut to the limit."""
    errors: tuple[RunError, ...]
    """The last errors, newest first."""


class CacheReport(msgspec.Struct, frozen=True, kw_only=True):
    """A watch and the objects that it keeps."""

    watch: str
    cluster: str
    state: str
    objects: int
    age: float
    """Seconds since the watch last delivered something."""
    listed: float | None
    """Seconds since the last whole list was requested; None before the first."""
    relists: int
    restarts: int
    trouble: str


class ShardsReport(msgspec.Struct, frozen=True, kw_only=True):
    """The share of this replica in the keys of an operator."""

    count: int
    held: tuple[int, ...]
    """The shards that this replica holds."""
    replicas: tuple[str, ...]


class InspectionReport(msgspec.Struct, frozen=True, kw_only=True):
    """The inside of an operator at one moment."""

    operator: str
    identity: str
    leads: bool | None
    """None without leader election."""
    shards: ShardsReport | None = None
    """None without sharding."""
    controllers: tuple[ControllerReport, ...]
    caches: tuple[CacheReport, ...]


class Inspection:
    """The state of the parts of a running operator."""

    def __init__(
        self,
        *,
        operator: str,
        identity: str,
        leads: Callable[[], bool | None],
        shards: Shards | None,
        runs: Callable[[], Sequence[ClusterRun]],
    ) -> None:
        self._operator = operator
        self._identity = identity
        self._leads = leads
        self._shards = shards
        self._runs = runs

    def page(self, query: str) -> bytes:
        """Return the report as JSON, for `controller=NAME`, `key=NAMESPACE/NAME` and `limit=N`, each optional."""
        asked = {name: values[-1] for name, values in parse_qs(query).items()}
        text = asked.get("limit", "")
        limit = min(int(text), _MOST) if text.isascii() and text.isdigit() else _LIMIT
        report = self.report(controller=asked.get("controller", ""), key=asked.get("key", ""), limit=limit)
        return msgspec.json.encode(report)

    def report(self, *, controller: str = "", key: str = "", limit: int = _LIMIT) -> InspectionReport:
        """Return the state of one controller or all, and of one resource or those in the queues.

        Of a controller with shards, one resource is reported by its own shard alone.
        """
        one = _parse_key(key) if key else None
        return InspectionReport(
            operator=self._operator,
            identity=self._identity,
            leads=self._leads(),
            shards=_shards_report(self._shards) if self._shards is not None else None,
            controllers=tuple(
                _controller_report(each, run, one, limit)
                for run in self._runs()
                for each in run.reconcilers
                if controller in ("", each.name) and (one is None or _works_on(run.fence(each), one))
            ),
            caches=tuple(_cache_report(each, run) for run in self._runs() for each in run.cache.informers),
        )


def _cache_report(informer: Informer, run: ClusterRun) -> CacheReport:
    now = run.client.clock.monotonic()
    listed = None if informer.listed_at == float("-inf") else round(now - informer.listed_at, 3)
    return CacheReport(
        watch=str(informer.scope),
        cluster=run.cluster,
        state=informer.state.value,
        objects=len(informer.store),
        age=round(now - informer.last_progress, 3),
        listed=listed,
        relists=informer.relists,
        restarts=informer.restarts,
        trouble=informer.trouble,
    )


def _shards_report(shards: Shards) -> ShardsReport:
    return ShardsReport(
        count=len(shards.electors), held=tuple(shards.held), replicas=tuple(sorted(shards.replicas))
    )


def _works_on(fence: Fence, key: Key) -> bool:
    return fence.shard is None or key in fence.shard


def _elsewhere(fence: Fence) -> bool:
    """Return whether the keys are those of a shard that this replica does not hold."""
    return fence.shard is not None and fence.elector is not None and not fence.elector.is_leader


def _holder(fence: Fence) -> str:
    return fence.elector.last_holder if fence.shard is not None and fence.elector is not None else ""


def _controller_report(
    reconciler: Reconciler, run: ClusterRun, key: Key | None, limit: int
) -> ControllerReport:
    queue, fence = reconciler.queue, run.fence(reconciler)
    running = list(queue.in_flight)
    keys = _queued_keys(reconciler, running, limit) if key is None else [_one_key(reconciler, fence, key)]
    history = reconciler.history
    return ControllerReport(
        name=reconciler.name,
        kind=str(reconciler.controller.gvk),
        cluster=run.cluster,
        shard=fence.shard.index if fence.shard is not None else None,
        holder=_holder(fence),
        state=_state(reconciler, run),
        workers=reconciler.controller.max_concurrent_reconciles,
        running=len(running),
        waiting=len(queue),
        delayed=len(queue.postponed),
        given_up=len(reconciler.given_up),
        keys=tuple(keys),
        errors=tuple(islice(reversed(history.errors), limit)) if history is not None else (),
    )


def _state(reconciler: Reconciler, run: ClusterRun) -> str:
    fence = run.fence(reconciler)
    if _elsewhere(fence) and not reconciler.working:
        return f"held by {_holder(fence) or 'no replica'}"
    if waiting := reconciler.waiting_for:
        return f"waits for {', '.join(str(informer.scope) for informer in waiting)}"
    if outdated := run.catching_up(reconciler):
        return f"waits for {', '.join(str(informer.scope) for informer in outdated)} to catch up"
    if not reconciler.working:
        return "standing by"
    if stale := reconciler.stale:
        return f"stopped: the cache of {', '.join(str(informer.scope) for informer in stale)} is too old"
    return "working"


def _parse_key(text: str) -> Key:
    namespace, _, name = text.rpartition("/")
    return Key(namespace, name)


def _queued_keys(reconciler: Reconciler, running: Iterable[Item[Key]], limit: int) -> Iterator[KeyReport]:
    queue = reconciler.queue
    for item in islice(running, limit):
        yield _running(reconciler, item)
    for key in list(islice(queue.waiting, limit)):
        yield _waiting(reconciler, key)
    for key in heapq.nsmallest(limit, queue.postponed, key=lambda each: queue.postponed[each][0]):
        yield _delayed(reconciler, key)
    for key in list(islice(reconciler.given_up, limit)):
        yield _given_up(reconciler, key)


def _one_key(reconciler: Reconciler, fence: Fence, key: Key) -> KeyReport:
    queue, history = reconciler.queue, reconciler.history
    item = next((each for each in queue.in_flight if each.key == key), None)
    if item is not None:
        report = _running(reconciler, item)
    elif _elsewhere(fence):
        holder = _holder(fence)
        waits = f"{holder}, which holds its shard" if holder else "a replica that takes its shard"
        report = _report(reconciler, key, "elsewhere", waits)
    elif key in queue.waiting:
        report = _waiting(reconciler, key)
    elif key in queue.postponed:
        report = _delayed(reconciler, key)
    elif key in reconciler.given_up:
        report = _given_up(reconciler, key)
    else:
        report = _report(reconciler, key, "idle", "the next event")
    runs = tuple(history.runs(key)) if history is not None else ()
    return msgspec.structs.replace(report, runs=runs)


def _running(reconciler: Reconciler, item: Item[Key]) -> KeyReport:
    waits = "its run to end"
    if item.dirty is not None:
        waits += ", then runs again: " + ", ".join(_texts(item.dirty.reasons))
    return _report(
        reconciler, item.key, "running", waits, reconciler.queue.now() - item.started_at, item.reasons
    )


def _waiting(reconciler: Reconciler, key: Key) -> KeyReport:
    entry = reconciler.queue.waiting[key]
    waits = "a free worker" if reconciler.working else "the controller to start"
    seconds = reconciler.queue.now() - entry.added_at
    return _report(
        reconciler, key, "waiting", f"{waits}, priority {entry.priority.name}", seconds, entry.reasons
    )


def _delayed(reconciler: Reconciler, key: Key) -> KeyReport:
    due, reason, _ = reconciler.queue.postponed[key]
    waits = {
        "Retry": "its retry after an error",
        "Requeue": "the time it requested",
        "Stale": "its watches to catch up",
        "Refused": "this process to lead",
    }.get(reason.event, "its time")
    return _report(reconciler, key, "delayed", waits, due - reconciler.queue.now(), (reason,))


def _given_up(reconciler: Reconciler, key: Key) -> KeyReport:
    return _report(reconciler, key, "given up", "a change of the resource, after a terminal error")


def _report(
    reconciler: Reconciler,
    key: Key,
    state: str,
    waits_for: str,
    seconds: float = 0.0,
    reasons: Iterable[Reason] = (),
) -> KeyReport:
    history = reconciler.history
    return KeyReport(
        key=str(key),
        state=state,
        waits_for=waits_for,
        seconds=round(max(0.0, seconds), 3),
        reasons=_texts(reasons),
        failures=reconciler.queue.failures(key),
        error=history.last_error(key) if history is not None else "",
        cached=reconciler.holds(key),
    )


def _texts(reasons: Iterable[Reason]) -> tuple[str, ...]:
    return tuple(str(reason) for reason in islice(reasons, _REASONS))
