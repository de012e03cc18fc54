"""Events: what happened to whom, with repeats counted instead of stored again."""

from __future__ import annotations

from collections import OrderedDict

from ..backend import Backend
from ..errors import ApiError
from ..verbs import Verbs
from .kinds import EVENT, Object
from .plan import Note
from .timestamps import render

_REMEMBERED = 4096
_MESSAGE_LIMIT = 1024


class Recorder:
    """Writes Events the way client-go's recorder does."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._known: OrderedDict[tuple[str, ...], tuple[str, str]] = OrderedDict()
        self._sequence = 0

    async def record(
        self, note: Note, message: str, component: str, manager: str = "kube-controller-manager"
    ) -> None:
        """Record a note; an Event that cannot be written is lost, as it is everywhere."""
        message = message[:_MESSAGE_LIMIT]
        metadata = note.about["metadata"]
        key = (component, note.type, note.reason, message, metadata["uid"])
        verbs = Verbs(self._backend, manager=manager)
        try:
            if not await self._count(verbs, key):
                await self._create(verbs, note, message, component, key)
        except ApiError:
            self._known.pop(key, None)

    async def _count(self, verbs: Verbs, key: tuple[str, ...]) -> bool:
        known = self._known.get(key)
        if known is None:
            return False
        info = verbs.resource(EVENT.group, EVENT.version, EVENT.resource)
        event = verbs.find(info, *known)
        if event is None:
            return False
        event["count"] = event.get("count", 1) + 1
        event["lastTimestamp"] = self._backend.now()
        await verbs.update(info, event)
        return True

    async def _create(
        self, verbs: Verbs, note: Note, message: str, component: str, key: tuple[str, ...]
    ) -> None:
        metadata = note.about["metadata"]
        namespace = metadata.get("namespace") or "default"
        now = self._backend.clock.now()
        self._sequence += 1
        name = f"{metadata['name']}.{int(now.timestamp()) * 10**9 + self._sequence:x}"
        stamp = render(now)
        event: Object = {
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {
                "kind": note.about["kind"],
                "apiVersion": note.about["apiVersion"],
                "name": metadata["name"],
                "uid": metadata["uid"],
                "resourceVersion": metadata.get("resourceVersion", ""),
            },
            "reason": note.reason,
            "message": message,
            "source": {"component": component},
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
            "type": note.type,
            "eventTime": None,
            "reportingComponent": component,
            "reportingInstance": "",
        }
        if metadata.get("namespace"):
            event["involvedObject"]["namespace"] = metadata["namespace"]
        await verbs.create(verbs.resource(EVENT.group, EVENT.version, EVENT.resource), event)
        self._known[key] = namespace, name
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
