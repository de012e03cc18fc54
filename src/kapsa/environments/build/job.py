"""Build Jobs: the common parts of BuildKit and Kaniko builds, and the progress of a Job."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kapsa.adapters.errors import Refused
from kapsa.environments.build.amounts import build_resources
from kapsa.environments.build.source import PULL_KEY, PUSH_KEY, credentials_secret, fetch_container
from kapsa.environments.ports import BuildProgress, BuildRequest
from kapsa.environments.settings import Settings

__all__ = [
    "ARGUMENT",
    "CHECK_SCRIPT",
    "CONFINED",
    "IMAGE",
    "build_arguments",
    "build_job",
    "job_progress",
    "pull_mount",
]

IMAGE = "/image"
"""The directory with the image that a build has made."""
CONFINED: Mapping[str, Any] = {"seccompProfile": {"type": "RuntimeDefault"}}
"""The default of all containers. Only BuildKit's own cannot run with it."""
_DOCKER_CONFIG = "/docker"
_PUSHER = 65532
_UNPRIVILEGED: Mapping[str, Any] = {
    "runAsNonRoot": True,
    "runAsUser": _PUSHER,
    "runAsGroup": _PUSHER,
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
    **CONFINED,
}

CHECK_SCRIPT = r"""
links=$(find "$IMAGE" ! -type f ! -type d)
if [ -n "$links" ]; then
  echo "the build has left something else than files and directories:" >&2
  echo "$links" | head -n 10 >&2
  exit 1
fi
"""
"""The script that looks at what a build has made: a link would lead to the credentials of the next container."""

ARGUMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEPT_SECONDS = 7 * 86_400
_WAIT_SECONDS = 86_400
"""Seconds that a build may wait before it gives way: a pod that no node can run would use quota for ever."""
_PART_OF_REPOSITORY = "git."
_FAILURES = {
    "BackoffLimitExceeded": "its pods were lost or exceeded their deadline repeatedly",
    "PodFailurePolicy": "the build ended with an error, or exceeded its deadline",
}


def build_job(
    request: BuildRequest,
    container: dict[str, Any],
    settings: Settings,
    *,
    pod: Mapping[str, Any],
    volumes: list[Any],
    output: str = IMAGE,
) -> list[dict[str, Any]]:
    """Return the objects of a build: a Secret with its credentials, if it has any, and the Job last.

    The containers run one after another: the first fetches the source, the second builds the image into the
    directory `/image`, the third checks that it has no links, and the last pushes `output` from there. A RUN
    of the Dockerfile executes in the second, which has no credentials to push. A failed build is not retried,
    since the same commit would fail again. One whose pod was evicted is.

    Raises `Refused` when a field of the project is not valid.
    """
    build = request.project.spec.build
    assert build is not None
    if build.resources is not None:
        container["resources"] = build_resources(build.resources, settings)
    secret = credentials_secret(request)
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": request.name},
        "spec": {
            "backoffLimit": 3,
            # A Job that waits for quota or a node has not failed: its deadline is a long one.
            "activeDeadlineSeconds": int(settings.build_timeout) + _WAIT_SECONDS,
            "ttlSecondsAfterFinished": _KEPT_SECONDS,
            "podFailurePolicy": {
                "rules": [
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                    {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [0]}},
                ]
            },
            "template": {
                "metadata": {"labels": {"app.kubernetes.io/component": "build"}},
                "spec": {
                    "restartPolicy": "Never",
                    "activeDeadlineSeconds": int(settings.build_timeout),
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "initContainers": [
                        fetch_container(request, settings.git_image),
                        container,
                        _check_container(settings.git_image),
                    ],
                    "containers": [_push_container(request, settings.push_image, output)],
                    "volumes": [
                        *({"name": name, "emptyDir": {}} for name in ("workspace", "tmp", "image")),
                        *_credential_volumes(request, secret),
                        *volumes,
                    ],
                    "securityContext": CONFINED,
                    **pod,
                },
            },
        },
    }
    return [secret, job] if secret is not None else [job]


def build_arguments(request: BuildRequest) -> dict[str, str]:
    """Return the arguments of a Dockerfile build: the arguments and variables of the project.

    Raises `Refused` when a name is not valid in a Dockerfile.
    """
    build = request.project.spec.build
    assert build is not None
    arguments = {**{each.name: each.value for each in build.env}, **build.args}
    for name in arguments:
        if not ARGUMENT.fullmatch(name):
            raise Refused(
                f"{name[:80]!r} is not a valid name for a build argument", hint="Use letters, digits and _"
            )
    return arguments


def pull_mount(request: BuildRequest, path: str) -> list[dict[str, Any]]:
    """Return the volume mount with the team's own credentials to pull base images, if there are any."""
    return [{"name": "pull", "mountPath": path, "readOnly": True}] if request.pull is not None else []


def _check_container(image: str) -> dict[str, Any]:
    """Return the container that fails if the build has left a link. It runs after all processes of the build.

    Its user is that of the container that pushes, so that it can read the same.
    """
    return {
        "name": "check",
        "image": image,
        "command": ["/bin/sh", "-euc", CHECK_SCRIPT],
        "env": [{"name": "IMAGE", "value": IMAGE}],
        "volumeMounts": [{"name": "image", "mountPath": IMAGE, "readOnly": True}],
        "securityContext": _UNPRIVILEGED,
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
    }


def _push_container(request: BuildRequest, image: str, output: str) -> dict[str, Any]:
    mounts: list[dict[str, Any]] = [{"name": "image", "mountPath": IMAGE, "readOnly": True}]
    if request.push is not None:
        mounts.append({"name": "registry", "mountPath": _DOCKER_CONFIG, "readOnly": True})
    return {
        "name": "push",
        "image": image,
        "args": ["push", output, str(request.image), *(["--insecure"] if request.insecure else [])],
        "env": [{"name": "DOCKER_CONFIG", "value": _DOCKER_CONFIG}],
        "volumeMounts": mounts,
        "securityContext": _UNPRIVILEGED,
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}},
    }


def job_progress(job: Mapping[str, Any]) -> BuildProgress:
    """Return the progress of a build Job."""
    status = job.get("status") or {}
    conditions = {
        each["type"]: each for each in status.get("conditions") or () if each.get("status") == "True"
    }
    if "Complete" in conditions:  # SuccessCriteriaMet is set earlier, while the last pods still run
        return BuildProgress("succeeded")
    for kind in ("Failed", "FailureTarget"):
        if kind in conditions:
            reason = conditions[kind].get("reason", "")
            if reason == "DeadlineExceeded":
                return BuildProgress("expired", "the build waited too long for a pod or a node")
            return BuildProgress(
                "failed",
                _FAILURES.get(reason, conditions[kind].get("message") or reason or "the build failed"),
            )
    if (job.get("spec") or {}).get("suspend"):
        return BuildProgress("running", "(suspended)")
    return BuildProgress("running", "" if status.get("active") else "(waiting for a pod)")


def _credential_volumes(request: BuildRequest, secret: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Return a volume for each set of credentials: no container has those of another."""
    if secret is None:
        return []
    volumes = []
    source = [key for key in secret["data"] if key.startswith(_PART_OF_REPOSITORY)]
    if request.source is not None:
        items = [{"key": key, "path": key.removeprefix(_PART_OF_REPOSITORY)} for key in source]
        volumes.append(_secret_volume("git", request.name, items))
    for volume, key, login in (("registry", PUSH_KEY, request.push), ("pull", PULL_KEY, request.pull)):
        if login is not None:
            volumes.append(_secret_volume(volume, request.name, [{"key": key, "path": "config.json"}]))
    return volumes


def _secret_volume(volume: str, secret: str, items: list[dict[str, str]]) -> dict[str, Any]:
    return {"name": volume, "secret": {"secretName": secret, "items": items, "defaultMode": 0o444}}
