"""The reconciler: the workers of one controller.

It takes keys from the controller's queue, runs each with the `Runner`, and decides by the outcome when the
key runs again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import structlog

from kapsa.runtime.cache._freshness import Freshness
from kapsa.runtime.cache.informer import Informer
from kapsa.runtime.cancellation import await_user_code
from kapsa.runtime.controller._failure_note import failure_note
from kapsa.runtime.controller._primary import Primary
from kapsa.runtime.controller._runner import InvalidResultError, Runner
from kapsa.runtime.controller._source_runs import SourceRuns
from kapsa.runtime.controller._turn import Turn
from kapsa.runtime.controller.context import Context
from kapsa.runtime.controller.controller import Controller
from kapsa.runtime.controller.declarations import Watch
from kapsa.runtime.controller.events import ObjectReference
from kapsa.runtime.controller.outcomes import OutdatedError, TerminalError
from kapsa.runtime.controller.services import Services
from kapsa.runtime.controller.triggers._triggers import Triggers
from kapsa.runtime.controller.work.shard import ShardQueue
from kapsa.runtime.controller.work.workqueue import Item, Priority, QueueShutDownError, Reason, WorkQueue
from kapsa.runtime.errors import ClientError, Conflict, WriteRefused
from kapsa.runtime.resources.mismatch import ModelMismatch
from kapsa.runtime.resources.resource import CustomResource
from kapsa.runtime.resources.selector import matcher
from kapsa.runtime.resources.stored_object import Key, StoredObject, read_as
from kapsa.runtime.telemetry.metrics import Result
from kapsa.runtime.telemetry.tracing import Tracing

if TYPE_CHECKING:
    from kapsa.runtime.controller.work.run_history import RunHistory

__all__ = ["Reconciler"]

_log = structlog.get_logger(__name__)

_STALE_RETRY = 5.0
"""Seconds after which a key is tried again whose controller waits for a stale watch."""
_PASSING_FAILURES = 3
"""Failures in a row after which an error that may pass by itself, such as an outage, is recorded as an event."""
_CANCEL_SECONDS = 5.0
"""Seconds that a cancelled run gets to clean up, before it is given up."""
_SHORTEST_REQUEUE = 0.005
"""Seconds until a `Requeue(after=0)`: a resource that always asks for the next run must not hold a worker."""


class Reconciler:
    """One running controller: its queue and its workers."""

    def __init__(
        self,
        controller: Controller[Any],
        services: Services,
        *,
        turn: Turn,
        sources: SourceRuns,
        tracing: Tracing | None = None,
    ) -> None:
        self.controller = controller
        self.name = controller.name
        self.queue: WorkQueue[Key] = (
            WorkQueue(backoff=controller.retry_backoff, observer=services.metrics)
            if services.shard is None
            else ShardQueue(services.shard, backoff=controller.retry_backoff, observer=services.metrics)
        )
        self.services = services
        self._cache = services.cache
        self._client = services.client
        self._subscriptions = services.subscriptions
        self._tracing = tracing
        self._gvk = controller.gvk
        self._matches = matcher(controller.labels)
        self._workers: list[asyncio.Task[None]] = []
        self._ending: list[asyncio.Task[None]] = []
        self._cut_short = False
        self._started_workers = 0
        self.history: RunHistory | None = None
        """The last runs and errors; None unless the debug endpoint is on."""
        self.stuck: list[str] = []
        """The workers that went on after the last stop, although they were cancelled."""
        self._turn = turn
        self._resync: asyncio.Task[None] | None = None
        self._sources = sources
        self._gave_up: dict[Key, tuple[object, ...]] = {}
        self._last_errors: dict[Key, str] = {}
        self._triggers = Triggers(
            controller,
            cache=self._cache,
            queue=self.queue,
            subscriptions=self._subscriptions,
            shard=services.shard,
            count_failure=services.metrics.trigger_failed,
        )
        services.runtime_watches.listener = self
        self.informers = self._triggers.informers
        self._freshness = Freshness(
            self.name, self.informers, limit=controller.max_staleness, clock=self._client.clock
        )
        self._runner = Runner(controller)

    # -- start and stop --------------------------------------------------------------------------------------

    @property
    def working(self) -> bool:
        """True while workers run. Changes are queued only then: a start begins with all resources."""
        return self._triggers.enabled

    @property
    def waiting_for(self) -> list[Informer]:
        """The watches that have not delivered their first list yet."""
        return [informer for informer in self.informers if not informer.synced.is_set()]

    @property
    def stale(self) -> list[Informer]:
        """The watches that are too old to act on. While there is one, nothing runs."""
        return self._freshness.stale

    @property
    def given_up(self) -> Collection[Key]:
        """The resources that failed for good and wait for a change."""
        return self._gave_up.keys()

    def holds(self, key: Key) -> bool:
        """Return whether the cache has a resource that this controller selects."""
        return self._lookup(key) is not None

    async def wait_until_synced(self) -> None:
        """Wait until every watch has delivered its first list."""
        for informer in self.informers:
            await informer.synced.wait()

    def start(self, *, since: float = float("-inf")) -> None:
        """Start the workers, with all resources queued.

        Under a lease, `since` is the time at which it was taken: what a run watches in addition is listed after it.
        """
        if self.working:
            return
        self.services.runtime_watches.begin(since)
        self._cut_short = False
        self._triggers.enable()
        self._workers = [self._start_worker() for _ in range(self.controller.max_concurrent_reconciles)]
        if self.controller.resync is not None:
            self._resync = asyncio.create_task(self._keep_resyncing(self.controller.resync))
        self._sources.add(self._wake)

    async def _keep_resyncing(self, seconds: float) -> None:
        while True:
            await self._client.clock.sleep(seconds)
            self._triggers.enqueue_all("Resync")

    def _wake(self, namespace: str, name: str) -> None:
        """Run a resource for an outside event. One that does not exist is not queued: names may be invented."""
        key = Key(namespace, name)
        if self.working and self._lookup(key) is not None:
            self.queue.add(key, Reason("Woken", self._gvk.kind, namespace, name))

    async def stop(self, *, grace: float, give_up: bool = False) -> bool:
        """Take no more keys, let runs in progress finish for `grace` seconds, then cancel them.

        Return whether all of them finished. A stop that was cancelled is resumed by the next one. With `give_up`, a run
        that ignores its cancellation is left behind, since the process ends. Otherwise it is waited for: the
        controller may start again, and a resource never has two runs at a time.
        """
        self._stop_intake()
        workers = self._ending
        if not workers:
            return not self._cut_short
        if grace > 0:
            await asyncio.wait(workers, timeout=grace)
        await self._cancel(workers, limit=_CANCEL_SECONDS if give_up else None)
        if self._ending is workers:
            self._ending = []
            self.queue.reopen()
            self._subscriptions.clear()
            self._gave_up.clear()
            self._last_errors.clear()
        return not self._cut_short

    async def finish(self) -> None:
        """Take no more keys, and wait until the runs in progress have ended. A `stop` must follow."""
        self._stop_intake()
        if self._ending:
            await asyncio.wait(self._ending)

    def _stop_intake(self) -> None:
        """Take no more keys. The workers end with their runs."""
        if not self.working:
            return
        self._triggers.disable()
        if self._resync is not None:
            self._resync.cancel()
        self._sources.remove(self._wake)
        self.queue.shut_down()
        self._ending, self._workers = self._workers, []

    async def _cancel(self, workers: Sequence[asyncio.Task[None]], *, limit: float | None) -> None:
        """Cancel workers and wait until they have ended, or give up after `limit` seconds."""
        running = [worker for worker in workers if not worker.done()]
        self._cut_short = self._cut_short or bool(list(self.queue.in_flight))
        for worker in running:
            worker.cancel()
        if running:
            await asyncio.wait(running, timeout=limit)
        self.stuck = [worker.get_name() for worker in running if not worker.done()]
        if self.stuck:
            _log.error(
                "reconcile ignored its cancellation and is given up: let asyncio.CancelledError pass",
                controller=self.name,
                objects=[str(item.key) for item in self.queue.in_flight],
            )

    def _start_worker(self) -> asyncio.Task[None]:
        self._started_workers += 1
        worker = asyncio.create_task(self._work(), name=f"{self.name} worker {self._started_workers}")
        worker.add_done_callback(self._replace_worker)
        return worker

    def _replace_worker(self, ended: asyncio.Task[None]) -> None:
        """Start another worker for one that ended although it was not stopped: its reconcile cancelled it."""
        if not self.working or ended not in self._workers:
            return
        _log.error(
            "reconcile cancelled its own task: cancel the tasks that it started, not the current one",
            controller=self.name,
        )
        self._workers.remove(ended)
        self._workers.append(self._start_worker())

    async def _work(self) -> None:
        time_of_loop, turn = asyncio.get_running_loop().time, self._turn
        while True:
            try:
                item = await self.queue.get()
            except QueueShutDownError:
                return
            await self._process(item)
            while time_of_loop() >= turn.ends:
                await turn.next()

    # -- watches that runs add -------------------------------------------------------------------------------

    def handle(self, watch: Watch, informers: list[Informer]) -> None:
        """Map the changes of a watch that a run has added."""
        self._triggers.handle(watch, informers)

    def rely_on(self, informers: list[Informer]) -> None:
        """Count informers to those whose age limits what this controller may do."""
        self.informers += informers
        self._freshness.recheck()

    # -- one run ---------------------------------------------------------------------------------------------

    def _lookup(self, key: Key) -> StoredObject | None:
        """Return the resource if this controller selects it.

        The cache may hold more: controllers share it.
        """
        stored = self._cache.get(self._gvk, key)
        matches = self._matches
        return stored if stored is None or matches is None or matches(stored.labels) else None

    async def _process(self, item: Item[Key]) -> None:
        key, queue = item.key, self.queue
        stored = self._lookup(key)
        if stored is None or self._waits_for_a_change(stored):
            if stored is None:
                self._forget(key)
            queue.done(key)
            return
        if not self._freshness.check():
            queue.done(key)
            queue.add_after(key, _STALE_RETRY, Reason("Stale"), priority=item.priority)
            return
        started = time.perf_counter()
        after: float | None = None
        try:
            if self._tracing is None:
                result, after = await self._attempt(item, stored)
            else:
                with self._tracing.run(self.name, self._gvk, key, map(str, item.reasons)) as span:
                    result, after = await self._attempt(item, stored)
                    self._tracing.ended(span, result)
        except WriteRefused:
            # This process does not lead at the moment. The next leader starts with all resources. If this
            # process gets the lease back at once, that does not happen, and the key must not be lost.
            self._remember(item, "refused", started)
            self._subscriptions.end_run(key, completed=False)
            queue.done(key)
            queue.add_after(key, 1.0, Reason("Refused"), priority=item.priority)
            return
        except BaseException:
            self._remember(item, "cancelled", started)
            self._subscriptions.end_run(key, completed=False)
            queue.done(key)
            queue.retry(key, Reason("Retry"), priority=item.priority)  # nothing happens after a stop
            raise
        self.services.metrics.reconciled(result, time.perf_counter() - started)
        if self.history is not None:
            self._remember(item, result, started, after)
        completed = result in ("success", "requeue")
        self._subscriptions.end_run(key, completed=completed)
        again = queue.done(key)
        if completed or result == "terminal":
            queue.forget(key)
            if after is not None:
                queue.add_after(
                    key, max(after, _SHORTEST_REQUEUE), Reason("Requeue"), priority=Priority.BACKGROUND
                )
        else:
            priority = item.priority if not again else Priority.EVENT
            queue.retry(key, Reason("Retry"), priority=priority)

    def _remember(
        self, item: Item[Key], result: str, started: float, again_after: float | None = None
    ) -> None:
        """Keep a run for the debug endpoint, if it is on."""
        if self.history is not None:
            self.history.end(item, result, time.perf_counter() - started, again_after)

    def _note(self, key: Key, error: Exception) -> None:
        """Keep the error of a run for the debug endpoint, if it is on."""
        if self.history is not None:
            self.history.fail(key, error)

    async def _attempt(self, item: Item[Key], stored: StoredObject) -> tuple[Result, float | None]:
        """Run one resource. Return the outcome and the seconds until the next run, if requested."""
        try:
            resource = self._decode(stored)
        except ModelMismatch as error:
            self._give_up(stored, error, "DoesNotFitModel")
            return "terminal", None
        except Exception as error:  # raised by the model's own code
            self._report_failure(item, stored, error)
            return "error", None
        primary = Primary(
            stored,
            item,
            kind=self.controller.resource,
            gvk=self._gvk,
            client=self._client,
            cache=self._cache,
        )
        try:
            after = await self._runner(primary, Context(self.services, primary, resource))
        except TimeoutError:
            limit = self.controller.reconcile_timeout
            self._note(item.key, TimeoutError(f"timed out after {limit:g} s"))
            _log.error("reconcile timed out", controller=self.name, object=str(item.key), seconds=limit)
            self._record_failure(primary.stored, f"timed out after {limit:g} s")
            return "timeout", None
        except WriteRefused:
            raise
        except (Conflict, OutdatedError) as error:
            self._note(item.key, error)
            _log.info("conflict, retrying", controller=self.name, object=str(item.key), error=str(error))
            return "conflict", None
        except TerminalError as error:
            self._give_up(primary.stored, error, "TerminalError")
            return "terminal", None
        except Exception as error:
            self._report_failure(item, primary.stored, error)
            return "error", None
        if self._last_errors:
            self._last_errors.pop(item.key, None)
        return ("success" if after is None else "requeue"), after

    def _decode(self, stored: StoredObject) -> Any:
        resource = read_as(stored, self.controller.resource)
        if isinstance(resource, CustomResource):
            _ = (resource.spec, resource.status)  # a mismatch is reported here, not in the author's reconcile
        return resource

    def _report_failure(self, item: Item[Key], stored: StoredObject, error: Exception) -> None:
        """Log a failure, and leave an event on the resource unless it may be gone with the next attempt."""
        self._note(item.key, error)
        self._log_failure(item, error)
        passing = isinstance(error, ClientError) and error.retryable
        if not passing or item.failures >= _PASSING_FAILURES:
            self._record_failure(stored, failure_note(error))

    def _record_failure(self, stored: StoredObject, note: str) -> None:
        self.services.recorder.event(
            ObjectReference.of(self._gvk, stored), "Warning", "ReconcileFailed", note
        )

    def _log_failure(self, item: Item[Key], error: Exception) -> None:
        """Log a failure: with a traceback if it is a new one, in one line if it repeats."""
        about: dict[str, Any] = {"controller": self.name, "object": str(item.key)}
        if isinstance(error, ClientError | ModelMismatch | InvalidResultError):  # the message is enough
            _log.warning("reconcile failed", **about, error=str(error))
            return
        text = f"{type(error).__name__}: {error}"
        about["reasons"] = [str(reason) for reason in item.reasons]
        if self._last_errors.get(item.key) == text:
            _log.error("reconcile failed again", **about, error=text, failures=item.failures + 1)
            return
        self._last_errors[item.key] = text
        _log.error("reconcile failed", **about, exc_info=(type(error), error, _past_the_framework(error)))

    def _forget(self, key: Key) -> None:
        """Discard what is remembered about a resource that is gone."""
        self.queue.drop(key)
        self._subscriptions.drop(key)
        self._gave_up.pop(key, None)
        self._last_errors.pop(key, None)

    # -- terminal failures -----------------------------------------------------------------------------------

    def _give_up(self, stored: StoredObject, error: Exception, reason: str) -> None:
        _log.error(
            "not retried until the resource changes",
            controller=self.name,
            object=str(stored.key),
            error=str(error),
        )
        self._note(stored.key, error)
        self._gave_up[stored.key] = stored.fingerprint()
        self.services.recorder.event(ObjectReference.of(self._gvk, stored), "Warning", reason, str(error))

    def _waits_for_a_change(self, stored: StoredObject) -> bool:
        """Return whether the resource failed for good and has not been changed since."""
        if not self._gave_up:
            return False
        fingerprint = self._gave_up.get(stored.key)
        if fingerprint is None:
            return False
        if fingerprint == stored.fingerprint():
            return True
        del self._gave_up[stored.key]
        return False


def _past_the_framework(error: Exception) -> TracebackType | None:
    """Return the traceback from the first frame that is the author's."""
    ours = (__name__, Runner.__module__, await_user_code.__module__)
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_globals.get("__name__") in ours:
        traceback = traceback.tb_next
    return traceback or error.__traceback__
