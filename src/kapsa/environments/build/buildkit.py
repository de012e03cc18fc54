"""BuildKit, rootless: the default engine for Dockerfiles.

It needs no privileges, no shared daemon and no root.

Its sandbox uses system calls that the default seccomp and AppArmor profiles forbid, so the namespace of
builds cannot enforce the baseline Pod Security standard.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from kapsa.environments.build.job import build_arguments, build_job, registry_mount
from kapsa.environments.build.source import workspace_path
from kapsa.environments.ports import BuildRequest
from kapsa.environments.settings import Settings

__all__ = ["buildkit_objects"]

_USER = 1000
_HOME = "/home/user"


def buildkit_objects(request: BuildRequest, settings: Settings) -> list[dict[str, Any]]:
    """Return the objects of a BuildKit build, the Job last.

    Raises `Refused` when a field of the project is not valid.
    """
    container = {
        "name": "build",
        "image": settings.buildkit_image,
        "command": ["buildctl-daemonless.sh", "build"],
        "args": _arguments(request),
        "env": [
            # Without a process sandbox no privileges are needed. Processes see each other only within one pod.
            {"name": "BUILDKITD_FLAGS", "value": "--oci-worker-no-process-sandbox"},
            {"name": "DOCKER_CONFIG", "value": f"{_HOME}/.docker"},
        ],
        "securityContext": {
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "seccompProfile": {"type": "Unconfined"},
            "appArmorProfile": {"type": "Unconfined"},
        },
        "volumeMounts": [
            {"name": "workspace", "mountPath": "/workspace", "readOnly": True},
            {"name": "buildkit", "mountPath": f"{_HOME}/.local/share/buildkit"},
            *registry_mount(request, f"{_HOME}/.docker"),
        ],
    }
    pod = {
        "securityContext": {"fsGroup": _USER, "runAsUser": _USER, "runAsGroup": _USER, "runAsNonRoot": True}
    }
    return build_job(request, container, settings, pod=pod, volumes=[{"name": "buildkit", "emptyDir": {}}])


def _arguments(request: BuildRequest) -> list[str]:
    build = request.project.spec.build
    assert build is not None
    dockerfile = PurePosixPath(workspace_path(build.context, build.dockerfile))
    # A reference has neither commas nor quotes, so it cannot add attributes.
    pushed = f"type=image,name={request.image},push=true"
    return [
        "--progress=plain",
        "--frontend=dockerfile.v0",
        f"--local=context={workspace_path(build.context)}",
        f"--local=dockerfile={dockerfile.parent}",
        f"--opt=filename={dockerfile.name}",
        *(f"--opt=build-arg:{name}={value}" for name, value in sorted(build_arguments(request).items())),
        f"--output={pushed},registry.insecure=true" if request.insecure else f"--output={pushed}",
    ]
