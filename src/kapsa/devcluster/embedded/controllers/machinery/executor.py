"""The execution of plans: every write of a controller goes through here."""

from __future__ import annotations

import asyncio

from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.controllers.machinery.events import Recorder
from kapsa.devcluster.embedded.controllers.machinery.kinds import Kind, Object
from kapsa.devcluster.embedded.controllers.machinery.plan import (
    Action,
    Create,
    Delete,
    Note,
    RecordEvent,
    Update,
    WritePlan,
)
from kapsa.devcluster.embedded.controllers.machinery.queue import Retry
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.embedded.verbs.client import InProcessClient
from kapsa.devcluster.wire.exchange import RequestUser
from kapsa.devcluster.wire.status_errors import StatusError

_SLICE = 8
"""Actions of a plan that are carried out before requests and other controllers get a turn."""
_AUTHENTICATED = ("system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated")


class Executor:
    """Writer with the identity of one controller."""

    def __init__(
        self,
        backend: Backend,
        recorder: Recorder,
        *,
        account: str,
        component: str = "",
        manager: str = "kube-controller-manager",
        user: str = "",
    ) -> None:
        self._backend = backend
        self._recorder = recorder
        self._component = component or account
        self._manager = manager
        identity = RequestUser(
            username=user or f"system:serviceaccount:kube-system:{account}",
            groups=("system:authenticated",) if user else _AUTHENTICATED,
        )
        self._client = InProcessClient(backend, user=identity, manager=manager)
        self._infos: dict[Kind, ResourceInfo] = {}

    def info(self, kind: Kind) -> ResourceInfo:
        """Return the registry's entry of a kind."""
        info = self._infos.get(kind)
        if info is None:
            info = self._infos[kind] = self._client.resource(kind.group, kind.version, kind.resource)
        return info

    async def run(self, plan: WritePlan) -> None:
        """Carry out all actions in order.

        Raises Retry when another writer was faster and the plan must be made from scratch, and ApiError when
        an action is rejected.
        """
        for number, action in enumerate(plan.actions, 1):
            await self.do(action)
            if number % _SLICE == 0:
                await asyncio.sleep(0)

    async def do(self, action: Action) -> Object | None:
        """Carry out one action and return the object it wrote, if any."""
        if isinstance(action, RecordEvent):
            await self.note(action.note)
            return None
        try:
            written = await self._write(action)
        except StatusError as error:
            return await self._failed(action, error)
        done = None if not isinstance(action, Create | Update | Delete) else action.done
        if done is not None and (written is not None or isinstance(action, Delete)):
            name = (written or action.object)["metadata"]["name"]
            await self.note(done, name=name)
        return written

    async def _write(self, action: Create | Update | Delete | Action) -> Object | None:
        if isinstance(action, Create):
            return await self._client.create(self.info(action.kind), action.object)
        if isinstance(action, Update):
            return await self._client.update(self.info(action.kind), action.object)
        if isinstance(action, Delete):
            metadata = action.object["metadata"]
            await self._client.delete(
                self.info(action.kind),
                metadata.get("namespace", ""),
                metadata["name"],
                uid=metadata["uid"],
                grace_seconds=action.grace,
                propagation=action.propagation,
            )
            return None
        assert not isinstance(action, RecordEvent)
        return await self._client.update_status(self.info(action.kind), action.object)

    async def _failed(self, action: Action, error: StatusError) -> Object | None:
        if error.reason == "AlreadyExists" and isinstance(action, Create) and action.exists_ok:
            return None
        if error.reason == "NotFound" and not isinstance(action, Create):
            return None
        if is_terminating_namespace(error):
            return None
        if error.reason == "Conflict":
            if isinstance(action, Delete):
                # The uid precondition failed: the object has been deleted already.
                return None
            raise Retry from None
        if isinstance(action, Create | Delete) and action.failed is not None:
            await self.note(action.failed, error=error.message)
        raise error

    async def bind(self, kind: Kind, pod: Object, node: str) -> bool:
        """Assign a pod to a node. Return False when it is gone or has a node already."""
        metadata = pod["metadata"]
        try:
            await self._client.bind(self.info(kind), metadata["namespace"], metadata["name"], node)
        except StatusError as error:
            if error.reason in ("NotFound", "Conflict"):
                return False
            raise
        return True

    async def note(self, note: Note, *, name: str = "", error: str = "") -> None:
        """Record an Event."""
        message = note.message.replace("{name}", name).replace("{error}", error)
        await self._recorder.record(note, message, note.component or self._component, self._manager)


def is_terminating_namespace(error: StatusError) -> bool:
    """Return whether a create was rejected because its namespace is terminating; a retry would not help."""
    causes = (error.details or {}).get("causes") or ()
    return error.reason == "Forbidden" and any(c.get("reason") == "NamespaceTerminating" for c in causes)
