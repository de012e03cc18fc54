"""The source of a build: a container that fetches one commit with the operator's hardened git settings.

Repository, commit and paths come from tenants. They are passed to the script as variables and are never part
of its text.
"""

from __future__ import annotations

import base64
from typing import Any

from kapsa.adapters.git.address import SAFE_PROTOCOLS, RepositoryAddress, check_commit
from kapsa.adapters.git.checkout import check_path
from kapsa.adapters.git.client import HARDENED
from kapsa.adapters.oci.credentials import docker_config
from kapsa.environments.ports import BuildRequest

__all__ = [
    "CONTEXT",
    "DOCKERFILE",
    "PULL_KEY",
    "PUSH_KEY",
    "SOURCE_SCRIPT",
    "credentials_secret",
    "fetch_container",
    "workspace_path",
]

CONTEXT, DOCKERFILE = "CONTEXT", "DOCKERFILE"
PUSH_KEY, PULL_KEY = "config.json", "pull.config.json"
"""The keys of the Secret with the logins to push and to pull, each as docker's configuration."""
_USER = 1000
_WORKSPACE = "/workspace"
_CREDENTIALS = "/credentials"

SOURCE_SCRIPT = r"""
umask 022
mkdir -p "$WORKSPACE/source" && cd "$WORKSPACE/source"
if [ -f "$CREDENTIALS/ssh-key" ]; then
  umask 077 && cp "$CREDENTIALS/ssh-key" "$HOME/key" && umask 022
  export GIT_SSH_COMMAND="ssh -F /dev/null -i '$HOME/key' -o BatchMode=yes -o IdentitiesOnly=yes\
 -o StrictHostKeyChecking=yes -o UserKnownHostsFile='$CREDENTIALS/known_hosts'"
fi
if [ -f "$CREDENTIALS/ca.crt" ]; then export GIT_SSL_CAINFO="$CREDENTIALS/ca.crt"; fi
if [ -f "$CREDENTIALS/password" ]; then
  printf '#!/bin/sh\ncase "$1" in Username*) cat "$CREDENTIALS/username" ;; *) cat "$CREDENTIALS/password" ;; esac\n' \
    > "$HOME/askpass"
  chmod 700 "$HOME/askpass" && export GIT_ASKPASS="$HOME/askpass"
fi
git init --quiet --template= .
git fetch --quiet --no-tags --depth=1 --end-of-options "$REPOSITORY" "$COMMIT" ||
  git fetch --quiet --no-tags --end-of-options "$REPOSITORY" \
    '+refs/heads/*:refs/kapsa/heads/*' '+refs/pull/*:refs/kapsa/pull/*' '+refs/merge-requests/*:refs/kapsa/merge-requests/*'
git -c advice.detachedHead=false checkout --quiet --detach "$COMMIT"
rm -rf .git "$HOME/key" "$HOME/askpass"
root=$(pwd -P)
for path in "$CONTEXT" ${DOCKERFILE:+"$CONTEXT/$DOCKERFILE"}; do
  target=$(readlink -f -- "$root/$path" || true)
  case "$target/" in
    "$root"/*) [ -e "$target" ] || { echo "commit $COMMIT has no $path" >&2; exit 1; } ;;
    *) echo "$path leaves the repository" >&2; exit 1 ;;
  esac
done
if [ -n "$BUILDKITD_CONFIG" ]; then printf '%s\n' "$BUILDKITD_CONFIG" > "$WORKSPACE/buildkitd.toml"; fi
"""
"""The container's script. Context and Dockerfile must be in the commit, not links to the credentials."""


def fetch_container(request: BuildRequest, image: str) -> dict[str, Any]:
    """Return the container that writes the commit's files into the workspace.

    Raises `Refused` when the repository, the commit or a path is not valid.
    """
    build = request.project.spec.build
    assert build is not None
    protocols = (*SAFE_PROTOCOLS, "http")
    variables = {
        "REPOSITORY": RepositoryAddress.parse(
            request.project.spec.source.repository_url, protocols=protocols
        ).url,
        "COMMIT": check_commit(request.commit),
        CONTEXT: str(check_path(build.context)),
        DOCKERFILE: str(check_path(build.dockerfile)),
        "WORKSPACE": _WORKSPACE,
        "CREDENTIALS": _CREDENTIALS,
        "BUILDKITD_CONFIG": _buildkitd_config(request),
        "HOME": "/tmp",  # noqa: S108 - in the container
        **_git_variables(protocols),
    }
    mounts = [{"name": "workspace", "mountPath": _WORKSPACE}, {"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108
    if request.source is not None:
        mounts.append({"name": "git", "mountPath": _CREDENTIALS})
    return {
        "name": "source",
        "image": image,
        "command": ["/bin/sh", "-euc", SOURCE_SCRIPT],
        "env": [{"name": name, "value": value} for name, value in variables.items()],
        "volumeMounts": mounts,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
    }


def _buildkitd_config(request: BuildRequest) -> str:
    """Return the configuration of buildkitd: an insecure registry is also one to pull base images from."""
    if not request.insecure:
        return ""
    return f'[registry."{request.image.registry}"]\nhttp = true\ninsecure = true'


def workspace_path(*parts: str) -> str:
    """Return the path of a file of the repository in the containers of a build.

    Raises `Refused` when it leaves the repository.
    """
    path = check_path("/".join(parts))
    return f"{_WORKSPACE}/source/{path}" if str(path) != "." else f"{_WORKSPACE}/source"


def credentials_secret(request: BuildRequest) -> dict[str, Any] | None:
    """Return the Secret with the credentials of this build to fetch and to push, or None if it needs none."""
    texts: dict[str, str] = {}
    if request.source is not None:
        texts |= {
            "git.username": request.source.username,
            "git.password": request.source.password,
            "git.ssh-key": request.source.ssh_key,
            "git.known_hosts": request.source.known_hosts,
            "git.ca.crt": request.source.authority,
        }
    for key, login in ((PUSH_KEY, request.push), (PULL_KEY, request.pull)):
        if login is not None:
            texts[key] = docker_config(request.image.registry, login)
    data = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items() if text}
    if not data:
        return None
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": request.name},
        "type": "Opaque",
        "data": data,
    }


def _git_variables(protocols: tuple[str, ...]) -> dict[str, str]:
    variables = {
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": ":".join(protocols),
        "GIT_LFS_SKIP_SMUDGE": "1",
        "GIT_CONFIG_COUNT": str(len(HARDENED)),
    }
    for number, (key, value) in enumerate(HARDENED.items()):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return variables
