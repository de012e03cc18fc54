"""The plan of a Service's Endpoints and EndpointSlices: the pods that serve it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kapsa.devcluster.embedded.controllers.machinery.kinds import ENDPOINT_SLICE, ENDPOINTS, SERVICE, Object
from kapsa.devcluster.embedded.controllers.machinery.ownership import controller_reference, is_deleting
from kapsa.devcluster.embedded.controllers.machinery.plan import Create, Delete, Update, WritePlan
from kapsa.devcluster.embedded.controllers.machinery.pod_state import is_finished, is_ready
from kapsa.devcluster.embedded.controllers.machinery.timestamps import render
from kapsa.devcluster.embedded.kinds.labels import matches_map

SERVICE_LABEL = "kubernetes.io/service-name"
MANAGED_LABEL = "endpointslice.kubernetes.io/managed-by"
MANAGER = "endpointslice-controller.k8s.io"
_HEADLESS = "service.kubernetes.io/headless"
_TRIGGER = "endpoints.kubernetes.io/last-change-trigger-time"
_PER_SLICE = 100


def plan(
    service: Object, pods: list[Object], endpoints: Object | None, slices: list[Object], now: datetime
) -> WritePlan:
    """Plan the writes that bring Endpoints and EndpointSlices up to date with the pods a Service selects."""
    plan = WritePlan()
    selector = service["spec"].get("selector")
    if not selector or service["spec"].get("type") == "ExternalName" or is_deleting(service):
        return plan
    members = [pod for pod in pods if _belongs(pod, selector)]
    members.sort(key=lambda pod: (pod["status"]["podIP"], pod["metadata"]["name"]))
    trigger = {_TRIGGER: render(now)}
    _plan_endpoints(plan, service, members, endpoints, trigger)
    _plan_slices(plan, service, members, slices, trigger)
    return plan


def plan_removal(endpoints: Object) -> WritePlan:
    """Plan the removal of the Endpoints of a deleted Service."""
    plan = WritePlan()
    plan.do(Delete(ENDPOINTS, endpoints))
    return plan


def _belongs(pod: Object, selector: dict[str, str]) -> bool:
    if is_finished(pod) or not (pod.get("status") or {}).get("podIP"):
        return False
    return matches_map(selector, pod["metadata"].get("labels") or {})


def resolve_port(port: Object, pod: Object) -> int | None:
    """Return the port number in a pod for a Service's port; None if the pod has no port of that name."""
    target = port.get("targetPort", port["port"])
    if isinstance(target, int):
        return target
    for container in pod["spec"].get("containers") or ():
        for candidate in container.get("ports") or ():
            same_protocol = candidate.get("protocol", "TCP") == port.get("protocol", "TCP")
            if candidate.get("name") == target and same_protocol:
                return int(candidate["containerPort"])
    return None


def _ports(service: Object, pod: Object) -> tuple[tuple[str, int, str, str], ...] | None:
    resolved = []
    for port in service["spec"].get("ports") or ():
        number = resolve_port(port, pod)
        if number is not None:
            resolved.append(
                (port.get("name") or "", number, port.get("protocol", "TCP"), port.get("appProtocol") or "")
            )
    if not resolved and service["spec"].get("ports"):
        return None
    return tuple(resolved)


def _groups(service: Object, pods: list[Object]) -> dict[tuple[tuple[str, int, str, str], ...], list[Object]]:
    groups: dict[tuple[tuple[str, int, str, str], ...], list[Object]] = {}
    for pod in pods:
        ports = _ports(service, pod)
        if ports is not None:
            groups.setdefault(ports, []).append(pod)
    return groups


def _target(pod: Object) -> dict[str, Any]:
    metadata = pod["metadata"]
    return {
        "kind": "Pod",
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


def _labels(service: Object) -> dict[str, str]:
    labels = dict(service["metadata"].get("labels") or {})
    if service["spec"].get("clusterIP") == "None":
        labels[_HEADLESS] = ""
    return labels


# -- Endpoints ------------------------------------------------------------------------------------------------


def _plan_endpoints(
    plan: WritePlan, service: Object, pods: list[Object], current: Object | None, trigger: dict[str, str]
) -> None:
    subsets = []
    publish = service["spec"].get("publishNotReadyAddresses")
    live = [pod for pod in pods if publish or not is_deleting(pod)]
    for ports, members in _groups(service, live).items():
        subset: dict[str, Any] = {}
        for field, chosen in (
            ("addresses", [p for p in members if publish or is_ready(p)]),
            ("notReadyAddresses", [p for p in members if not publish and not is_ready(p)]),
        ):
            if chosen:
                subset[field] = [_address(pod) for pod in chosen]
        if ports:
            subset["ports"] = [_port(*port, with_empty_name=False) for port in ports]
        subsets.append(subset)
    labels = {**_labels(service), "endpoints.kubernetes.io/managed-by": "endpoint-controller"}
    metadata = {
        "name": service["metadata"]["name"],
        "namespace": service["metadata"]["namespace"],
        "labels": labels,
        "annotations": trigger,
    }
    desired: Object = {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata}
    if subsets:
        desired["subsets"] = subsets
    if current is None:
        plan.do(Create(ENDPOINTS, desired, exists_ok=True))
    elif (current.get("subsets") or []) != subsets or current["metadata"].get("labels") != labels:
        changed = {**current["metadata"], "labels": labels, "annotations": trigger}
        plan.do(Update(ENDPOINTS, {**desired, "metadata": changed}))


def _address(pod: Object) -> dict[str, Any]:
    address: dict[str, Any] = {"ip": pod["status"]["podIP"]}
    if pod["spec"].get("hostname") and pod["spec"].get("subdomain"):
        address["hostname"] = pod["spec"]["hostname"]
    if pod["spec"].get("nodeName"):
        address["nodeName"] = pod["spec"]["nodeName"]
    address["targetRef"] = _target(pod)
    return address


def _port(name: str, number: int, protocol: str, app: str, *, with_empty_name: bool) -> dict[str, Any]:
    port: dict[str, Any] = {"name": name} if name or with_empty_name else {}
    port.update(port=number, protocol=protocol)
    if app:
        port["appProtocol"] = app
    return port


# -- EndpointSlices -------------------------------------------------------------------------------------------


def _plan_slices(
    plan: WritePlan, service: Object, pods: list[Object], current: list[Object], trigger: dict[str, str]
) -> None:
    left = sorted(current, key=lambda s: s["metadata"]["name"])
    for content in _desired_slices(service, pods):
        same_ports = next((s for s in left if s.get("ports") == content.get("ports")), None)
        chosen = same_ports or next(iter(left), None)
        if chosen is None:
            plan.do(Create(ENDPOINT_SLICE, _new_slice(service, content, trigger)))
            continue
        left.remove(chosen)
        before = {key: chosen.get(key) or [] for key in ("endpoints", "ports")}
        after = {key: content.get(key) or [] for key in ("endpoints", "ports")}
        labels = _slice_labels(service)
        if before != after or chosen["metadata"].get("labels") != labels:
            metadata = {**chosen["metadata"], "labels": labels, "annotations": trigger}
            plan.do(Update(ENDPOINT_SLICE, {**chosen, **content, "metadata": metadata}))
    for surplus in left:
        plan.do(Delete(ENDPOINT_SLICE, surplus))


def _desired_slices(service: Object, pods: list[Object]) -> list[Object]:
    contents: list[Object] = []
    for ports, members in _groups(service, pods).items():
        for start in range(0, len(members), _PER_SLICE):
            chunk = members[start : start + _PER_SLICE]
            content: Object = {"addressType": "IPv4", "endpoints": [_endpoint(service, pod) for pod in chunk]}
            content["ports"] = [_port(*port, with_empty_name=True) for port in ports] or None
            contents.append(content)
    # A Service without pods has one empty slice: readers can see that it was processed.
    return contents or [{"addressType": "IPv4", "endpoints": None, "ports": None}]


def _endpoint(service: Object, pod: Object) -> dict[str, Any]:
    serving, terminating = is_ready(pod), is_deleting(pod)
    publish = bool(service["spec"].get("publishNotReadyAddresses"))
    endpoint: dict[str, Any] = {
        "addresses": [pod["status"]["podIP"]],
        "conditions": {
            "ready": publish or (serving and not terminating),
            "serving": serving,
            "terminating": terminating,
        },
        "targetRef": _target(pod),
    }
    if pod["spec"].get("hostname") and pod["spec"].get("subdomain") == service["metadata"]["name"]:
        endpoint["hostname"] = pod["spec"]["hostname"]
    if pod["spec"].get("nodeName"):
        endpoint["nodeName"] = pod["spec"]["nodeName"]
    return endpoint


def _slice_labels(service: Object) -> dict[str, str]:
    return {**_labels(service), SERVICE_LABEL: service["metadata"]["name"], MANAGED_LABEL: MANAGER}


def _new_slice(service: Object, content: Object, trigger: dict[str, str]) -> Object:
    metadata = {
        "generateName": service["metadata"]["name"] + "-",
        "namespace": service["metadata"]["namespace"],
        "labels": _slice_labels(service),
        "annotations": trigger,
        "ownerReferences": [controller_reference(SERVICE, service)],
    }
    return {
        "apiVersion": ENDPOINT_SLICE.api_version,
        "kind": ENDPOINT_SLICE.kind,
        "metadata": metadata,
        **content,
    }
