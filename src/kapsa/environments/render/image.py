"""The objects of a project that is a single image: a Deployment, a Service and, if enabled, an autoscaler."""

from __future__ import annotations

from typing import Any

import msgspec

from kapsa.adapters.errors import RenderFailed
from kapsa.adapters.manifests.manifest import Manifest
from kapsa.environments.render.inputs import Injected
from kapsa.environments.resources import Autoscaling, Port, Probe

__all__ = ["image_objects"]

_DEFAULT_PORT = Port(container_port=8080)
_USUAL_CPU_TARGET = 80
_RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def image_objects(injected: Injected) -> list[Manifest]:
    """Return the objects of one image, named after its release.

    Raises `RenderFailed` when there is no image to run.
    """
    if injected.image is None:
        raise RenderFailed(
            "there is no image to run", hint="Set registry.imageRepository of the Project", reason="NoImage"
        )
    ports = injected.runtime.ports or (_DEFAULT_PORT,)
    objects = [_deployment(injected, ports), _service(injected, ports)]
    if injected.runtime.autoscaling.enabled:
        objects.append(_autoscaler(injected, injected.runtime.autoscaling))
    return objects


def _deployment(injected: Injected, ports: tuple[Port, ...]) -> Manifest:
    runtime = injected.runtime
    selector = {"app.kubernetes.io/instance": injected.release}
    spec: dict[str, Any] = {
        "selector": {"matchLabels": selector},
        "template": {
            "metadata": {"labels": {**injected.labels, **selector}},
            "spec": _pod_spec(injected, ports),
        },
    }
    if not runtime.autoscaling.enabled:
        spec["replicas"] = runtime.replicas  # otherwise the autoscaler sets the number
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(injected, injected.release),
        "spec": spec,
    }


def _pod_spec(injected: Injected, ports: tuple[Port, ...]) -> dict[str, Any]:
    assert injected.image is not None
    container: dict[str, Any] = {
        "name": "app",
        "image": injected.image.pinned,
        "ports": [
            {"name": port.name, "containerPort": port.container_port, "protocol": port.protocol}
            for port in ports
        ],
        "securityContext": _RESTRICTED if injected.restricted else {"allowPrivilegeEscalation": False},
    }
    if injected.variables:
        container["env"] = [{"name": each.name, "value": each.value} for each in injected.variables]
    if injected.env_from:
        container["envFrom"] = [dict(each) for each in injected.env_from]
    if injected.runtime.resources is not None and (resources := _plain(injected.runtime.resources)):
        container["resources"] = resources
    probes = injected.runtime.probes
    for name, probe in (
        ("readiness", probes.readiness),
        ("liveness", probes.liveness),
        ("startup", probes.startup),
    ):
        if probe is not None:
            container[f"{name}Probe"] = _probe(probe, ports[0])
    return {"automountServiceAccountToken": False, "containers": [container]}


def _probe(probe: Probe, port: Port) -> dict[str, Any]:
    return {
        "httpGet": {"path": probe.path, "port": probe.port if probe.port is not None else port.name},
        "initialDelaySeconds": probe.initial_delay_seconds,
        "periodSeconds": probe.period_seconds,
        "timeoutSeconds": probe.timeout_seconds,
        "failureThreshold": probe.failure_threshold,
    }


def _service(injected: Injected, ports: tuple[Port, ...]) -> Manifest:
    service = injected.service
    name = (service.name if service is not None else "") or injected.release
    listed = [
        {"name": port.name, "port": port.service_port, "targetPort": port.name, "protocol": port.protocol}
        for port in ports
    ]
    if service is not None and service.port is not None:
        listed[0]["port"] = service.port
    used: set[tuple[Any, Any]] = set()
    for entry in listed:
        if (entry["port"], entry["protocol"]) in used:
            raise RenderFailed(
                f"two ports of the application use the service port {entry['port']}",
                hint="Set runtime.ports[].servicePort of the Environment",
                reason="PortTakenTwice",
            )
        used.add((entry["port"], entry["protocol"]))
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(injected, name),
        "spec": {"selector": {"app.kubernetes.io/instance": injected.release}, "ports": listed},
    }


def _autoscaler(injected: Injected, scaling: Autoscaling) -> Manifest:
    targets = {"cpu": scaling.target_cpu_utilization, "memory": scaling.target_memory_utilization}
    if not any(targets.values()):
        targets["cpu"] = _USUAL_CPU_TARGET
    metrics = [
        {
            "type": "Resource",
            "resource": {"name": name, "target": {"type": "Utilization", "averageUtilization": target}},
        }
        for name, target in targets.items()
        if target
    ]
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": _metadata(injected, injected.release),
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": injected.release},
            "minReplicas": scaling.min_replicas,
            "maxReplicas": scaling.max_replicas,
            "metrics": metrics,
        },
    }


def _metadata(injected: Injected, name: str) -> dict[str, Any]:
    labels = {**injected.labels, "app.kubernetes.io/instance": injected.release}
    return {"name": name, "namespace": injected.namespace, "labels": labels}


def _plain(part: Any) -> dict[str, Any]:
    """Return a part of a resource as a manifest has it, without empty fields."""
    built: dict[str, Any] = msgspec.to_builtins(part, enc_hook=lambda value: value.to_wire())
    return {key: value for key, value in built.items() if value}
