"""The controller of ResourceQuotas: keeps the usage in their status, which admission enforces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kapsa.devcluster.embedded.admission.quota.evaluators import Evaluator, Usage, evaluator_of, sum_usage
from kapsa.devcluster.embedded.admission.quota.scopes import in_scopes
from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.codec.stored_form import decode
from kapsa.devcluster.embedded.controllers.machinery.queue import Key, KeyQueue, Retry, key_of
from kapsa.devcluster.embedded.storage.store import Collection, StoreChange
from kapsa.devcluster.embedded.verbs.client import InProcessClient
from kapsa.devcluster.wire.status_errors import StatusError

__all__ = ["QuotaController"]

Object = dict[str, Any]

_QUOTAS = ("", "resourcequotas")
_MEASURED = (("", "pods"), ("", "services"), ("", "persistentvolumeclaims"))
"""Resources whose objects use more than their number, so that an update may change the usage."""
_RESYNC = 300.0


class QuotaController:
    """Controller of ResourceQuotas. Admission adds to the usage; this takes back what was deleted or has ended."""

    def __init__(self, backend: Backend, client: InProcessClient) -> None:
        self._backend = backend
        self._client = client
        self._quotas = backend.store.collection(*_QUOTAS)
        self.queue = KeyQueue("resourcequota", self._reconcile)

    def start(self) -> None:
        """Count what the quotas of the store use."""
        for stored in self._quotas.current():
            self.queue.add((stored.namespace, stored.name))

    def follow(self, collection: Collection, change: StoreChange) -> None:
        """Count again after a change that may have changed the usage of a quota."""
        if collection.key == _QUOTAS and change.type != "DELETED":
            quota = decode(change.object)
            if (quota.get("spec") or {}).get("hard") != (quota.get("status") or {}).get("hard"):
                self.queue.add(key_of(quota))
        is_released = change.type == "DELETED" or (change.type == "MODIFIED" and collection.key in _MEASURED)
        if is_released and change.object.namespace:
            for stored in self._quotas.current(f"{change.object.namespace}/"):
                self.queue.add((stored.namespace, stored.name))

    async def _reconcile(self, key: Key) -> None:
        info = self._backend.registry.get("", "v1", "resourcequotas")
        quota = self._client.find(info, *key)
        if quota is None:
            return
        hard = (quota.get("spec") or {}).get("hard") or {}
        status = {"hard": hard, "used": self._count(quota, hard)}
        if status != quota.get("status"):
            try:
                await self._client.update_status(info, {**quota, "status": status})
            except StatusError as error:
                if error.reason in ("Conflict", "NotFound"):
                    raise Retry from None
                raise
        self.queue.add_after(key, _RESYNC)

    def _count(self, quota: Object, hard: Usage) -> Usage:
        used: Usage = {}
        namespace = quota["metadata"]["namespace"]
        now = self._backend.clock.now()
        for group, resource, evaluator, names in self._counted(hard):
            total: Usage = dict.fromkeys(names, "0")
            for stored in self._backend.store.collection(group, resource).current(f"{namespace}/"):
                obj = decode(stored)
                if in_scopes(quota, resource, obj):
                    usage = evaluator.usage(obj, now)
                    total = sum_usage(total, {name: usage[name] for name in names if name in usage})
            used |= total
        return used

    def _counted(self, hard: Usage) -> Iterator[tuple[str, str, Evaluator, list[str]]]:
        """Yield each resource that a quota counts, its evaluator, and what is counted of it."""
        resources = dict.fromkeys(_MEASURED)
        for name in hard:
            resource, _, group = name.removeprefix("count/").partition(".")
            if self._backend.registry.versions_of(group, resource):
                resources[group, resource] = None
        for group, resource in resources:
            evaluator = evaluator_of(group, resource)
            names = [name for name in hard if evaluator.matches(name)]
            if names:
                yield group, resource, evaluator, names
