"""The Pod Security Standards, baseline and restricted: violations in a pod spec, by field.

The API server enforces them for pods. A check of the manifests reports a violation at once, where otherwise a
Deployment would never get a pod.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from kapsa.adapters.manifests.pod_templates import containers

__all__ = ["Level", "pod_violations"]

Level = Literal["baseline", "restricted"]

_CAPABILITIES = {
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP", "SETGID",
    "SETPCAP", "SETUID", "SYS_CHROOT",
}  # fmt: skip
_SYSCTLS = {
    "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start", "net.ipv4.ping_group_range", "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_syncookies",
}  # fmt: skip
_SELINUX_TYPES = {"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}
_PLAIN_VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret",
}  # fmt: skip
_APPARMOR_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"


def pod_violations(
    spec: Mapping[str, Any], metadata: Mapping[str, Any], level: Level = "baseline"
) -> list[str]:
    """Return the violations of a pod, each with its field."""
    violations = [*_pod_baseline(spec, metadata)]
    for container in containers(spec):
        name = str(container.get("name", "?"))
        violations += [f"container {name}: {what}" for what in _container_baseline(container)]
    if level == "restricted":
        violations += _restricted(spec)
    return violations


def _pod_baseline(spec: Mapping[str, Any], metadata: Mapping[str, Any]) -> Iterator[str]:
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(field):
            yield f"{field} is true"
    for volume in _dicts(spec.get("volumes")):
        if "hostPath" in volume:
            yield f"volume {volume.get('name', '?')} is a hostPath"
    context = _dict(spec.get("securityContext"))
    yield from _context_baseline(context)
    for sysctl in _dicts(context.get("sysctls")):
        if str(sysctl.get("name")) not in _SYSCTLS:
            yield f"securityContext.sysctls sets {sysctl.get('name')}"
    for name, value in _dict(metadata.get("annotations")).items():
        allowed = value in ("", "runtime/default") or str(value).startswith("localhost/")
        if str(name).startswith(_APPARMOR_ANNOTATION) and not allowed:
            yield f"annotation {name} is {value}"


def _container_baseline(container: Mapping[str, Any]) -> Iterator[str]:
    context = _dict(container.get("securityContext"))
    yield from _context_baseline(context)
    if context.get("privileged"):
        yield "securityContext.privileged is true"
    added = _dict(context.get("capabilities")).get("add")
    for capability in added if isinstance(added, list) else ():
        if str(capability).upper().removeprefix("CAP_") not in _CAPABILITIES:
            yield f"securityContext.capabilities adds {capability}"
    if context.get("procMount") not in (None, "", "Default"):
        yield f"securityContext.procMount is {context['procMount']}"
    for port in _dicts(container.get("ports")):
        if port.get("hostPort"):
            yield f"hostPort {port['hostPort']} is set"
    for action in _actions(container):
        for handler in ("httpGet", "tcpSocket"):
            if _dict(_dict(action).get(handler)).get("host"):
                yield f"{handler}.host of a probe or lifecycle hook is set"


def _context_baseline(context: Mapping[str, Any]) -> Iterator[str]:
    if _dict(context.get("windowsOptions")).get("hostProcess"):
        yield "securityContext.windowsOptions.hostProcess is true"
    selinux = _dict(context.get("seLinuxOptions"))
    if str(selinux.get("type") or "") not in _SELINUX_TYPES or selinux.get("user") or selinux.get("role"):
        yield "securityContext.seLinuxOptions sets a user, a role or a custom type"
    if _dict(context.get("seccompProfile")).get("type") == "Unconfined":
        yield "securityContext.seccompProfile is Unconfined"
    if _dict(context.get("appArmorProfile")).get("type") == "Unconfined":
        yield "securityContext.appArmorProfile is Unconfined"


def _restricted(spec: Mapping[str, Any]) -> Iterator[str]:
    for volume in _dicts(spec.get("volumes")):
        for kind in volume.keys() - _PLAIN_VOLUMES - {"name", "hostPath"}:
            yield f"volume {volume.get('name', '?')} is a {kind}"
    pod = _dict(spec.get("securityContext"))
    for container in containers(spec):
        name = f"container {container.get('name', '?')}"
        context = {**pod, **_dict(container.get("securityContext"))}
        if context.get("allowPrivilegeEscalation") is not False:
            yield f"{name}: securityContext.allowPrivilegeEscalation is not false"
        if context.get("runAsNonRoot") is not True:
            yield f"{name}: securityContext.runAsNonRoot is not true"
        if context.get("runAsUser") == 0:
            yield f"{name}: securityContext.runAsUser is 0"
        if _dict(context.get("seccompProfile")).get("type") not in ("RuntimeDefault", "Localhost"):
            yield f"{name}: securityContext.seccompProfile is not RuntimeDefault"
        capabilities = _dict(context.get("capabilities"))
        dropped = capabilities.get("drop")
        if not isinstance(dropped, list) or "ALL" not in dropped:
            yield f"{name}: securityContext.capabilities does not drop ALL"
        added = capabilities.get("add")
        for capability in added if isinstance(added, list) else ():
            if capability != "NET_BIND_SERVICE":
                yield f"{name}: securityContext.capabilities adds {capability}"


def _actions(container: Mapping[str, Any]) -> Iterator[Any]:
    for field in ("livenessProbe", "readinessProbe", "startupProbe"):
        yield container.get(field)
    lifecycle = _dict(container.get("lifecycle"))
    yield lifecycle.get("postStart")
    yield lifecycle.get("preStop")


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
