"""The violations of a Pod Security level in a pod, each check in the versions that it applies to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kapsa.devcluster.embedded.admission.pod_security import baseline, restricted
from kapsa.devcluster.embedded.admission.pod_security.levels import Level
from kapsa.devcluster.embedded.admission.pod_security.pod import SecuredPod, Violation

__all__ = ["violations_of"]

Object = dict[str, Any]
Check = Callable[[SecuredPod, int], Violation | None]

_LAST = 35
"""The last minor version in which a check changed."""


class _Rule(msgspec.Struct, frozen=True):
    """A check from a minor version on; `replaces` names the baseline check that it includes."""

    name: str
    check: Check
    since: int = 0
    replaces: str = ""


_BASELINE = (
    _Rule("appArmorProfile", baseline.app_armor_profile),
    _Rule("capabilities_baseline", baseline.capabilities),
    _Rule("hostNamespaces", baseline.host_namespaces),
    _Rule("hostPathVolumes", baseline.host_path_volumes),
    _Rule("hostPorts", baseline.host_ports),
    _Rule("hostProbesAndHostLifecycle", baseline.probe_hosts, since=34),
    _Rule("privileged", baseline.privileged),
    _Rule("procMount", baseline.proc_mount),
    _Rule("seLinuxOptions", baseline.selinux_options),
    _Rule("seccompProfile_baseline", baseline.seccomp_profile),
    _Rule("sysctls", baseline.sysctls),
    _Rule("windowsHostProcess", baseline.windows_host_process),
)
_RESTRICTED = (
    _Rule("allowPrivilegeEscalation", restricted.privilege_escalation, since=8),
    _Rule("capabilities_restricted", restricted.capabilities, since=22, replaces="capabilities_baseline"),
    _Rule("procMount_restricted", restricted.proc_mount, since=35, replaces="procMount"),
    _Rule("restrictedVolumes", restricted.volumes, replaces="hostPathVolumes"),
    _Rule("runAsNonRoot", restricted.run_as_non_root),
    _Rule("runAsUser", restricted.run_as_user, since=23),
    _Rule(
        "seccompProfile_restricted", restricted.seccomp_profile, since=19, replaces="seccompProfile_baseline"
    ),
)


def violations_of(level: Level, metadata: Object, spec: Object) -> list[Violation]:
    """Return what a pod violates at a level, in the order of the real server."""
    if level.is_privileged:
        return []
    minor = min(level.minor, _LAST)
    strict = [r for r in _RESTRICTED if r.since <= minor] if level.name == "restricted" else []
    replaced = {rule.replaces for rule in strict}
    rules = [r for r in _BASELINE if r.since <= minor and r.name not in replaced] + strict
    pod = SecuredPod(metadata, spec)
    return [violation for rule in rules if (violation := rule.check(pod, minor)) is not None]
