"""The reconciler: runs one controller. Changes in, reconciles out, one run for each key at a time.

What happens in a run, in this order: the resource is read from the cache; the finalizer is added if the controller
cleans up and it is not there yet; `reconcile` (or `finalize`, when the resource is being deleted) is called; one
status write follows if the status differs; the finalizer goes after a finished `finalize`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from kapsa.runtime.applying import Applier
from kapsa.runtime.binding import resource_of
from kapsa.runtime.cache import Cache
from kapsa.runtime.client import Client
from kapsa.runtime.clock import Clock
from kapsa.runtime.context import Context, OutdatedError
from kapsa.runtime.controller import Controller, Requeue, TerminalError
from kapsa.runtime.errors import ClientError, Conflict, Invalid, NotFound, WriteRefused
from kapsa.runtime.events import EventRecorder, ObjectReference
from kapsa.runtime.finalizers import patch_to_add, patch_to_remove
from kapsa.runtime.informer import Informer
from kapsa.runtime.metadata import GroupVersionKind
from kapsa.runtime.metrics import ControllerMetrics, Result
from kapsa.runtime.resource import CustomResource, ModelMismatch
from kapsa.runtime.selector import matcher
from kapsa.runtime.store import Change, Key, StoredObject
from kapsa.runtime.triggers import Triggers
from kapsa.runtime.workqueue import Item, Priority, QueueShutDownError, Reason, WorkQueue

__all__ = ["Reconciler"]

_log = structlog.get_logger(__name__)

_FINALIZER_ATTEMPTS = 5
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
    ) -> None:
        self.controller = controller
        self.name = controller.name
        self.client = client
        self.cache = cache
        self.applier = applier
        self.recorder = recorder
        self.metrics = metrics
        self.clock: Clock = client.clock
        self.queue: WorkQueue[Key] = WorkQueue(backoff=controller.retry_backoff, observer=metrics)
        self.gvk = controller.gvk
        self._workers: list[asyncio.Task[None]] = []
        self._resync: asyncio.Task[None] | None = None
        self._own_writes: dict[Key, set[Any]] = {}
        self._gave_up: dict[Key, tuple[object, ...]] = {}
        self._scopes: dict[GroupVersionKind, bool] = {}
        self._triggers = Triggers(controller, cache, wake=self._wake, gone=self._forget)
        self.informers = self._triggers.informers

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
            result, after = await self._run(item, stored, own)
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

    async def _run(self, item: Item[Key], stored: StoredObject, own: set[Any]) -> tuple[Result, float | None]:
        """One run; the outcome and, if it asked to come back, after how long."""
        ctx: Context[Any] | None = None
        try:
            ctx = self._context(stored, item, own)
            after = await self._bounded(ctx)
        except TimeoutError:
            limit = self.controller.reconcile_timeout
            _log.error("reconcile cancelled", controller=self.name, object=str(item.key), after_seconds=limit)
            return "timeout", None
        except WriteRefused:
            raise
        except (Conflict, OutdatedError) as error:
            _log.info("conflict, trying again", controller=self.name, object=str(item.key), error=str(error))
            return "conflict", None
        except (TerminalError, ModelMismatch) as error:
            await self._give_up(ctx, stored, error)
            return "terminal", None
        except ClientError as error:
            _log.warning("reconcile failed", controller=self.name, object=str(item.key), error=str(error))
            return "error", None
        except Exception:
            _log.exception(
                "reconcile failed",
                controller=self.name,
                object=str(item.key),
                reasons=[str(r) for r in item.reasons],
            )
            return "error", None
        return ("success" if after is None else "requeue"), after

    def _context(self, stored: StoredObject, item: Item[Key], own: set[Any]) -> Context[Any]:
        kind = self.controller.resource
        resource: Any
        if isinstance(kind, str):
            resource = stored.to_dict()
        elif issubclass(kind, CustomResource):
            resource = kind.decode(stored.raw)
            _ = (
                resource.spec,
                resource.status,
            )  # a resource that does not fit its model is told here, not in user code
        else:
            resource = stored.decode(kind)
        ctx: Context[Any] = Context(self, stored, resource, item.reasons)
        ctx.own_writes = own
        return ctx

    async def _bounded(self, ctx: Context[Any]) -> float | None:
        limit = self.controller.reconcile_timeout
        if limit is None:
            return await self._steps(ctx)
        try:
            async with asyncio.timeout(limit) as scope:
                return await self._steps(ctx)
        except TimeoutError as error:
            if scope.expired():
                raise
            # A time-out of the reconcile's own is a failure like any other, not ours.
            raise RuntimeError(f"reconcile raised a TimeoutError of its own: {error}") from error

    async def _steps(self, ctx: Context[Any]) -> float | None:
        controller = self.controller
        if ctx.stored.deletion_timestamp is not None:
            return await self._finalize(ctx)
        if controller.has_finalize and controller.finalizer not in ctx.stored.finalizers:
            await self._add_finalizer(ctx)
        after = await self._call(controller.reconcile, ctx)
        await self._write_status(ctx, observed=True)
        return after

    async def _call(
        self, method: Callable[[Any, Context[Any]], Awaitable[Any]], ctx: Context[Any]
    ) -> float | None:
        try:
            result = await method(ctx.resource, ctx)
        except (asyncio.CancelledError, WriteRefused):
            raise
        except Exception as failure:
            await self._write_status_after_failure(ctx, failure)
            raise
        return self._after(result, method.__name__)

    def _after(self, result: Any, method: str) -> float | None:
        if result is None:
            return None
        if isinstance(result, Requeue):
            return result.after
        raise TypeError(
            f"{type(self.controller).__name__}.{method} returned {result!r}: return None to wait for the next event, "
            "or Requeue(after=seconds) to come back"
        )

    # -- status ------------------------------------------------------------------------------------------------

    async def _write_status(self, ctx: Context[Any], *, observed: bool) -> None:
        """One write, and only if the status differs from what is there."""
        resource = ctx.resource
        if not isinstance(resource, CustomResource):
            return
        generation = ctx.stored.generation
        if ctx.draft is None and (not observed or resource.status.observed_generation == generation):
            return
        draft = ctx.status
        if observed and generation:
            draft.observed_generation = generation
        patch = resource.status_patch(draft)
        if patch is None:
            return
        # With the version it was read at: a status made from an old spec must not overwrite that of a newer one.
        body = {
            "metadata": {"resourceVersion": ctx.stored.resource_version, "uid": ctx.stored.uid},
            "status": patch,
        }
        try:
            raw = await self.client.patch(
                type(resource),
                ctx.key.name,
                body,
                into=bytes,
                namespace=ctx.key.namespace,
                subresource="status",
            )
        except NotFound:
            return  # deleted meanwhile: nobody is left to read it
        self._wrote(ctx, raw)

    async def _write_status_after_failure(self, ctx: Context[Any], failure: Exception) -> None:
        """What the run found before it failed is worth telling; failing to tell it does not hide the failure."""
        terminal = isinstance(failure, TerminalError)
        if ctx.draft is None and not terminal:
            return
        try:
            await self._write_status(ctx, observed=terminal)
        except ClientError as error:
            _log.info(
                "status not written after a failure",
                controller=self.name,
                object=str(ctx.key),
                error=str(error),
            )

    # -- finalizers --------------------------------------------------------------------------------------------

    async def _add_finalizer(self, ctx: Context[Any]) -> None:
        """Put our finalizer on the resource, before anything is made that it would have to clean up."""
        try:
            await self._patch_metadata(ctx, patch_to_add(ctx.stored, self.controller.finalizer))
        except Invalid as error:
            if error.causes:
                raise  # the resource itself breaks its kind's rules, whoever touches it
            raise _outdated(error) from error

    async def _finalize(self, ctx: Context[Any]) -> float | None:
        controller = self.controller
        if not controller.has_finalize or controller.finalizer not in ctx.stored.finalizers:
            return None
        after = await self._call(controller.finalize, ctx)
        if after is not None:
            await self._write_status(ctx, observed=True)
            return after
        await self._remove_finalizer(ctx)
        return None

    async def _remove_finalizer(self, ctx: Context[Any]) -> None:
        """Take our finalizer away, by its place in the list and only if it is there: never anybody else's."""
        for _ in range(_FINALIZER_ATTEMPTS):
            patch = patch_to_remove(ctx.stored, self.controller.finalizer)
            if patch is None:
                return
            try:
                await self._patch_metadata(ctx, patch)
            except NotFound:
                return
            except (Invalid, Conflict) as error:
                if error.causes:
                    raise
                if not await self._look_again(ctx):  # the list changed
                    return
            else:
                return
        raise RuntimeError(
            f"{self.gvk.kind} {ctx.key}: its finalizers kept changing while ours was to be removed"
        )

    async def _look_again(self, ctx: Context[Any]) -> bool:
        """Read the resource from the server. False if it is another one by now, or none."""
        try:
            raw = await self.client.get(
                self.controller.resource, ctx.key.name, into=bytes, namespace=ctx.key.namespace
            )
        except NotFound:
            self.cache.note_delete(self.gvk, ctx.key, ctx.stored.uid)
            return False
        stored = self.cache.note_write(self.gvk, raw)
        if stored is None or stored.uid != ctx.stored.uid:
            return False
        ctx.stored = stored
        return True

    def told_up_to(self) -> int:
        """The version up to which every watch of the resource's kind has told everything."""
        return min(informer.store.told for informer in self.cache.of_kind(self.gvk))

    async def check_current(self, ctx: Context[Any]) -> None:
        """Ask the server whether the resource still is what this run was given; if not, the next run has the new one."""
        before = ctx.stored
        if await self._look_again(ctx) and _fingerprint(before) == _fingerprint(ctx.stored):
            return
        raise OutdatedError(f"{self.gvk.kind} {ctx.key} has changed since this run began")

    async def _patch_metadata(self, ctx: Context[Any], patch: list[dict[str, Any]]) -> None:
        raw = await self.client.patch(
            self.controller.resource,
            ctx.key.name,
            patch,
            into=bytes,
            type="json",
            namespace=ctx.key.namespace,
        )
        self._wrote(ctx, raw)

    def _wrote(self, ctx: Context[Any], raw: bytes) -> None:
        """Our own write to the resource: readers see it, its echo wakes nobody, and this run goes on from it."""
        stored = self.cache.note_write(self.gvk, raw)
        if stored is not None:
            ctx.own_writes.add((stored.uid, stored.resource_version))
            ctx.stored = stored

    # -- giving up ---------------------------------------------------------------------------------------------

    async def _give_up(self, ctx: Context[Any] | None, stored: StoredObject, error: Exception) -> None:
        _log.error(
            "not retried until the resource changes",
            controller=self.name,
            object=str(stored.key),
            error=str(error),
        )
        latest = ctx.stored if ctx is not None else stored
        self._gave_up[stored.key] = _fingerprint(latest)
        reason = "DoesNotFitModel" if isinstance(error, ModelMismatch) else "TerminalError"
        self.recorder.event(self.reference(stored), "Warning", reason, str(error))

    def _waits_for_a_change(self, stored: StoredObject) -> bool:
        """After a terminal error only a change of the resource itself brings it back."""
        if not self._gave_up:
            return False
        known = self._gave_up.get(stored.key)
        if known is None:
            return False
        if known == _fingerprint(stored):
            return True
        del self._gave_up[stored.key]
        return False

    # -- small things ------------------------------------------------------------------------------------------

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


def _fingerprint(stored: StoredObject) -> tuple[object, ...]:
    """What people can change of a resource: everything but its status."""
    return (
        stored.uid,
        stored.generation,
        stored.deletion_timestamp,
        tuple(sorted(stored.labels.items())),
        tuple(sorted(stored.annotations().items())),
    )


def _outdated(error: Invalid) -> Conflict:
    return Conflict(error.status, action=error.action)
