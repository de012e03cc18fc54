"""The reconciler: runs one controller. Changes in, reconciles out, one run for each key at a time.

It turns changes into keys of its queue, hands each key to a `Run`, and decides by the outcome what comes next.
"""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Any

import structlog

from kapsa.runtime.cache.cache import Cache
from kapsa.runtime.cache.informer import Informer
from kapsa.runtime.cache.store import Change, Key, StoredObject
from kapsa.runtime.client.client import Client
from kapsa.runtime.clock import Clock
from kapsa.runtime.controller.applier import Applier
from kapsa.runtime.controller.context import Context, OutdatedError
from kapsa.runtime.controller.controller import Controller, TerminalError
from kapsa.runtime.controller.events import EventRecorder, ObjectReference
from kapsa.runtime.controller._runner import NonsenseError, Run
from kapsa.runtime.controller._triggers import Triggers
from kapsa.runtime.controller.workqueue import Item, Priority, QueueShutDownError, Reason, WorkQueue
from kapsa.runtime.errors import ClientError, Conflict, WriteRefused
from kapsa.runtime.resources.api_resource import resource_of
from kapsa.runtime.resources.metadata import GroupVersionKind
from kapsa.runtime.resources.mismatch import ModelMismatch
from kapsa.runtime.resources.resource import CustomResource
from kapsa.runtime.resources.selector import matcher
from kapsa.runtime.resources.stored_object import read_as
from kapsa.runtime.telemetry.metrics import ControllerMetrics, Result
from kapsa.runtime.telemetry.tracing import Tracing

__all__ = ["Reconciler"]

_log = structlog.get_logger(__name__)

_ECHOES_KEPT = 32


class Reconciler:
    """One running controller: its queue, its workers and what they share."""

    def __init__(
        self,
        controller: Controller[Any],
        *,
        client: Client,
        cache: Cache,
        applier: Applier,
        recorder: EventRecorder,
        metrics: ControllerMetrics,
        tracing: Tracing | None = None,
    ) -> None:
        self.controller = controller
        self.name = controller.name
        self.client = client
        self.cache = cache
        self.applier = applier
        self.recorder = recorder
        self.metrics = metrics
        self._tracing = tracing
        self.clock: Clock = client.clock
        self.queue: WorkQueue[Key] = WorkQueue(backoff=controller.retry_backoff, observer=metrics)
        self.gvk = controller.gvk
        self._workers: list[asyncio.Task[None]] = []
        self._resync: asyncio.Task[None] | None = None
        self._own_writes: dict[Key, set[Any]] = {}
        self._gave_up: dict[Key, tuple[object, ...]] = {}
        self._troubles: dict[Key, str] = {}
        self._scopes: dict[GroupVersionKind, bool] = {}
        self._triggers = Triggers(controller, cache, wake=self._wake, gone=self._forget)
        self.informers = self._triggers.informers
        self.run = Run(controller, client=client, cache=cache)

    # -- from changes to the queue -----------------------------------------------------------------------------

    def _wake(self, key: Key, change: Change, kind: str, priority: Priority) -> None:
        new = change.new
        token = (new.uid, new.resource_version) if new is not None and not change.initial else None
        if token is not None:
            own = self._own_writes.get(key)
            if own is not None and token in own:  # the echo of what a run of this key wrote itself
                own.discard(token)
                if not own:
                    del self._own_writes[key]
                return
        self.queue.add(key, Reason(change.event, kind, *change.object.key), priority=priority, token=token)

    def _forget(self, key: Key) -> None:
        self.queue.forget(key)
        self._own_writes.pop(key, None)
        self._gave_up.pop(key, None)
        self._troubles.pop(key, None)

    # -- life --------------------------------------------------------------------------------------------------

    @property
    def working(self) -> bool:
        """Whether workers run: only then changes are queued. Whoever starts working begins with everything."""
        return self._triggers.enabled

    @property
    def waiting_for(self) -> list[Informer]:
        """The watches that have not delivered their first list yet."""
        return [informer for informer in self.informers if not informer.synced.is_set()]

    async def wait_until_synced(self) -> None:
        for informer in self.informers:
            await informer.synced.wait()

    def start(self) -> None:
        """Begin to work, with everything there is."""
        if self.working:
            return
        self._triggers.enabled = True
        self._run_all("Started")
        count = self.controller.max_concurrent_reconciles
        self._workers = [
            asyncio.create_task(self._work(), name=f"{self.name} worker {number}") for number in range(count)
        ]
        if self.controller.resync is not None:
            self._resync = asyncio.create_task(self._keep_resyncing(self.controller.resync))

    def _run_all(self, event: str) -> None:
        for stored in self.cache.select(self.gvk, labels=self.controller.labels):
            reason = Reason(event, self.gvk.kind, *stored.key)
            self.queue.add(stored.key, reason, priority=Priority.BACKGROUND)

    async def _keep_resyncing(self, seconds: float) -> None:
        while True:
            await self.clock.sleep(seconds)
            self._run_all("Resync")

    async def stop(self, *, grace: float) -> None:
        """Take no more work, let what runs finish for `grace` seconds, then cancel it."""
        if not self.working:
            return
        self._triggers.enabled = False
        if self._resync is not None:
            self._resync.cancel()
        self.queue.shut_down()
        workers, self._workers = self._workers, []
        if workers and grace > 0:
            await asyncio.wait(workers, timeout=grace)
        for worker in workers:
            if not worker.done():
                worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        self.queue = WorkQueue(backoff=self.controller.retry_backoff, observer=self.metrics)
        self._own_writes.clear()
        self._gave_up.clear()
        self._troubles.clear()

    async def _work(self) -> None:
        queue = self.queue
        while True:
            try:
                item = await queue.get()
            except QueueShutDownError:
                return
            await self._process(item)

    # -- one run -----------------------------------------------------------------------------------------------

    def _find(self, key: Key) -> StoredObject | None:
        """The resource, if it is one of ours: another controller's watch may see more of the kind than we do."""
        stored = self.cache.get(self.gvk, key)
        matches = matcher(self.controller.labels)
        return stored if stored is None or matches is None or matches(stored.labels) else None

    async def _process(self, item: Item[Key]) -> None:
        key, queue = item.key, self.queue
        stored = self._find(key)
        if stored is None or self._waits_for_a_change(stored):
            if stored is None:
                self._forget(key)
            queue.done(key)
            return
        own = self._own_writes.pop(key, set[Any]())
        if len(own) > _ECHOES_KEPT:  # after a relist some echoes never come
            own.clear()
        started = time.perf_counter()
        after: float | None = None
        try:
            if self._tracing is None:
                result, after = await self._attempt(item, stored, own)
            else:
                with self._tracing.run(self.name, self.gvk, key, map(str, item.reasons)) as span:
                    result, after = await self._attempt(item, stored, own)
                    self._tracing.ended(span, result)
        except WriteRefused:
            # We do not lead at the moment. Whoever leads next starts with everything; should we get the lease back
            # in this very instant, that is us, and this key must not be lost.
            queue.done(key, own=own)
            queue.add_after(key, 1.0, Reason("Refused"), priority=item.priority)
            return
        except BaseException:
            queue.done(key, own=own)
            raise
        self.metrics.reconciled(result, time.perf_counter() - started)
        again = queue.done(key, own=own)
        if own and self.cache.get(self.gvk, key) is not None:
            self._own_writes[key] = own
        if result in ("success", "requeue", "terminal"):
            queue.forget(key)
            if after is not None:
                queue.add_after(key, after, Reason("Requeue"), priority=Priority.BACKGROUND)
        else:
            priority = item.priority if not again else Priority.EVENT
            queue.retry(key, Reason("Retry"), priority=priority)

    async def _attempt(
        self, item: Item[Key], stored: StoredObject, own: set[Any]
    ) -> tuple[Result, float | None]:
        """One run; the outcome and, if it asked to come back, after how long."""
        try:
            ctx = self._context(stored, item, own)
        except ModelMismatch as error:
            self._give_up(stored, error, "DoesNotFitModel")
            return "terminal", None
        except Exception as error:  # a model's own code
            self._tell(item, error)
            return "error", None
        try:
            after = await self.run(ctx)
        except TimeoutError:
            limit = self.controller.reconcile_timeout
            _log.error("reconcile cancelled", controller=self.name, object=str(item.key), after_seconds=limit)
            return "timeout", None
        except WriteRefused:
            raise
        except (Conflict, OutdatedError) as error:
            _log.info("conflict, trying again", controller=self.name, object=str(item.key), error=str(error))
            return "conflict", None
        except TerminalError as error:
            self._give_up(ctx.stored, error, "TerminalError")
            return "terminal", None
        except Exception as error:
            self._tell(item, error)
            return "error", None
        if self._troubles:
            self._troubles.pop(item.key, None)
        return ("success" if after is None else "requeue"), after

    def _tell(self, item: Item[Key], error: Exception) -> None:
        """Log a failure: with the way to it if that is news, in one line if it only happens again."""
        about: dict[str, Any] = {"controller": self.name, "object": str(item.key)}
        if isinstance(error, ClientError | ModelMismatch | NonsenseError):  # their words say it all
            _log.warning("reconcile failed", **about, error=str(error))
            return
        trouble = f"{type(error).__name__}: {error}"
        about["reasons"] = [str(reason) for reason in item.reasons]
        if self._troubles.get(item.key) == trouble:
            failures = self.queue.failures(item.key) + 1
            _log.error("reconcile failed again", **about, error=trouble, failures=failures)
            return
        self._troubles[item.key] = trouble
        _log.error("reconcile failed", **about, exc_info=(type(error), error, _past_the_framework(error)))

    def _context(self, stored: StoredObject, item: Item[Key], own: set[Any]) -> Context[Any]:
        resource = read_as(stored, self.controller.resource)
        if isinstance(resource, CustomResource):
            _ = (
                resource.spec,
                resource.status,
            )  # what does not fit is told here, not in somebody's reconcile
        ctx: Context[Any] = Context(self, stored, resource, item.reasons)
        ctx.own_writes = own
        return ctx

    # -- giving up ---------------------------------------------------------------------------------------------

    def _give_up(self, stored: StoredObject, error: Exception, reason: str) -> None:
        _log.error(
            "not retried until the resource changes",
            controller=self.name,
            object=str(stored.key),
            error=str(error),
        )
        self._gave_up[stored.key] = stored.fingerprint()
        self.recorder.event(self.reference(stored), "Warning", reason, str(error))

    def _waits_for_a_change(self, stored: StoredObject) -> bool:
        """After a terminal error only a change of the resource itself brings it back."""
        if not self._gave_up:
            return False
        known = self._gave_up.get(stored.key)
        if known is None:
            return False
        if known == stored.fingerprint():
            return True
        del self._gave_up[stored.key]
        return False

    # -- small things ------------------------------------------------------------------------------------------

    def told_up_to(self) -> int:
        """The version up to which every watch of the resource's kind has told everything."""
        return min(informer.store.told for informer in self.cache.of_kind(self.gvk))

    def reference(self, stored: StoredObject) -> ObjectReference:
        return ObjectReference(
            api_version=self.gvk.api_version,
            kind=self.gvk.kind,
            name=stored.name,
            namespace=stored.namespace,
            uid=stored.uid,
            resource_version=stored.resource_version,
        )

    async def is_namespaced(self, gvk: GroupVersionKind) -> bool:
        known = self._scopes.get(gvk)
        if known is None:
            declared = [self.controller.resource, *(owned.kind for owned in self.controller.owned)]
            for kind in declared:
                resource = resource_of(kind)
                if resource is not None:
                    self._scopes[resource.gvk] = resource.namespaced
            known = self._scopes.get(gvk)
            if known is None:
                known = self._scopes[gvk] = (await self.client.discovery.resource(gvk)).namespaced
        return known


def _past_the_framework(error: Exception) -> TracebackType | None:
    """The traceback from the first frame that is the author's."""
    ours = (__name__, Run.__module__)
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_globals.get("__name__") in ours:
        traceback = traceback.tb_next
    return traceback or error.__traceback__
