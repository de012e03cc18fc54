"""The defaults of pod specs, in pods and in pod templates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kapsa.schemas.quantities import canonical

Object = dict[str, Any]

_FILE_MODE = 0o644
_SOURCES_WITH_MODE = ("secret", "configMap", "downwardAPI", "projected")


def default_pod_spec(spec: Object) -> None:
    """Set the defaults of a pod spec, in a pod or a template."""
    _set_default(spec, "dnsPolicy", "ClusterFirst")
    _set_default(spec, "restartPolicy", "Always")
    if spec.get("securityContext") is None:
        spec["securityContext"] = {}
    if spec.get("terminationGracePeriodSeconds") is None:
        spec["terminationGracePeriodSeconds"] = 30
    elif spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    _set_default(spec, "schedulerName", "default-scheduler")
    # The deprecated field always has the value of the new one.
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for container in containers(spec):
        _default_container(container)
    if spec.get("hostNetwork"):
        _default_host_ports(spec)
    for volume in spec.get("volumes") or ():
        _default_volume(volume)
    for constraint in spec.get("topologySpreadConstraints") or ():
        if constraint.get("labelSelector") is None:
            constraint.pop("labelSelector", None)
    normalize_resources(spec.get("resources") or {})
    for name, quantity in (spec.get("overhead") or {}).items():
        spec["overhead"][name] = canonical(quantity)


def containers(spec: Object) -> Iterator[Object]:
    """Iterate over the containers of all types."""
    for field in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(field) or ()


def default_pod(spec: Object) -> None:
    """Set the defaults that only pods have, not templates: requests from limits, service links."""
    for field in ("containers", "initContainers"):
        for container in spec.get(field) or ():
            resources = container.get("resources") or {}
            if resources.get("limits"):
                requests = resources.get("requests") or {}
                resources["requests"] = {**resources["limits"], **requests}
    if spec.get("enableServiceLinks") is None:
        spec["enableServiceLinks"] = True


def pull_policy(image: str) -> str:
    """Return the default pull policy: `Always` for the tag latest, explicit or implied."""
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    if not tag and not digest:
        tag = "latest"
    return "Always" if tag == "latest" else "IfNotPresent"


def _default_container(container: Object) -> None:
    _set_default(container, "imagePullPolicy", pull_policy(str(container.get("image") or "")))
    _set_default(container, "terminationMessagePath", "/dev/termination-log")
    _set_default(container, "terminationMessagePolicy", "File")
    if container.get("resources") is None:
        container["resources"] = {}
    normalize_resources(container["resources"])
    for port in container.get("ports") or ():
        _set_default(port, "protocol", "TCP")
    for field in ("livenessProbe", "readinessProbe", "startupProbe"):
        if container.get(field):
            _default_probe(container[field])
    for hook in (container.get("lifecycle") or {}).values():
        if isinstance(hook, dict):
            _default_handler(hook)
    for variable in container.get("env") or ():
        source = (variable.get("valueFrom") or {}).get("fieldRef")
        if source is not None:
            _set_default(source, "apiVersion", "v1")
        divided = (variable.get("valueFrom") or {}).get("resourceFieldRef")
        if divided is not None:
            divided["divisor"] = canonical(divided.get("divisor") or "0")


def normalize_resources(resources: Object) -> None:
    """Rewrite quantities in their canonical form."""
    for field in ("limits", "requests"):
        amounts = resources.get(field) or {}
        for name in amounts:
            amounts[name] = canonical(amounts[name])


def _default_probe(probe: Object) -> None:
    for field, value in (
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ):
        if not probe.get(field):
            probe[field] = value
    _default_handler(probe)
    if probe.get("grpc") and probe["grpc"].get("service") is None:
        probe["grpc"]["service"] = ""


def _default_handler(handler: Object) -> None:
    request = handler.get("httpGet")
    if request is not None:
        _set_default(request, "path", "/")
        _set_default(request, "scheme", "HTTP")


def _default_host_ports(spec: Object) -> None:
    for field in ("containers", "initContainers"):
        for container in spec.get(field) or ():
            for port in container.get("ports") or ():
                if not port.get("hostPort"):
                    port["hostPort"] = port.get("containerPort")


def _default_volume(volume: Object) -> None:
    if not any(value is not None for key, value in volume.items() if key != "name"):
        volume["emptyDir"] = {}
    for source in _SOURCES_WITH_MODE:
        if volume.get(source) is not None and volume[source].get("defaultMode") is None:
            volume[source]["defaultMode"] = _FILE_MODE
    if volume.get("hostPath") is not None and volume["hostPath"].get("type") is None:
        volume["hostPath"]["type"] = ""
    items = list((volume.get("downwardAPI") or {}).get("items") or ())
    for projection in (volume.get("projected") or {}).get("sources") or ():
        token = projection.get("serviceAccountToken")
        if token is not None and token.get("expirationSeconds") is None:
            token["expirationSeconds"] = 3600
        items += (projection.get("downwardAPI") or {}).get("items") or ()
    for item in items:
        if item.get("fieldRef") is not None:
            _set_default(item["fieldRef"], "apiVersion", "v1")
    if volume.get("iscsi") is not None:
        _set_default(volume["iscsi"], "iscsiInterface", "default")
    if volume.get("emptyDir") and volume["emptyDir"].get("sizeLimit") is not None:
        volume["emptyDir"]["sizeLimit"] = canonical(volume["emptyDir"]["sizeLimit"])
    template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
    if template is not None:
        _set_default(template.setdefault("spec", {}), "volumeMode", "Filesystem")
    image = volume.get("image")
    if image is not None:
        _set_default(image, "pullPolicy", pull_policy(str(image.get("reference") or "")))


def _set_default(target: Object, field: str, value: Any) -> None:
    if not target.get(field):
        target[field] = value
