"""The controller of one kind of owner, the base of most built-in controllers."""

from __future__ import annotations

from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.controllers.machinery.executor import Executor
from kapsa.devcluster.embedded.controllers.machinery.kinds import (
    REPLICATION_CONTROLLER,
    Kind,
    Object,
)
from kapsa.devcluster.embedded.controllers.machinery.ownership import claim, controller_of
from kapsa.devcluster.embedded.controllers.machinery.plan import Update, WritePlan
from kapsa.devcluster.embedded.controllers.machinery.pod_state import is_finished
from kapsa.devcluster.embedded.controllers.machinery.queue import Key, KeyQueue, key_of
from kapsa.devcluster.embedded.controllers.machinery.view import View
from kapsa.devcluster.embedded.kinds.labels import matches


class OwnerController:
    """A controller that enqueues the owners a change affects and carries out their plans."""

    kind: Kind
    account: str
    """ServiceAccount of the controller, also its name in Events unless `component` is set."""
    component = ""
    dependents: tuple[Kind, ...] = ()
    """Kinds whose changes enqueue their owner."""

    def __init__(self, backend: Backend, view: View, executor: Executor) -> None:
        self.backend = backend
        self.view = view
        self.executor = executor
        self.queue = KeyQueue(self.account, self.reconcile)

    def start(self) -> None:
        """Enqueue all owners."""
        for obj in self.view.objects(self.kind):
            self.queue.add(key_of(obj))

    def observe(self, kind: Kind, new: Object | None, old: Object | None) -> None:
        """Enqueue the owners that a change affects."""
        if kind == self.kind:
            changed = new or old
            assert changed is not None
            self.queue.add(key_of(changed))
            return
        for obj in (new, old):
            self._observe_dependent(obj)
        if new is not None and controller_of(new) is None:
            self.observe_orphan(kind, new)

    def _observe_dependent(self, obj: Object | None) -> None:
        holder = None if obj is None else controller_of(obj)
        if obj is not None and holder is not None and holder["kind"] == self.kind.kind:
            self.queue.add((obj["metadata"].get("namespace", ""), holder["name"]))

    def observe_orphan(self, kind: Kind, orphan: Object) -> None:
        """Enqueue the owners that select an object without a controller: they may adopt it."""
        for owner in self.view.objects(self.kind, orphan["metadata"].get("namespace", "")):
            if matches(owner["spec"].get("selector"), orphan["metadata"].get("labels") or {}):
                self.queue.add(key_of(owner))

    async def reconcile(self, key: Key) -> None:
        """Bring the owner of this key up to date, if it exists."""
        owner = self.view.get(self.kind, *key)
        if owner is not None:
            await self.sync(key, owner)

    async def sync(self, key: Key, owner: Object) -> None:
        """Bring an owner up to date."""
        raise NotImplementedError

    async def carry_out(self, key: Key, plan: WritePlan) -> None:
        """Carry out an owner's plan and enqueue it again if the plan requests that."""
        if plan.again is not None:
            self.queue.add_after(key, plan.again)
        await self.executor.run(plan)

    async def claimed(self, kind: Kind, owner: Object) -> list[Object]:
        """Adopt and release objects of a kind, then return those the owner controls."""
        candidates = [
            *self.view.owned(kind, owner["metadata"]["uid"]),
            *self.view.orphans(kind, owner["metadata"]["namespace"]),
        ]
        mine, rewritten = claim(
            self.kind, owner, selector_of(owner), candidates, adoptable=lambda o: not is_finished(o)
        )
        for obj in rewritten:
            written = await self.executor.do(Update(kind, obj))
            holder = None if written is None else controller_of(written)
            if written is not None and holder is not None:
                mine.append(written)
        return mine


def selector_of(owner: Object) -> dict[str, object]:
    """Return the owner's selector in its object form."""
    selector: dict[str, object] = owner["spec"].get("selector") or {}
    if owner["kind"] == REPLICATION_CONTROLLER.kind:
        return {"matchLabels": selector}
    return selector
