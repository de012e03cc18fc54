"""The Pod Security Standards: the result for a pod is that of the API server."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from kapsa.adapters.manifests.pod_security import Level, pod_violations
from kapsa.devcluster import DevCluster
from kapsa.runtime import Client, Forbidden

_SAFE: dict[str, Any] = {
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
_PROBE = {"host": "10.0.0.1", "port": 80}


def pod(container: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {"containers": [{"name": "app", "image": "app:1", **(container or {})}], **spec}


def context(**fields: Any) -> dict[str, Any]:
    return pod({"securityContext": fields})


def safe(**fields: Any) -> dict[str, Any]:
    return pod({"securityContext": {**_SAFE, **fields}})


FORBIDDEN: dict[str, dict[str, Any]] = {
    "hostNetwork": pod(hostNetwork=True),
    "hostPID": pod(hostPID=True),
    "hostIPC": pod(hostIPC=True),
    "hostPath": pod(volumes=[{"name": "v", "hostPath": {"path": "/"}}]),
    "privileged": context(privileged=True),
    "capability": context(capabilities={"add": ["NET_ADMIN"]}),
    "raw sockets": context(capabilities={"add": ["NET_RAW"]}),
    "hostPort": pod({"ports": [{"containerPort": 80, "hostPort": 80}]}),
    "seccomp": context(seccompProfile={"type": "Unconfined"}),
    "seccomp of the pod": pod(securityContext={"seccompProfile": {"type": "Unconfined"}}),
    "AppArmor": context(appArmorProfile={"type": "Unconfined"}),
    "SELinux type": context(seLinuxOptions={"type": "spc_t"}),
    "SELinux user": pod(securityContext={"seLinuxOptions": {"user": "root"}}),
    "sysctl": pod(securityContext={"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}),
    "init container": pod(
        initContainers=[{"name": "i", "image": "i:1", "securityContext": {"privileged": True}}]
    ),
}
"""Pods that the baseline standard forbids."""

ALLOWED: dict[str, dict[str, Any]] = {
    "plain": pod(),
    "root": context(runAsUser=0),
    "usual capability": context(capabilities={"add": ["CHOWN", "NET_BIND_SERVICE"]}),
    "escalation": context(allowPrivilegeEscalation=True),
    "network volume": pod(volumes=[{"name": "v", "nfs": {"server": "nfs.example.com", "path": "/"}}]),
    "safe sysctl": pod(securityContext={"sysctls": [{"name": "net.ipv4.tcp_syncookies", "value": "1"}]}),
    "SELinux": context(seLinuxOptions={"type": "container_t", "level": "s0"}),
    "probe": pod({"livenessProbe": {"httpGet": {"path": "/", "port": 80}}}),
}
"""Pods that the baseline standard allows, and, except for the last, the restricted one forbids."""

RESTRICTED: dict[str, dict[str, Any]] = {
    "nothing said": pod(),
    "root": safe(runAsUser=0),
    "may be root": safe(runAsNonRoot=False),
    "escalation": safe(allowPrivilegeEscalation=True),
    "capabilities kept": safe(capabilities={}),
    "capability added": safe(capabilities={"drop": ["ALL"], "add": ["CHOWN"]}),
    "no seccomp": safe(seccompProfile=None),
    "network volume": {**safe(), "volumes": [{"name": "v", "nfs": {"server": "s", "path": "/"}}]},
    "unsafe init container": {**safe(), "initContainers": [{"name": "i", "image": "i:1"}]},
}
"""Pods that only the restricted standard forbids."""

UNRESTRICTED: dict[str, dict[str, Any]] = {
    "safe": safe(),
    "port binding": safe(capabilities={"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}),
    "plain volumes": {
        **safe(),
        "volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "secret": {"secretName": "s"}}],
    },
    "said for the whole pod": pod(
        {"securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}},
        securityContext={"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    ),
}
"""Pods that the restricted standard allows."""

CASES: list[tuple[Level, str, dict[str, Any], bool]] = [
    *(("baseline", name, spec, False) for name, spec in FORBIDDEN.items()),
    *(("baseline", name, spec, True) for name, spec in ALLOWED.items()),
    *(("restricted", name, spec, False) for name, spec in RESTRICTED.items()),
    *(("restricted", name, spec, True) for name, spec in UNRESTRICTED.items()),
]


@pytest.mark.parametrize(
    ("level", "spec", "allowed"),
    [pytest.param(level, spec, allowed, id=f"{level}-{name}") for level, name, spec, allowed in CASES],
)
def test_a_pod_is_checked_against_the_standard(level: Level, spec: dict[str, Any], allowed: bool) -> None:
    assert (not pod_violations(spec, {}, level)) == allowed


def test_a_probe_of_another_host_is_refused() -> None:
    for spec in (
        pod({"livenessProbe": {"httpGet": _PROBE}}),
        pod({"lifecycle": {"preStop": {"tcpSocket": _PROBE}}}),
    ):
        (violation,) = pod_violations(spec, {})
        assert violation.startswith("container app: ")


def test_an_unmasked_proc_is_refused_although_the_newest_servers_allow_it_in_user_namespaces() -> None:
    spec = pod({"securityContext": {"procMount": "Unmasked"}}, hostUsers=False)
    assert pod_violations(spec, {}) == ["container app: securityContext.procMount is Unmasked"]


def test_a_violation_names_container_and_field() -> None:
    spec = pod({"name": "web", "securityContext": {"privileged": True}}, hostNetwork=True)
    assert pod_violations(spec, {}) == [
        "hostNetwork is true",
        "container web: securityContext.privileged is true",
    ]


@pytest.mark.parametrize("nonsense", ["x", 7, [], {"a": "b"}, None])
def test_an_invalid_pod_raises_no_error(nonsense: Any) -> None:
    fields = ("containers", "initContainers", "volumes", "securityContext")
    for field in fields:
        pod_violations({field: nonsense}, {"annotations": nonsense}, "restricted")
        pod_violations({"containers": [{field: nonsense, "ports": nonsense, "lifecycle": nonsense}]}, {})


@pytest.mark.real
async def test_the_api_server_decides_the_same_for_all_pods(cluster: DevCluster) -> None:
    async with Client.connect(kubeconfig=cluster.kubeconfig) as client:
        differing = []
        for level in ("baseline", "restricted"):
            namespace = f"pods-{level}-{uuid.uuid4().hex[:6]}"
            labels = {"pod-security.kubernetes.io/enforce": level}
            await client.create(
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}
            )
            await client.create(
                {
                    "apiVersion": "v1",
                    "kind": "ServiceAccount",
                    "metadata": {"name": "pods", "namespace": namespace},
                }
            )
            for _, name, spec, allowed in (case for case in CASES if case[0] == level):
                manifest = {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": "case", "namespace": namespace},
                    "spec": {**spec, "serviceAccountName": "pods"},
                }
                try:
                    await client.create(manifest, dry_run=True)
                    refusal = ""
                except Forbidden as error:
                    refusal = str(error)
                if (not refusal) != allowed or (refusal and "violates PodSecurity" not in refusal):
                    differing.append(f"{level}: {name}")
        assert differing == []
