"""The runner: the steps of one run of one resource.

1. Add the finalizer, if the controller cleans up and the resource does not have it yet.
2. Call `reconcile`, or `finalize` if the resource is being deleted.
3. Write the status once, if it differs.
4. Remove the finalizer after `finalize` has completed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from kapsa.runtime.cancellation import await_user_code
from kapsa.runtime.controller._primary import Primary
from kapsa.runtime.controller.context import Context
from kapsa.runtime.controller.controller import Controller
from kapsa.runtime.controller.outcomes import Requeue, TerminalError
from kapsa.runtime.errors import ClientError, WriteRefused
from kapsa.runtime.resources.resource import CustomResource

__all__ = ["InvalidResultError", "Runner"]

_log = structlog.get_logger(__name__)


class InvalidResultError(Exception):
    """A controller's method returned neither None nor a Requeue."""


class Runner:
    """A runner of the resources of one controller, one call for each run."""

    def __init__(self, controller: Controller[Any]) -> None:
        self._controller = controller

    async def __call__(self, primary: Primary, ctx: Context[Any]) -> float | None:
        """Do all steps within the controller's time limit.

        Return the seconds until the next run, if requested.
        """
        limit = self._controller.reconcile_timeout
        if limit is None:
            return await self._steps(primary, ctx)
        try:
            async with asyncio.timeout(limit) as scope:
                return await self._steps(primary, ctx)
        except TimeoutError as error:
            if scope.expired():
                raise
            # A TimeoutError that the reconcile raised itself is a failure like any other.
            raise RuntimeError(f"reconcile raised a TimeoutError of its own: {error}") from error

    async def _steps(self, primary: Primary, ctx: Context[Any]) -> float | None:
        controller = self._controller
        if primary.stored.deletion_timestamp is not None:
            return await self._finalize(primary, ctx)
        if controller.has_finalize:
            await primary.add_finalizer(controller.finalizer)
        after = await self._call(controller.reconcile, primary, ctx)
        await self._write_status(primary, ctx, observed=True)
        return after

    async def _finalize(self, primary: Primary, ctx: Context[Any]) -> float | None:
        controller = self._controller
        if not controller.has_finalize or controller.finalizer not in primary.stored.finalizers:
            return None
        after = await self._call(controller.finalize, primary, ctx)
        if after is not None:
            await self._write_status(primary, ctx, observed=True)
            return after
        await primary.remove_finalizer(controller.finalizer)
        return None

    async def _call(
        self, method: Callable[[Any, Context[Any]], Awaitable[Any]], primary: Primary, ctx: Context[Any]
    ) -> float | None:
        try:
            result = await await_user_code(method(ctx.resource, ctx))
        except (asyncio.CancelledError, WriteRefused):
            raise
        except Exception as failure:
            await self._write_status_after_failure(primary, ctx, failure)
            raise
        if result is None:
            return None
        if isinstance(result, Requeue):
            return result.after
        raise InvalidResultError(
            f"{type(self._controller).__name__}.{method.__name__} returned {result!r}: return None to wait for the "
            "next event, or Requeue(after=seconds)"
        )

    async def _write_status(self, primary: Primary, ctx: Context[Any], *, observed: bool) -> None:
        """Write the status once, and only if it differs from the current one."""
        resource = ctx.resource
        if not isinstance(resource, CustomResource):
            return
        generation = primary.stored.generation
        if ctx.draft is None and (not observed or resource.status.observed_generation == generation):
            return
        draft = ctx.status
        if observed and generation:
            draft.observed_generation = generation
        patch = resource.status_patch(draft)
        if patch is not None:
            await primary.write_status(patch)

    async def _write_status_after_failure(
        self, primary: Primary, ctx: Context[Any], failure: Exception
    ) -> None:
        """Write the status that the run set before it failed.

        A failure to write it does not hide the first one.
        """
        terminal = isinstance(failure, TerminalError)
        if ctx.draft is None and not terminal:
            return
        try:
            await self._write_status(primary, ctx, observed=terminal)
        except ClientError as error:
            _log.info(
                "status not written after a failure",
                controller=self._controller.name,
                object=str(ctx.key),
                error=str(error),
            )
