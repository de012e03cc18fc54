"""Validation of security contexts, of pods and of containers."""

from __future__ import annotations

import re
from typing import Any

from kapsa.devcluster.embedded.strategies.generic.checks import (
    between,
    each,
    fields,
    filled,
    given,
    one_of,
    relative_path,
)
from kapsa.schemas.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
)
from kapsa.schemas.go_format import GoStruct

__all__ = ["validate_pod_security", "validate_security_context"]

Object = dict[str, Any]

_PROFILES = ("Localhost", "RuntimeDefault", "Unconfined")
_LONGEST_PROFILE = 4095
_LONGEST_SYSCTL = 253
_SYSCTL = r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
_is_sysctl = re.compile(_SYSCTL).match
_IPC_SYSCTLS = ("kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.")
_ID = between(0)


def _seccomp(profile: Object, path: str) -> list[FieldError]:
    kind, local = profile.get("type") or "", profile.get("localhostProfile")
    errors: list[FieldError] = []
    if not kind:
        errors.append(required(f"{path}.type", "type is required when seccompProfile is set"))
    elif kind not in _PROFILES:
        errors.append(not_supported(f"{path}.type", kind, _PROFILES))
    where = f"{path}.localhostProfile"
    if kind == "Localhost":
        if local is None:
            return [*errors, required(where, "must be set when seccomp type is Localhost")]
        return errors + relative_path(local, where)
    if local is not None:
        shown = GoStruct(Type=kind, LocalhostProfile=local)
        errors.append(invalid(where, shown, "can only be set when seccomp type is Localhost"))
    return errors


def _app_armor(profile: Object, path: str) -> list[FieldError]:
    kind, local = profile.get("type") or "", profile.get("localhostProfile")
    where = f"{path}.localhostProfile"
    if not kind:
        return [required(f"{path}.type", "type is required when appArmorProfile is set")]
    if kind not in _PROFILES:
        return [not_supported(f"{path}.type", kind, _PROFILES)]
    if kind != "Localhost":
        detail = "can only be set when AppArmor type is Localhost"
        return [] if local is None else [invalid(where, local, detail)]
    errors: list[FieldError] = []
    if local is None or local == "":
        errors.append(required(where, "must be set when AppArmor type is Localhost"))
    elif local != local.strip():
        errors.append(invalid(where, local, "must not be padded with whitespace"))
    return errors + ([too_long(where, _LONGEST_PROFILE)] if len(local or "") > _LONGEST_PROFILE else [])


_PROCESS = fields(
    runAsUser=given(_ID),
    runAsGroup=given(_ID),
    procMount=given(one_of("Default", "Unmasked")),
    seccompProfile=given(_seccomp),
    appArmorProfile=given(_app_armor),
)


def validate_security_context(context: Object | None, path: str, *, host_users: bool) -> list[FieldError]:
    """Return the errors in the security context of a container."""
    if context is None:
        return []
    errors = _PROCESS(context, path)
    if host_users and context.get("procMount") == "Unmasked":
        detail = "`hostUsers` must be false to use `Unmasked`"
        errors.append(invalid(f"{path}.procMount", "Unmasked", detail))
    if context.get("allowPrivilegeEscalation") is False:
        if context.get("privileged"):
            detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            errors.append(_about(context, path, detail))
        if "CAP_SYS_ADMIN" in ((context.get("capabilities") or {}).get("add") or ()):
            detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
            errors.append(_about(context, path, detail))
    return errors


def _about(context: Object, path: str, detail: str) -> FieldError:
    """Return an error that shows the context as Go prints it."""
    shown = GoStruct({name: _shown(context.get(field), parts) for name, field, parts in _GO_FIELDS})
    return invalid(path, shown, detail)


_Parts = tuple[tuple[str, str, Any], ...]
_OF_PROFILE: _Parts = (("Type", "type", ""), ("LocalhostProfile", "localhostProfile", None))
_GO_FIELDS: tuple[tuple[str, str, _Parts], ...] = (
    ("Capabilities", "capabilities", (("Add", "add", None), ("Drop", "drop", None))),
    ("Privileged", "privileged", ()),
    (
        "SELinuxOptions",
        "seLinuxOptions",
        (("User", "user", ""), ("Role", "role", ""), ("Type", "type", ""), ("Level", "level", "")),
    ),
    ("WindowsOptions", "windowsOptions", ()),
    ("RunAsUser", "runAsUser", ()),
    ("RunAsGroup", "runAsGroup", ()),
    ("RunAsNonRoot", "runAsNonRoot", ()),
    ("ReadOnlyRootFilesystem", "readOnlyRootFilesystem", ()),
    ("AllowPrivilegeEscalation", "allowPrivilegeEscalation", ()),
    ("ProcMount", "procMount", ()),
    ("SeccompProfile", "seccompProfile", _OF_PROFILE),
    ("AppArmorProfile", "appArmorProfile", _OF_PROFILE),
)
"""The fields of a security context in Go's order: Go's name, the name on the wire, the parts of a struct."""


def _shown(value: Any, parts: _Parts) -> Any:
    if not parts or value is None:
        return value
    return GoStruct({name: value.get(field, zero) for name, field, zero in parts})


_POD = fields(
    fsGroup=given(_ID),
    runAsUser=given(_ID),
    runAsGroup=given(_ID),
    supplementalGroups=each(_ID),
    fsGroupChangePolicy=given(one_of("Always", "OnRootMismatch")),
    seccompProfile=given(_seccomp),
    appArmorProfile=given(_app_armor),
    supplementalGroupsPolicy=given(one_of("Merge", "Strict")),
    seLinuxChangePolicy=filled(one_of("MountOption", "Recursive")),
)


def validate_pod_security(spec: Object, path: str) -> list[FieldError]:
    """Return the errors in the security context of a pod, and in what depends on it."""
    context = spec.get("securityContext") or {}
    where = f"{path}.securityContext"
    errors = _POD(context, where) + _sysctls(context.get("sysctls") or [], spec, f"{where}.sysctls")
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        detail = "ShareProcessNamespace and HostPID cannot both be enabled"
        errors.append(invalid(f"{where}.shareProcessNamespace", True, detail))
    if spec.get("hostUsers") is False:
        clashes = (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC"))
        detail = "when `hostUsers` is false"
        errors += [forbidden(f"{path}.{name}", detail) for field, name in clashes if spec.get(field)]
    return errors


def _sysctls(sysctls: list[Object], spec: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, each_one in enumerate(sysctls):
        where, name = f"{path}[{index}].name", each_one.get("name") or ""
        if not name:
            errors.append(required(where))
        elif len(name) > _LONGEST_SYSCTL or not _is_sysctl(name):
            detail = f"must have at most {_LONGEST_SYSCTL} characters and match regex {_SYSCTL}"
            errors.append(invalid(where, name, detail))
        elif name in seen:
            errors.append(duplicate(where, name))
        seen.add(name)
        dotted = name.replace("/", ".")
        if spec.get("hostNetwork") and dotted.startswith("net."):
            errors.append(invalid(where, name, "may not be specified when 'hostNetwork' is true"))
        elif spec.get("hostIPC") and dotted.startswith(_IPC_SYSCTLS):
            errors.append(invalid(where, name, "may not be specified when 'hostIPC' is true"))
    return errors
