"""ResourceQuota: rejects writes that would exceed a quota, and counts the others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from kapsa.devcluster.embedded.admission.plugin import Object, Plugin, forbidden
from kapsa.devcluster.embedded.admission.quota.evaluators import (
    IGNORED,
    Evaluator,
    Usage,
    evaluator_of,
    sum_usage,
)
from kapsa.devcluster.embedded.admission.quota.scopes import in_scopes, is_terminating
from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.embedded.requests.mutations import WriteRequest
from kapsa.devcluster.wire.status_errors import StatusError
from kapsa.schemas.quantities import parse, subtract

__all__ = ["ResourceQuotas", "StatusWriter"]

StatusWriter = Callable[[ResourceInfo, Object], Awaitable[Object]]
"""Replaces the status of an object at its revision."""

_ATTEMPTS = 10


class ResourceQuotas(Plugin):
    """The ResourceQuota plugin of the real server. It enforces what the quota controller put into the status."""

    def __init__(self, backend: Backend, write_status: StatusWriter) -> None:
        super().__init__(backend)
        self._write_status = write_status
        self._collection = backend.store.collection("", "resourcequotas")

    async def validate(self, write: WriteRequest, obj: Object, old: Object | None) -> None:
        if not write.namespace or not self._collection.current(f"{write.namespace}/"):
            return
        key = (write.info.group, write.info.resource)
        evaluator = evaluator_of(*key)
        if key in IGNORED or not _is_counted(write, evaluator, obj, old):
            return
        for attempt in range(_ATTEMPTS):
            try:
                await self._charge(write, evaluator, obj, old)
                break
            except StatusError as error:
                # Another write was counted at the same time.
                if error.code != 409 or attempt == _ATTEMPTS - 1:
                    raise

    async def _charge(
        self, write: WriteRequest, evaluator: Evaluator, obj: Object, old: Object | None
    ) -> None:
        charged = []
        for quota in self._objects("", "resourcequotas", write.namespace):
            used = self._used_with(write, evaluator, quota, obj, old)
            if used is not None:
                quota["status"]["used"] = used
                charged.append(quota)
        if write.parameters.dry_run:
            return
        info = self._backend.registry.get("", "v1", "resourcequotas")
        for quota in charged:
            await self._write_status(info, quota)

    def _used_with(
        self, write: WriteRequest, evaluator: Evaluator, quota: Object, obj: Object, old: Object | None
    ) -> Usage | None:
        """Return the usage of a quota after a write; None if the write does not change it."""
        status = quota.get("status") or {}
        hard, used = status.get("hard") or {}, status.get("used") or {}
        names = [name for name in hard if evaluator.matches(name)]
        if not names or not in_scopes(quota, write.info.resource, obj):
            return None
        title = quota["metadata"]["name"]
        if missing := evaluator.missing(obj, names):
            raise forbidden(write, obj, f"failed quota: {title}: {missing}")
        if not all(name in used for name in names):
            listed = ",".join(sorted(names))
            raise forbidden(write, obj, f"status unknown for quota: {title}, resources: {listed}")
        requested = self._requested(write, evaluator, quota, obj, old)
        requested = {name: amount for name, amount in requested.items() if name in hard and parse(amount)}
        if not requested:
            return None
        total = sum_usage(used, requested)
        exceeded = [name for name in requested if parse(total[name]) > parse(hard[name])]
        if exceeded and write.subresource != "status":
            shown = [_shown(amounts, exceeded) for amounts in (requested, used, hard)]
            why = f"exceeded quota: {title}, requested: {shown[0]}, used: {shown[1]}, limited: {shown[2]}"
            raise forbidden(write, obj, why)
        return total

    def _requested(
        self, write: WriteRequest, evaluator: Evaluator, quota: Object, obj: Object, old: Object | None
    ) -> Usage:
        """Return what a write adds to the usage of a quota; an update adds the difference, but takes nothing back."""
        now = self._backend.clock.now()
        usage = evaluator.usage(obj, now)
        negative = sorted(name for name, amount in usage.items() if parse(amount) < 0)
        if negative:
            raise forbidden(write, obj, f"quota usage is negative for resource(s): {','.join(negative)}")
        if old is None or not in_scopes(quota, write.info.resource, old):
            return usage
        before = evaluator.usage(old, now)
        difference = {
            name: subtract(amount, before[name]) if name in before else amount
            for name, amount in usage.items()
        }
        return {name: amount for name, amount in difference.items() if parse(amount) > 0}


def _is_counted(write: WriteRequest, evaluator: Evaluator, obj: Object, old: Object | None) -> bool:
    if (write.info.group, write.info.resource) == ("", "pods"):
        if write.subresource:
            return write.subresource == "resize"
        return old is None or is_terminating(old) != is_terminating(obj)
    if write.subresource:
        return False
    return old is None or evaluator.counts_updates


def _shown(amounts: Mapping[str, str], names: list[str]) -> str:
    return ",".join(f"{name}={amounts[name]}" for name in sorted(names))
