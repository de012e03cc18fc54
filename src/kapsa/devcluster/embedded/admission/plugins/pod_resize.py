"""PodResizeValidator and NodeDeclaredFeatureValidator: an update of a scheduled pod that its node cannot carry out."""

from __future__ import annotations

from math import ceil

from kapsa.devcluster.embedded.admission.plugin import Object, Plugin, forbidden
from kapsa.devcluster.embedded.admission.pod_amounts import pod_amounts
from kapsa.devcluster.embedded.requests.mutations import WriteRequest
from kapsa.schemas.quantities import parse

__all__ = ["NodeDeclaredFeatureValidator", "PodResizeValidator"]

_SYSTEM = "kubernetes.io/os"
_POD_LEVEL = "InPlacePodLevelResourcesVerticalScaling"
_INIT_CONTAINERS = "InPlacePodVerticalScalingInitContainers"


class _ScheduledPodPlugin(Plugin):
    """The base of plugins that compare an update of a pod with the pod's node."""

    resources = frozenset({("", "pods")})
    subresources: tuple[str, ...] = ()

    async def validate(self, write: WriteRequest, obj: Object, old: Object | None) -> None:
        if old is None or write.subresource not in self.subresources or not obj["spec"].get("nodeName"):
            return
        if obj["metadata"].get("generation") != old["metadata"].get("generation"):
            self._check(write, obj, old)

    def _check(self, write: WriteRequest, obj: Object, old: Object) -> None:
        raise NotImplementedError

    def _node(self, write: WriteRequest, pod: Object) -> Object:
        name = pod["spec"]["nodeName"]
        node = self._object("", "nodes", name)
        if node is None:
            raise forbidden(write, pod, f'node "{name}" not found')
        return node


class NodeDeclaredFeatureValidator(_ScheduledPodPlugin):
    """Plugin that rejects an update which needs a feature that the node does not declare."""

    subresources = ("", "resize")

    def _check(self, write: WriteRequest, obj: Object, old: Object) -> None:
        needed = [name for name, is_needed in _FEATURES if is_needed(obj["spec"], old["spec"])]
        if not needed:
            return
        node = self._node(write, obj)
        missing = [
            name for name in needed if name not in ((node.get("status") or {}).get("declaredFeatures") or ())
        ]
        if missing:
            where = f'which are not available on node "{node["metadata"]["name"]}"'
            raise forbidden(write, obj, f"pod update requires features {', '.join(missing)} {where}")


class PodResizeValidator(_ScheduledPodPlugin):
    """Plugin that rejects a resize to more than the whole node has."""

    subresources = ("resize",)

    def _check(self, write: WriteRequest, obj: Object, old: Object) -> None:
        node = self._node(write, obj)
        system = (node["metadata"].get("labels") or {}).get(_SYSTEM, "linux")
        name = node["metadata"]["name"]
        if system != "linux":
            why = f'pod resize is only supported on linux nodes, node "{name}" is "{system}"'
            _reject(write, obj, why, "UnsupportedPlatform")
        problems = _beyond(obj, (node.get("status") or {}).get("allocatable") or {})
        if problems:
            why = f"node didn't have enough allocatable resources: {'; '.join(problems)}"
            _reject(write, obj, why, "NodeCapacity")


def _beyond(pod: Object, allocatable: Object) -> list[str]:
    """Return the requests of a pod that exceed what a node offers."""
    requests = pod_amounts(pod["spec"], "requests", overhead=True)
    problems = []
    for name, scale in (("cpu", 1000), ("memory", 1)):
        requested, offered = parse(requests.get(name) or "0"), parse(allocatable.get(name) or "0")
        if requested > offered:
            amounts = f"requested: {ceil(requested * scale)}, allocatable: {ceil(offered * scale)}"
            problems.append(f"{name}, {amounts}")
    return problems


def _reject(write: WriteRequest, pod: Object, why: str, cause: str) -> None:
    error = forbidden(write, pod, why)
    error.details = {**(error.details or {}), "causes": [{"reason": cause}]}
    raise error


def _changes_pod_level(spec: Object, old: Object) -> bool:
    return (spec.get("resources") or {}) != (old.get("resources") or {})


def _changes_init_container(spec: Object, old: Object) -> bool:
    before, after = old.get("initContainers") or (), spec.get("initContainers") or ()
    return any(
        was.get("restartPolicy") != "Always" and (was.get("resources") or {}) != (now.get("resources") or {})
        for was, now in zip(before, after, strict=False)
    )


_FEATURES = ((_POD_LEVEL, _changes_pod_level), (_INIT_CONTAINERS, _changes_init_container))
