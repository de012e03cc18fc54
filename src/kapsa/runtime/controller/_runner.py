"""One run of one resource, step by step, and the writes to the resource itself.

The finalizer is added if the controller cleans up and it is not there yet; `reconcile` (or `finalize`, when the
resource is being deleted) is called; one status write follows if the status differs; the finalizer goes after a
await_user_code `finalize`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from kapsa.runtime.cache.cache import Cache
from kapsa.runtime.cancellation import await_user_code
from kapsa.runtime.client.client import Client
from kapsa.runtime.controller.context import Context, OutdatedError
from kapsa.runtime.controller.controller import Controller, Requeue, TerminalError
from kapsa.runtime.controller._primary import patch_to_add, patch_to_remove
from kapsa.runtime.errors import ClientError, Conflict, Invalid, NotFound, WriteRefused
from kapsa.runtime.resources.resource import CustomResource

__all__ = ["NonsenseError", "Run"]

_log = structlog.get_logger(__name__)

_FINALIZER_ATTEMPTS = 5


class NonsenseError(Exception):
    """A controller's method returned what means nothing here."""


class Run:
    """How a controller's resources are run: made once, used for every run."""

    def __init__(self, controller: Controller[Any], *, client: Client, cache: Cache) -> None:
        self._controller = controller
        self._gvk = controller.gvk
        self._client = client
        self._cache = cache

    async def __call__(self, ctx: Context[Any]) -> float | None:
        """Do all steps within the controller's time limit; after how many seconds to come back, if it said so."""
        limit = self._controller.reconcile_timeout
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
        controller = self._controller
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
            result = await await_user_code(method(ctx.resource, ctx))
        except (asyncio.CancelledError, WriteRefused):
            raise
        except Exception as failure:
            await self._write_status_after_failure(ctx, failure)
            raise
        if result is None:
            return None
        if isinstance(result, Requeue):
            return result.after
        raise NonsenseError(
            f"{type(self._controller).__name__}.{method.__name__} returned {result!r}: return None to wait for the "
            "next event, or Requeue(after=seconds) to come back"
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
            raw = await self._client.patch(
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
                controller=self._controller.name,
                object=str(ctx.key),
                error=str(error),
            )

    # -- finalizers --------------------------------------------------------------------------------------------

    async def _add_finalizer(self, ctx: Context[Any]) -> None:
        """Put our finalizer on the resource, before anything is made that it would have to clean up."""
        try:
            await self._patch_metadata(ctx, patch_to_add(ctx.stored, self._controller.finalizer))
        except Invalid as error:
            if error.causes:
                raise  # the resource itself breaks its kind's rules, whoever touches it
            raise Conflict(error.status, action=error.action) from error  # what we read is outdated

    async def _finalize(self, ctx: Context[Any]) -> float | None:
        controller = self._controller
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
            patch = patch_to_remove(ctx.stored, self._controller.finalizer)
            if patch is None:
                return
            try:
                await self._patch_metadata(ctx, patch)
            except NotFound:
                return
            except (Invalid, Conflict) as error:
                if error.causes:
                    raise
                if not await self._requeue_after(ctx):  # the list changed
                    return
            else:
                return
        raise RuntimeError(
            f"{self._gvk.kind} {ctx.key}: its finalizers kept changing while ours was to be removed"
        )

    # -- the resource on the server ----------------------------------------------------------------------------

    async def check_current(self, ctx: Context[Any]) -> None:
        """Ask the server whether the resource still is what this run was given; if not, the next run has the new one."""
        before = ctx.stored
        if await self._requeue_after(ctx) and before.fingerprint() == ctx.stored.fingerprint():
            return
        raise OutdatedError(f"{self._gvk.kind} {ctx.key} has changed since this run began")

    async def _requeue_after(self, ctx: Context[Any]) -> bool:
        """Read the resource from the server. False if it is another one by now, or none."""
        try:
            raw = await self._client.get(
                self._controller.resource, ctx.key.name, into=bytes, namespace=ctx.key.namespace
            )
        except NotFound:
            self._cache.note_delete(self._gvk, ctx.key, ctx.stored.uid)
            return False
        stored = self._cache.note_write(self._gvk, raw)
        if stored is None or stored.uid != ctx.stored.uid:
            return False
        ctx.stored = stored
        return True

    async def _patch_metadata(self, ctx: Context[Any], patch: list[dict[str, Any]]) -> None:
        raw = await self._client.patch(
            self._controller.resource,
            ctx.key.name,
            patch,
            into=bytes,
            type="json",
            namespace=ctx.key.namespace,
        )
        self._wrote(ctx, raw)

    def _wrote(self, ctx: Context[Any], raw: bytes) -> None:
        """Our own write to the resource: readers see it, its echo wakes nobody, and this run goes on from it."""
        stored = self._cache.note_write(self._gvk, raw)
        if stored is not None:
            ctx.own_writes.add((stored.uid, stored.resource_version))
            ctx.stored = stored
