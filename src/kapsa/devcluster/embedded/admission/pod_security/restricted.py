"""The checks that the restricted level adds, in the words of kube-apiserver."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.admission.pod_security import baseline
from kapsa.devcluster.embedded.admission.pod_security.pod import (
    SecuredPod,
    Violation,
    containers_named,
    plural,
    quoted,
)

__all__ = [
    "capabilities",
    "privilege_escalation",
    "proc_mount",
    "run_as_non_root",
    "run_as_user",
    "seccomp_profile",
    "volumes",
]

Object = dict[str, Any]

_VOLUMES = frozenset(
    [
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    ]
)
_WINDOWS_EXEMPT = 25
"""The minor version from which pods for Windows are exempt from what Windows does not have."""


def privilege_escalation(pod: SecuredPod, minor: int) -> Violation | None:
    if minor >= _WINDOWS_EXEMPT and pod.is_windows:
        return None
    names = pod.names(lambda context: context.get("allowPrivilegeEscalation") is not False)
    if not names:
        return None
    detail = f"{containers_named(names)} must set securityContext.allowPrivilegeEscalation=false"
    return Violation("allowPrivilegeEscalation != false", detail)


def capabilities(pod: SecuredPod, minor: int) -> Violation | None:
    if minor >= _WINDOWS_EXEMPT and pod.is_windows:
        return None
    added: set[str] = set()

    def adds(context: Object) -> bool:
        extra = set((context.get("capabilities") or {}).get("add") or ()) - {"NET_BIND_SERVICE"}
        added.update(extra)
        return bool(extra)

    keeping = pod.names(lambda context: "ALL" not in ((context.get("capabilities") or {}).get("drop") or ()))
    adding = pod.names(adds)
    details = []
    if keeping:
        details.append(f'{containers_named(keeping)} must set securityContext.capabilities.drop=["ALL"]')
    if adding:
        what = quoted(sorted(added))
        details.append(
            f"{containers_named(adding)} must not include {what} in securityContext.capabilities.add"
        )
    return Violation("unrestricted capabilities", "; ".join(details)) if details else None


def proc_mount(pod: SecuredPod, minor: int) -> Violation | None:
    return baseline.unmasked_proc_mount(pod)


def volumes(pod: SecuredPod, minor: int) -> Violation | None:
    names: list[str] = []
    types: set[str] = set()
    for volume in pod.spec.get("volumes") or ():
        sources = [field for field, value in volume.items() if field != "name" and value is not None]
        if any(source in _VOLUMES for source in sources):
            continue
        names.append(volume["name"])
        types.add(sources[0] if sources else "unknown")
    if not names:
        return None
    listed = sorted(types)
    use = "uses" if len(names) == 1 else "use"
    detail = f"{plural('volume', names)} {quoted(names)} {use} {plural('restricted volume type', listed)} {quoted(listed)}"
    return Violation("restricted volume types", detail)


def run_as_non_root(pod: SecuredPod, minor: int) -> Violation | None:
    if minor >= 35 and pod.has_own_users:
        return None
    setters = pod.setters(lambda context: context.get("runAsNonRoot") is False)
    if setters:
        detail = f"{' and '.join(setters)} must not set securityContext.runAsNonRoot=false"
        return Violation("runAsNonRoot != true", detail)
    if pod.context.get("runAsNonRoot"):
        return None
    names = pod.names(lambda context: context.get("runAsNonRoot") is None)
    if not names:
        return None
    detail = f"pod or {containers_named(names)} must set securityContext.runAsNonRoot=true"
    return Violation("runAsNonRoot != true", detail)


def run_as_user(pod: SecuredPod, minor: int) -> Violation | None:
    if minor >= 35 and pod.has_own_users:
        return None
    setters = pod.setters(lambda context: context.get("runAsUser") == 0)
    return Violation("runAsUser=0", f"{' and '.join(setters)} must not set runAsUser=0") if setters else None


def seccomp_profile(pod: SecuredPod, minor: int) -> Violation | None:
    if minor >= _WINDOWS_EXEMPT and pod.is_windows:
        return None
    explicit = baseline.seccomp_profile(pod, minor)
    if explicit is not None or pod.context.get("seccompProfile") is not None:
        return explicit
    names = pod.names(lambda context: context.get("seccompProfile") is None)
    if not names:
        return None
    detail = f'pod or {containers_named(names)} must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
    return Violation("seccompProfile", detail)
