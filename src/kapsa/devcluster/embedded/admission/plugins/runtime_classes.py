"""RuntimeClass: the overhead and the scheduling of a pod, from its RuntimeClass."""

from __future__ import annotations

from kapsa.devcluster.embedded.admission.plugin import Object, Plugin, forbidden
from kapsa.devcluster.embedded.requests.mutations import WriteRequest
from kapsa.schemas.quantities import canonical

__all__ = ["RuntimeClasses"]

_DIFFERENT = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
_WITHOUT = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"


class RuntimeClasses(Plugin):
    """The RuntimeClass plugin of the real server."""

    resources = frozenset({("", "pods")})

    async def mutate(self, write: WriteRequest, obj: Object, old: Object | None) -> Object:
        if old is not None or write.subresource or not obj["spec"].get("runtimeClassName"):
            return obj
        runtime_class = self._class_of(write, obj)
        overhead = _overhead(runtime_class)
        if overhead is not None:
            given = obj["spec"].get("overhead")
            if given and _plain(given) != overhead:
                raise forbidden(write, obj, _DIFFERENT)
            obj["spec"]["overhead"] = overhead
        _schedule(write, obj, runtime_class.get("scheduling") or {})
        return obj

    async def validate(self, write: WriteRequest, obj: Object, old: Object | None) -> None:
        if old is not None or write.subresource:
            return
        given = obj["spec"].get("overhead")
        named = obj["spec"].get("runtimeClassName")
        overhead = _overhead(self._class_of(write, obj)) if named else None
        if overhead is None and given is not None:
            raise forbidden(write, obj, _WITHOUT)
        if overhead is not None and _plain(given or {}) != overhead:
            raise forbidden(write, obj, _DIFFERENT)

    def _class_of(self, write: WriteRequest, pod: Object) -> Object:
        name = pod["spec"]["runtimeClassName"]
        runtime_class = self._object("node.k8s.io", "runtimeclasses", name)
        if runtime_class is None:
            raise forbidden(write, pod, f'pod rejected: RuntimeClass "{name}" not found')
        return runtime_class


def _overhead(runtime_class: Object) -> Object | None:
    overhead = runtime_class.get("overhead")
    return None if overhead is None else _plain(overhead.get("podFixed") or {})


def _plain(amounts: Object) -> Object:
    return {name: canonical(amount) for name, amount in amounts.items()}


def _schedule(write: WriteRequest, pod: Object, scheduling: Object) -> None:
    selector = scheduling.get("nodeSelector") or {}
    given = pod["spec"].get("nodeSelector") or {}
    for key, value in selector.items():
        if key in given and given[key] != value:
            why = f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {given[key]}"
            raise forbidden(write, pod, why)
    if selector:
        pod["spec"]["nodeSelector"] = {**given, **selector}
    tolerations = pod["spec"].get("tolerations") or []
    added = [each for each in scheduling.get("tolerations") or () if each not in tolerations]
    if added:
        pod["spec"]["tolerations"] = [*tolerations, *added]
