"""The checks of the baseline level, in the words of kube-apiserver."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.admission.pod_security.pod import (
    SecuredPod,
    Violation,
    containers_named,
    plural,
    quoted,
)
from kapsa.schemas import go_format

__all__ = [
    "app_armor_profile",
    "capabilities",
    "host_namespaces",
    "host_path_volumes",
    "host_ports",
    "privileged",
    "probe_hosts",
    "proc_mount",
    "seccomp_profile",
    "selinux_options",
    "sysctls",
    "unmasked_proc_mount",
    "windows_host_process",
]

Object = dict[str, Any]

_APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
_SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
_PROFILES = ("RuntimeDefault", "Localhost")
_CAPABILITIES = frozenset(
    [
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    ]
)
_SYSCTLS = {
    "kernel.shm_rmid_forced": 0,
    "net.ipv4.ip_local_port_range": 0,
    "net.ipv4.tcp_syncookies": 0,
    "net.ipv4.ping_group_range": 0,
    "net.ipv4.ip_unprivileged_port_start": 0,
    "net.ipv4.ip_local_reserved_ports": 27,
    "net.ipv4.tcp_keepalive_time": 29,
    "net.ipv4.tcp_fin_timeout": 29,
    "net.ipv4.tcp_keepalive_intvl": 29,
    "net.ipv4.tcp_keepalive_probes": 29,
    "net.ipv4.tcp_rmem": 32,
    "net.ipv4.tcp_wmem": 32,
}
"""Safe sysctls, and the minor version that they are allowed from."""
_SELINUX_TYPES = {
    "": 0,
    "container_t": 0,
    "container_init_t": 0,
    "container_kvm_t": 0,
    "container_engine_t": 31,
}


def app_armor_profile(pod: SecuredPod, minor: int) -> Violation | None:
    values: set[str] = set()

    def violates(context: Object) -> bool:
        profile = context.get("appArmorProfile")
        if profile is None or profile.get("type") in _PROFILES:
            return False
        values.add(profile.get("type") or "")
        return True

    setters = pod.setters(violates)
    annotations = sorted(
        f"{key}={go_format.quote(value)}"
        for key, value in pod.annotations.items()
        if key.startswith(_APP_ARMOR) and not _is_allowed_annotation(value)
    )
    if annotations:
        setters.append(plural("annotation", annotations))
    if not setters:
        return None
    listed = [*sorted(values), *annotations]
    detail = f"{' and '.join(setters)} must not set AppArmor profile type to {quoted(listed)}"
    return Violation(plural("forbidden AppArmor profile", listed), detail)


def _is_allowed_annotation(value: str) -> bool:
    return value in ("", "runtime/default") or value.startswith("localhost/")


def capabilities(pod: SecuredPod, minor: int) -> Violation | None:
    added: set[str] = set()

    def violates(context: Object) -> bool:
        extra = set((context.get("capabilities") or {}).get("add") or ()) - _CAPABILITIES
        added.update(extra)
        return bool(extra)

    names = pod.names(violates)
    if not names:
        return None
    detail = f"{containers_named(names)} must not include {quoted(sorted(added))} in securityContext.capabilities.add"
    return Violation("non-default capabilities", detail)


def host_namespaces(pod: SecuredPod, minor: int) -> Violation | None:
    shared = [f"{field}=true" for field in ("hostNetwork", "hostPID", "hostIPC") if pod.spec.get(field)]
    return Violation("host namespaces", ", ".join(shared)) if shared else None


def host_path_volumes(pod: SecuredPod, minor: int) -> Violation | None:
    volumes = [v["name"] for v in pod.spec.get("volumes") or () if v.get("hostPath") is not None]
    return (
        Violation("hostPath volumes", f"{plural('volume', volumes)} {quoted(volumes)}") if volumes else None
    )


def host_ports(pod: SecuredPod, minor: int) -> Violation | None:
    names: list[str] = []
    ports: set[str] = set()
    for name, container, _ in pod.containers:
        used = {str(each["hostPort"]) for each in container.get("ports") or () if each.get("hostPort")}
        ports |= used
        if used:
            names.append(name)
    if not names:
        return None
    listed = sorted(ports)
    detail = f"{containers_named(names)} {_use(names)} {plural('hostPort', listed)} {', '.join(listed)}"
    return Violation("hostPort", detail)


def _use(names: list[str]) -> str:
    return "uses" if len(names) == 1 else "use"


def probe_hosts(pod: SecuredPod, minor: int) -> Violation | None:
    names: set[str] = set()
    hosts: set[str] = set()
    for name, container, _ in pod.containers:
        lifecycle = container.get("lifecycle") or {}
        handlers = [container.get(field) for field in ("livenessProbe", "readinessProbe", "startupProbe")]
        handlers += [lifecycle.get("postStart"), lifecycle.get("preStop")]
        actions = [
            handler.get(action) for handler in handlers if handler for action in ("httpGet", "tcpSocket")
        ]
        given = {str(action["host"]) for action in actions if action and action.get("host")}
        hosts |= given
        if given:
            names.add(name)
    if not names:
        return None
    listed, ordered = sorted(hosts), sorted(names)
    detail = f"{containers_named(ordered)} {_use(ordered)} {plural('probe or lifecycle host', listed)} {quoted(listed)}"
    return Violation("probe or lifecycle host", detail)


def privileged(pod: SecuredPod, minor: int) -> Violation | None:
    names = pod.names(lambda context: context.get("privileged") is True)
    if not names:
        return None
    return Violation("privileged", f"{containers_named(names)} must not set securityContext.privileged=true")


def proc_mount(pod: SecuredPod, minor: int) -> Violation | None:
    return None if minor >= 35 and pod.has_own_users else unmasked_proc_mount(pod)


def unmasked_proc_mount(pod: SecuredPod) -> Violation | None:
    """Return the violation by containers that do not use the default proc mount."""
    types: set[str] = set()

    def violates(context: Object) -> bool:
        given = context.get("procMount")
        if given in (None, "Default"):
            return False
        types.add(given)
        return True

    names = pod.names(violates)
    if not names:
        return None
    detail = f"{containers_named(names)} must not set securityContext.procMount to {quoted(sorted(types))}"
    return Violation("procMount", detail)


def selinux_options(pod: SecuredPod, minor: int) -> Violation | None:
    types: set[str] = set()
    fields: set[str] = set()

    def violates(context: Object) -> bool:
        options = context.get("seLinuxOptions")
        if options is None:
            return False
        is_typed = _SELINUX_TYPES.get(options.get("type") or "", minor + 1) > minor
        if is_typed:
            types.add(options["type"])
        named = [field for field in ("user", "role") if options.get(field)]
        fields.update(named)
        return is_typed or bool(named)

    setters = pod.setters(violates)
    if not setters:
        return None
    listed = sorted(types)
    data = [f"{plural('type', listed)} {quoted(listed)}"] if listed else []
    data += [f"{field} may not be set" for field in ("user", "role") if field in fields]
    detail = f"{' and '.join(setters)} set forbidden securityContext.seLinuxOptions: {'; '.join(data)}"
    return Violation("seLinuxOptions", detail)


def seccomp_profile(pod: SecuredPod, minor: int) -> Violation | None:
    if minor < 19:
        return _seccomp_annotations(pod)
    values: set[str] = set()

    def violates(context: Object) -> bool:
        profile = context.get("seccompProfile")
        if profile is None or profile.get("type") in _PROFILES:
            return False
        values.add(profile.get("type") or "")
        return True

    setters = pod.setters(violates)
    if not setters:
        return None
    detail = f"{' and '.join(setters)} must not set securityContext.seccompProfile.type to {quoted(sorted(values))}"
    return Violation("seccompProfile", detail)


def _seccomp_annotations(pod: SecuredPod) -> Violation | None:
    keys = [_SECCOMP_POD, *(f"{_SECCOMP_CONTAINER}{name}" for name, _, _ in pod.containers)]
    wrong = sorted(
        {
            f"{key}={go_format.quote(pod.annotations[key])}"
            for key in keys
            if key in pod.annotations and not _is_allowed_profile(pod.annotations[key])
        }
    )
    if not wrong:
        return None
    return Violation("seccompProfile", f"forbidden {plural('annotation', wrong)} {', '.join(wrong)}")


def _is_allowed_profile(value: str) -> bool:
    return value in ("runtime/default", "docker/default") or value.startswith("localhost/")


def sysctls(pod: SecuredPod, minor: int) -> Violation | None:
    names = [each.get("name", "") for each in pod.context.get("sysctls") or ()]
    unsafe = [name for name in names if _SYSCTLS.get(name, minor + 1) > minor]
    return Violation("forbidden sysctls", ", ".join(unsafe)) if unsafe else None


def windows_host_process(pod: SecuredPod, minor: int) -> Violation | None:
    setters = pod.setters(lambda context: (context.get("windowsOptions") or {}).get("hostProcess") is True)
    if not setters:
        return None
    detail = f"{' and '.join(setters)} must not set securityContext.windowsOptions.hostProcess=true"
    return Violation("hostProcess", detail)
