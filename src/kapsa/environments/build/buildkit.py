"""BuildKit, rootless: the default engine for Dockerfiles.

It needs no privileges, no shared daemon and no root.

Its sandbox uses system calls that the default seccomp and AppArmor profiles forbid, so the namespace of
builds cannot enforce the baseline Pod Security standard.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from kapsa.environments.build.job import CONFINED, IMAGE, build_arguments, build_job, pull_mount
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
            # Without a process sandbox no privileges are needed, but a RUN can read what buildkitd can.
            {"name": "BUILDKITD_FLAGS", "value": _flags(request)},
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
            {"name": "image", "mountPath": IMAGE},
            *pull_mount(request, f"{_HOME}/.docker"),
        ],
    }
    # No fsGroup: it would make each directory of a build setgid.
    pod = {"securityContext": {"runAsUser": _USER, "runAsGroup": _USER, "runAsNonRoot": True, **CONFINED}}
    return build_job(request, container, settings, pod=pod, volumes=[{"name": "buildkit", "emptyDir": {}}])


def _flags(request: BuildRequest) -> str:
    config = " --config /workspace/buildkitd.toml" if request.insecure else ""
    return f"--oci-worker-no-process-sandbox{config}"


def _arguments(request: BuildRequest) -> list[str]:
    build = request.project.spec.build
    assert build is not None
    dockerfile = PurePosixPath(workspace_path(build.context, build.dockerfile))
    return [
        "--progress=plain",
        "--frontend=dockerfile.v0",
        f"--local=context={workspace_path(build.context)}",
        f"--local=dockerfile={dockerfile.parent}",
        f"--opt=filename={dockerfile.name}",
        *(f"--opt=build-arg:{name}={value}" for name, value in sorted(build_arguments(request).items())),
        f"--output=type=oci,tar=false,dest={IMAGE}",
    ]
