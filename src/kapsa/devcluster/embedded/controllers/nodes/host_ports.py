"""Host ports: a pod does not fit a node where another pod has one of its ports."""

from __future__ import annotations

from collections.abc import Iterator

from kapsa.devcluster.embedded.controllers.machinery.kinds import Object
from kapsa.devcluster.embedded.controllers.machinery.pod_state import is_finished
from kapsa.devcluster.embedded.controllers.nodes.filters import ClusterState, Misfit, NodeFilter

_TAKEN = Misfit("node(s) didn't have free ports for the requested pod ports", preemptible=True)
_ANY = "0.0.0.0"  # noqa: S104  it is compared, nothing listens on it
HostPort = tuple[str, int, str]


def port_filter(pod: Object, state: ClusterState) -> NodeFilter | None:
    """Return the filter of a pod with host ports, or None."""
    requested = list(_host_ports(pod["spec"]))
    if not requested:
        return None

    def check(node: Object) -> Misfit | None:
        others = (each for each in state.pods_on(node["metadata"]["name"]) if not is_finished(each))
        taken = [port for other in others for port in _host_ports(other["spec"])]
        return _TAKEN if any(_collide(one, other) for one in requested for other in taken) else None

    return check


def _host_ports(spec: Object) -> Iterator[HostPort]:
    sidecars = (c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always")
    for container in (*spec["containers"], *sidecars):
        for port in container.get("ports") or ():
            if port.get("hostPort"):
                yield port.get("protocol") or "TCP", port["hostPort"], port.get("hostIP") or _ANY


def _collide(one: HostPort, other: HostPort) -> bool:
    return one[:2] == other[:2] and (one[2] == other[2] or _ANY in (one[2], other[2]))
