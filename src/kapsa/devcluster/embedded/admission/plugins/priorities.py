"""Priority: the priority and preemption policy of a pod, from its PriorityClass."""

from __future__ import annotations

from kapsa.devcluster.embedded.admission.plugin import Object, Plugin, forbidden
from kapsa.devcluster.embedded.requests.mutations import WriteRequest

__all__ = ["Priorities"]

_PODS, _CLASSES = ("", "pods"), ("scheduling.k8s.io", "priorityclasses")
_PREEMPT = "PreemptLowerPriority"
_SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""The classes that each cluster has, also one that has not stored them yet."""


class Priorities(Plugin):
    """The Priority plugin of the real server."""

    resources = frozenset({_PODS, _CLASSES})

    async def mutate(self, write: WriteRequest, obj: Object, old: Object | None) -> Object:
        if write.subresource or write.info.resource != "pods":
            return obj
        if old is not None:
            for field in ("priority", "preemptionPolicy"):
                if obj["spec"].get(field) is None and old["spec"].get(field) is not None:
                    obj["spec"][field] = old["spec"][field]
            return obj
        self._prioritize(write, obj)
        return obj

    async def validate(self, write: WriteRequest, obj: Object, old: Object | None) -> None:
        if write.subresource or write.info.resource != "priorityclasses" or not obj.get("globalDefault"):
            return
        default = self._default_class()
        if default is not None and (old is None or default["metadata"]["name"] != write.name):
            name = default["metadata"]["name"]
            why = f"PriorityClass {name} is already marked as default. Only one default can exist"
            raise forbidden(write, obj, why)

    def _prioritize(self, write: WriteRequest, pod: Object) -> None:
        spec = pod["spec"]
        chosen = self._class_of(write, pod)
        priority, policy = chosen.get("value", 0), chosen.get("preemptionPolicy", _PREEMPT)
        if spec.get("priority") is not None and spec["priority"] != priority:
            given = spec["priority"]
            why = f"the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {priority} from the given PriorityClass name"
            raise forbidden(write, pod, why)
        if spec.get("preemptionPolicy") is not None and spec["preemptionPolicy"] != policy:
            given = spec["preemptionPolicy"]
            why = f"the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
            raise forbidden(write, pod, why)
        name = (chosen.get("metadata") or {}).get("name")
        if name:
            spec["priorityClassName"] = name
        spec["priority"], spec["preemptionPolicy"] = priority, policy

    def _class_of(self, write: WriteRequest, pod: Object) -> Object:
        """Return the class of a pod: the one it names, or the default; an empty one if there is none."""
        name = pod["spec"].get("priorityClassName")
        if not name:
            return self._default_class() or {}
        chosen = self._object(*_CLASSES, name)
        if chosen is not None:
            return chosen
        if name in _SYSTEM_CLASSES:
            return {"metadata": {"name": name}, "value": _SYSTEM_CLASSES[name]}
        raise forbidden(write, pod, f"no PriorityClass with name {name} was found")

    def _default_class(self) -> Object | None:
        defaults = [each for each in self._objects(*_CLASSES) if each.get("globalDefault")]
        return min(defaults, key=lambda each: int(each["value"]), default=None)
