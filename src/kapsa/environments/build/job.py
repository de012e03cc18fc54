"""Build Jobs: the common parts of BuildKit and Kaniko builds, and the progress of a Job."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from kapsa.adapters.errors import Refused
from kapsa.environments.build.source import credentials_secret, fetch_container
from kapsa.environments.ports import BuildProgress, BuildRequest
from kapsa.environments.settings import Settings

__all__ = ["ARGUMENT", "build_arguments", "build_job", "job_progress", "registry_mount"]

ARGUMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEPT_SECONDS = 7 * 86_400
_PART_OF_REPOSITORY = "git."
_FAILURES = {
    "DeadlineExceeded": "the build exceeded its deadline",
    "BackoffLimitExceeded": "the pods of the build were lost repeatedly",
    "PodFailurePolicy": "the build ended with an error",
}


def build_job(
    request: BuildRequest,
    container: dict[str, Any],
    settings: Settings,
    *,
    pod: Mapping[str, Any],
    volumes: list[Any],
) -> list[dict[str, Any]]:
    """Return the objects of a build: a Secret with its credentials, if it has any, and the Job last.

    A failed build is not retried, since the same commit would fail again. One whose pod was evicted is.

    Raises `Refused` when a field of the project is not valid.
    """
    build = request.project.spec.build
    assert build is not None
    if build.resources is not None:
        container["resources"] = msgspec.to_builtins(build.resources, enc_hook=lambda value: value.to_wire())
    secret = credentials_secret(request)
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": request.name},
        "spec": {
            "backoffLimit": 3,
            "activeDeadlineSeconds": int(settings.build_timeout),
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
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "initContainers": [fetch_container(request, settings.git_image)],
                    "containers": [container],
                    "volumes": [
                        {"name": "workspace", "emptyDir": {}},
                        {"name": "tmp", "emptyDir": {}},
                        *_credential_volumes(request, secret),
                        *volumes,
                    ],
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


def registry_mount(request: BuildRequest, path: str) -> list[dict[str, Any]]:
    """Return the volume mount with the credentials to push, if there are any."""
    return [{"name": "registry", "mountPath": path, "readOnly": True}] if request.push is not None else []


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
            return BuildProgress(
                "failed",
                _FAILURES.get(reason, conditions[kind].get("message") or reason or "the build failed"),
            )
    if (job.get("spec") or {}).get("suspend"):
        return BuildProgress("running", "(suspended)")
    return BuildProgress("running", "" if status.get("active") else "(waiting for a pod)")


def _credential_volumes(request: BuildRequest, secret: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Return a volume for each set of credentials: the container that fetches cannot push, and vice versa."""
    if secret is None:
        return []
    volumes = []
    source = [key for key in secret["data"] if key.startswith(_PART_OF_REPOSITORY)]
    if request.source is not None:
        items = [{"key": key, "path": key.removeprefix(_PART_OF_REPOSITORY)} for key in source]
        volumes.append(_secret_volume("git", request.name, items))
    if request.push is not None:
        volumes.append(
            _secret_volume("registry", request.name, [{"key": "config.json", "path": "config.json"}])
        )
    return volumes


def _secret_volume(volume: str, secret: str, items: list[dict[str, str]]) -> dict[str, Any]:
    return {"name": volume, "secret": {"secretName": secret, "items": items, "defaultMode": 0o440}}
