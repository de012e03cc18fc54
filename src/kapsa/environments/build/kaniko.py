"""Kaniko: builds Dockerfiles without special privileges, as root in its container.

No longer maintained upstream.
"""

from __future__ import annotations

from typing import Any

from kapsa.environments.build.job import IMAGE, build_arguments, build_job, pull_mount
from kapsa.environments.build.source import workspace_path
from kapsa.environments.ports import BuildRequest
from kapsa.environments.settings import Settings

__all__ = ["kaniko_objects"]

_TARBALL = f"{IMAGE}/image.tar"


def kaniko_objects(request: BuildRequest, settings: Settings) -> list[dict[str, Any]]:
    """Return the objects of a Kaniko build, the Job last.

    Raises `Refused` when a field of the project is not valid.
    """
    build = request.project.spec.build
    assert build is not None
    arguments = [
        f"--context=dir://{workspace_path(build.context)}",
        f"--dockerfile={workspace_path(build.context, build.dockerfile)}",
        f"--destination={request.image}",
        "--no-push",
        f"--tar-path={_TARBALL}",
        *(f"--build-arg={name}={value}" for name, value in sorted(build_arguments(request).items())),
    ]
    if request.insecure:
        arguments += ["--insecure-pull", "--skip-tls-verify-pull"]
    container = {
        "name": "build",
        "image": settings.kaniko_image,
        "args": arguments,
        "securityContext": {"allowPrivilegeEscalation": False},
        "volumeMounts": [
            {"name": "workspace", "mountPath": "/workspace"},
            {"name": "image", "mountPath": IMAGE},
            *pull_mount(request, "/kaniko/.docker"),
        ],
    }
    return build_job(request, container, settings, pod={}, volumes=[], output=_TARBALL)
