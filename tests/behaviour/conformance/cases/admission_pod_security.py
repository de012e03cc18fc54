"""Pod Security: levels, versions, modes, and each check of the standards."""

from __future__ import annotations

from typing import Any

from tests.behaviour.conformance.cases.admission_quota import settled
from tests.behaviour.conformance.cases.requests import (
    DEPLOYMENTS,
    PODS,
    case,
    deployment,
    merge,
    pod,
    post,
    strategic,
)
from tests.behaviour.conformance.exchange import Call, Case

NAMESPACE = "/api/v1/namespaces/{ns}"
NAMESPACES = "/api/v1/namespaces"
JOBS = "/apis/batch/v1/namespaces/{ns}/cronjobs"

RESTRICTED_CONTEXT = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def labels(**modes: str) -> dict[str, str]:
    return {f"pod-security.kubernetes.io/{mode.replace('_', '-')}": level for mode, level in modes.items()}


def level(**modes: str) -> Call:
    return merge(NAMESPACE, {"metadata": {"labels": labels(**modes)}})


def secured(context: Any = None, **more: Any) -> dict[str, Any]:
    """Return a pod whose container has this security context."""
    spec = dict(more)
    container = {"name": "main", "image": "example.com/app:1", **spec.pop("container", {})}
    if context is not None:
        container["securityContext"] = context
    return pod(containers=[container], **spec)


def restricted(context: Any = None, **more: Any) -> dict[str, Any]:
    """Return a pod that the restricted level allows, but for this."""
    return secured({**RESTRICTED_CONTEXT, **(context or {})}, **more)


def checked(what: str, body: dict[str, Any], enforce: str = "baseline", **modes: str) -> Case:
    return case(f"pod security {enforce}: {what}", level(enforce=enforce, **modes), settled(post(PODS, body)))


PROBE = {"httpGet": {"port": 80, "host": "example.com"}}

BASELINE = [
    checked("a plain pod is accepted", pod()),
    checked("a privileged container", secured({"privileged": True})),
    checked("host namespaces", pod(hostNetwork=True, hostPID=True, hostIPC=True)),
    checked("host path volumes", pod(volumes=[{"name": n, "hostPath": {"path": "/"}} for n in ("a", "b")])),
    checked(
        "host ports",
        secured(
            container={
                "ports": [{"containerPort": 80, "hostPort": 80}, {"containerPort": 81, "hostPort": 8081}]
            }
        ),
    ),
    checked("added capabilities", secured({"capabilities": {"add": ["NET_ADMIN", "CHOWN"]}})),
    checked("allowed capabilities", secured({"capabilities": {"add": ["CHOWN"]}})),
    checked("an unconfined seccomp profile", pod(securityContext={"seccompProfile": {"type": "Unconfined"}})),
    checked(
        "an unconfined seccomp profile of a container", secured({"seccompProfile": {"type": "Unconfined"}})
    ),
    checked("an unconfined AppArmor profile", secured({"appArmorProfile": {"type": "Unconfined"}})),
    checked(
        "SELinux options",
        pod(securityContext={"seLinuxOptions": {"type": "other_t", "user": "u", "role": "r"}}),
    ),
    checked("a container engine's SELinux type", secured({"seLinuxOptions": {"type": "container_engine_t"}})),
    checked(
        "a container engine's SELinux type before 1.31",
        secured({"seLinuxOptions": {"type": "container_engine_t"}}),
        enforce_version="v1.30",
    ),
    checked("unsafe sysctls", pod(securityContext={"sysctls": [{"name": "kernel.msgmax", "value": "1"}]})),
    checked(
        "a sysctl that is safe since 1.29",
        pod(securityContext={"sysctls": [{"name": "net.ipv4.tcp_keepalive_time", "value": "1"}]}),
    ),
    checked(
        "a sysctl before it was safe",
        pod(securityContext={"sysctls": [{"name": "net.ipv4.tcp_keepalive_time", "value": "1"}]}),
        enforce_version="v1.28",
    ),
    checked("a probe of another host", secured(container={"livenessProbe": PROBE})),
    checked(
        "a probe of another host before 1.34",
        secured(container={"livenessProbe": PROBE}),
        enforce_version="v1.33",
    ),
    checked("several violations at once", secured({"privileged": True}, hostNetwork=True)),
    checked(
        "several containers",
        pod(
            containers=[
                {"name": n, "image": "a", "securityContext": {"privileged": True}} for n in ("a", "b")
            ]
        ),
    ),
    checked(
        "an init container",
        pod(initContainers=[{"name": "first", "image": "a", "securityContext": {"privileged": True}}]),
    ),
]

RESTRICTED = [
    checked("a plain pod", pod(), "restricted"),
    checked("a restricted pod is accepted", restricted(), "restricted"),
    checked("privilege escalation", restricted({"allowPrivilegeEscalation": True}), "restricted"),
    checked(
        "capabilities that are kept and added",
        restricted({"capabilities": {"drop": ["CHOWN"], "add": ["NET_ADMIN"]}}),
        "restricted",
    ),
    checked(
        "an added capability that is allowed",
        restricted({"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}}),
        "restricted",
    ),
    checked("a root user", restricted({"runAsUser": 0}), "restricted"),
    checked("a root user of the pod", restricted(securityContext={"runAsUser": 0}), "restricted"),
    checked("a container that may run as root", restricted({"runAsNonRoot": False}), "restricted"),
    checked(
        "a seccomp profile of the pod",
        secured(
            {k: v for k, v in RESTRICTED_CONTEXT.items() if k != "seccompProfile"},
            securityContext={"seccompProfile": {"type": "RuntimeDefault"}},
        ),
        "restricted",
    ),
    checked(
        "restricted volumes",
        restricted(
            volumes=[
                {"name": "a", "hostPath": {"path": "/"}},
                {"name": "b", "nfs": {"server": "s", "path": "/"}},
            ]
        ),
        "restricted",
    ),
    checked(
        "allowed volumes",
        restricted(volumes=[{"name": "a", "emptyDir": {}}, {"name": "b", "configMap": {"name": "c"}}]),
        "restricted",
    ),
    checked("a plain pod before 1.19", pod(), "restricted", enforce_version="v1.18"),
    checked("a plain pod of a version to come", pod(), "restricted", enforce_version="v1.99"),
]

MODES = [
    case(
        "pod security: the privileged level accepts everything",
        level(enforce="privileged"),
        settled(post(PODS, secured({"privileged": True}))),
    ),
    case(
        "pod security: a warning accompanies the reply", level(warn="restricted"), settled(post(PODS, pod()))
    ),
    case("pod security: an audit level is silent", level(audit="restricted"), settled(post(PODS, pod()))),
    case(
        "pod security: a template is warned about",
        level(enforce="baseline"),
        settled(
            post(
                DEPLOYMENTS,
                deployment(containers=[{"name": "a", "image": "a", "securityContext": {"privileged": True}}]),
            )
        ),
    ),
    case(
        "pod security: a cron job's template is warned about",
        level(warn="restricted"),
        settled(
            post(
                JOBS,
                {
                    "metadata": {"name": "one"},
                    "spec": {
                        "schedule": "0 0 * * *",
                        "jobTemplate": {"spec": {"template": pod(restartPolicy="Never")}},
                    },
                },
            )
        ),
    ),
    case(
        "pod security: an enforced template without a warning level",
        level(enforce="baseline", warn="privileged"),
        settled(
            post(
                DEPLOYMENTS,
                deployment(containers=[{"name": "a", "image": "a", "securityContext": {"privileged": True}}]),
            )
        ),
    ),
    case("pod security: an unknown level is rejected", level(enforce="strict")),
    case("pod security: an unknown version is rejected", level(enforce="baseline", enforce_version="1.20")),
    case(
        "pod security: a namespace with unknown levels is rejected",
        post(
            NAMESPACES, {"metadata": {"name": "x-{ns}", "labels": labels(enforce="strict", warn_version="x")}}
        ),
    ),
    case(
        "pod security: a stricter level warns about existing pods",
        post(PODS, secured({"privileged": True})),
        post(PODS, {**secured({"privileged": True}), "metadata": {"name": "two"}}),
        post(PODS, pod("three", hostNetwork=True)),
        settled(level(enforce="baseline")),
        level(enforce="privileged"),
    ),
    case(
        "pod security: a change of the image is checked",
        post(PODS, secured({"privileged": True})),
        level(enforce="baseline"),
        settled(strategic(f"{PODS}/one", {"spec": {"containers": [{"name": "main", "image": "b:1"}]}})),
        settled(merge(f"{PODS}/one", {"metadata": {"labels": {"a": "b"}}})),
    ),
    case(
        "pod security: a dry run is checked",
        level(enforce="baseline"),
        settled(post(PODS, secured({"privileged": True}), "dryRun=All")),
    ),
    case(
        "pod security: a generated name is shown",
        level(enforce="baseline"),
        settled(
            post(PODS, {"metadata": {"generateName": "gen-"}, "spec": secured({"privileged": True})["spec"]})
        ),
    ),
]

CASES = [*BASELINE, *RESTRICTED, *MODES]
