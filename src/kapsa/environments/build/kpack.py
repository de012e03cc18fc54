"""kpack: builds images with buildpacks.

The spec of an Image describes the build, and its status reports the progress.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from kapsa.adapters.git.address import SAFE_PROTOCOLS, RepositoryAddress, check_commit
from kapsa.adapters.git.checkout import check_path
from kapsa.adapters.git.credentials import GitCredentials
from kapsa.adapters.oci.credentials import docker_config
from kapsa.environments.build.amounts import build_resources
from kapsa.environments.names import sanitize
from kapsa.environments.ports import BuildProgress, BuildRequest
from kapsa.environments.settings import Settings

__all__ = ["builder_name", "kpack_objects", "kpack_progress"]

_WAITING = ("BuilderNotReady", "SourceNotReady", "ResolverNotReady")


def builder_name(setting: str) -> str:
    """Return the ClusterBuilder for an image: `paketo-builder-base` for `paketo/builder:base`."""
    return sanitize(setting)


def kpack_objects(request: BuildRequest, settings: Settings) -> list[dict[str, Any]]:
    """Return the objects of a kpack build, the Image last.

    Each commit has its own Image, and so its own status.

    Raises `Refused` when a field of the project is not valid.
    """
    build = request.project.spec.build
    assert build is not None
    address = RepositoryAddress.parse(
        request.project.spec.source.repository_url, protocols=(*SAFE_PROTOCOLS, "http")
    )
    source: dict[str, Any] = {"git": {"url": address.url, "revision": check_commit(request.commit)}}
    if str(check_path(build.context)) != ".":
        source["subPath"] = str(check_path(build.context))
    secrets = _secrets(request, address)
    account = request.name if secrets else settings.kpack_service_account
    variables = {**{each.name: each.value for each in build.env}, **build.args}
    build_spec: dict[str, Any] = {
        "env": [{"name": name, "value": value} for name, value in sorted(variables.items())]
    }
    if build.resources is not None:
        build_spec["resources"] = build_resources(build.resources, settings)
    image = {
        "apiVersion": "kpack.io/v1alpha2",
        "kind": "Image",
        "metadata": {"name": request.name},
        "spec": {
            "tag": str(request.image),
            "serviceAccountName": account,
            "builder": {"kind": "ClusterBuilder", "name": builder_name(settings.kpack_builder_image)},
            "source": source,
            "build": build_spec,
            "imageTaggingStrategy": "None",
            "successBuildHistoryLimit": 1,
            "failedBuildHistoryLimit": 1,
        },
    }
    return [*secrets, *([_account(request.name, secrets)] if secrets else []), image]


def kpack_progress(image: Mapping[str, Any]) -> BuildProgress:
    """Return the progress of an Image's build. A status of an earlier generation is ignored."""
    status = image.get("status") or {}
    if status.get("observedGeneration", 0) < (image.get("metadata") or {}).get("generation", 0):
        return BuildProgress("running", "(kpack has not observed it yet)")
    conditions = {each.get("type"): each for each in status.get("conditions") or ()}
    ready: Mapping[str, Any] = conditions.get("Ready") or {}
    message = str(ready.get("message") or "")
    if ready.get("status") == "True":
        return BuildProgress("succeeded")
    if ready.get("status") == "False" and ready.get("reason") not in _WAITING:
        return BuildProgress("failed", message or "kpack failed to build the image")
    return BuildProgress("running", f"({message})" if message else "")


def _secrets(request: BuildRequest, address: RepositoryAddress) -> list[dict[str, Any]]:
    secrets = []
    if request.source is not None and (request.source.password or request.source.ssh_key):
        secrets.append(_git_secret(f"{request.name}-git", request.source, address))
    if request.push is not None:
        config = docker_config(request.image.registry, request.push)
        secrets.append(
            _secret(
                f"{request.name}-registry", "kubernetes.io/dockerconfigjson", {".dockerconfigjson": config}
            )
        )
    return secrets


def _git_secret(name: str, credentials: GitCredentials, address: RepositoryAddress) -> dict[str, Any]:
    if address.protocol == "ssh":
        texts = {"ssh-privatekey": credentials.ssh_key, "known_hosts": credentials.known_hosts}
        made = _secret(name, "kubernetes.io/ssh-auth", texts)
    else:
        texts = {"username": credentials.username, "password": credentials.password}
        made = _secret(name, "kubernetes.io/basic-auth", texts)
    port = f":{address.port}" if address.port else ""
    host = f"{address.host}{port}"
    # kpack sends the credentials to this server only.
    made["metadata"]["annotations"] = {
        "kpack.io/git": f"{address.user or 'git'}@{host}"
        if address.protocol == "ssh"
        else f"{address.protocol}://{host}"
    }
    return made


def _account(name: str, secrets: list[dict[str, Any]]) -> dict[str, Any]:
    pulls = [each for each in secrets if each["type"] == "kubernetes.io/dockerconfigjson"]
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": name},
        "automountServiceAccountToken": False,
        "secrets": [{"name": each["metadata"]["name"]} for each in secrets],
        "imagePullSecrets": [{"name": each["metadata"]["name"]} for each in pulls],
    }


def _secret(name: str, kind: str, texts: Mapping[str, str]) -> dict[str, Any]:
    data = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": kind, "data": data}
