"""Build Jobs: what BuildKit and Kaniko builds have in common, and how far one is."""

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
_WHY_FAILED = {
    "DeadlineExceeded": "it took longer than it may",
    "BackoffLimitExceeded": "its pods were lost again and again",
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
    """The objects of a build: its credentials if it has any, and the Job last.

    A build that fails is not tried again, since the same commit fails again; one whose pod was evicted is.

    :raises Refused: something of the project is not taken.
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
    """The arguments of a Dockerfile build: those of the project, and its build's variables.

    :raises Refused: a name is not one that a Dockerfile can use.
    """
    build = request.project.spec.build
    assert build is not None
    arguments = {**{each.name: each.value for each in build.env}, **build.args}
    for name in arguments:
        if not ARGUMENT.fullmatch(name):
            raise Refused(
                f"{name[:80]!r} is not the name of a build argument", hint="Use letters, digits and _"
            )
    return arguments


def registry_mount(request: BuildRequest, path: str) -> list[dict[str, Any]]:
    """Where the container that pushes finds its credentials, if there are any."""
    return [{"name": "registry", "mountPath": path, "readOnly": True}] if request.push is not None else []


def job_progress(job: Mapping[str, Any]) -> BuildProgress:
    """How far a build Job is."""
    status = job.get("status") or {}
    conditions = {
        each["type"]: each for each in status.get("conditions") or () if each.get("status") == "True"
    }
    if "Complete" in conditions:  # SuccessCriteriaMet comes before it, while the last pods still end
        return BuildProgress("succeeded")
    for kind in ("Failed", "FailureTarget"):
        if kind in conditions:
            reason = conditions[kind].get("reason", "")
            return BuildProgress(
                "failed", _WHY_FAILED.get(reason, conditions[kind].get("message") or reason or "it failed")
            )
    if (job.get("spec") or {}).get("suspend"):
        return BuildProgress("running", "(suspended)")
    return BuildProgress("running", "" if status.get("active") else "(waiting for a pod)")


def _credential_volumes(request: BuildRequest, secret: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """The credentials, each in a volume of its own: the container that fetches can't push, and the other way round."""
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
