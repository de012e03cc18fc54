"""Credentials for a git server: read from a Secret, and passed to git through files in memory."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from kapsa.adapters.errors import AuthFailed
from kapsa.adapters.git._secret_files import SecretFiles, write_private
from kapsa.adapters.git.address import RepositoryAddress
from kapsa.adapters.secret_data import decoded_secret

__all__ = ["GitCredentials"]

_TOKEN_USER = "git"  # noqa: S105 - the user name that servers accept with a token
_BAD_SECRET = "The Secret needs username and password, or token, or ssh-privatekey and known_hosts"  # noqa: S105


class GitCredentials(msgspec.Struct, frozen=True, kw_only=True):
    """A user name and password (or token) for https, or a private key and known hosts for ssh."""

    username: str = ""
    password: str = ""
    ssh_key: str = ""
    known_hosts: str = ""
    authority: str = ""
    """PEM certificates of the server's authority; the system's authorities if empty."""

    @classmethod
    def from_secret(cls, secret: Mapping[str, Any]) -> GitCredentials:
        """Read a Secret of type `basic-auth` or `ssh-auth`, or an opaque one with `token`.

        Raises `AuthFailed` when the Secret has no credentials.
        """
        data = decoded_secret(secret)
        token = data.get("token") or data.get("bearerToken", "")
        password = data.get("password", "") or token
        key = data.get("ssh-privatekey") or data.get("identity", "")
        if not password and not key:
            raise AuthFailed("the Secret for git has no credentials", hint=_BAD_SECRET)
        if key and not data.get("known_hosts"):
            raise AuthFailed(
                "the Secret for git has a private key but no known_hosts, so the server cannot be verified",
                hint="Add known_hosts with the output of ssh-keyscan for the server",
            )
        return cls(
            username=data.get("username", "") or (_TOKEN_USER if password else ""),
            password=password,
            ssh_key=f"{key.rstrip()}\n" if key else "",
            known_hosts=data.get("known_hosts", ""),
            authority=data.get("ca.crt", ""),
        )

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that must never be shown."""
        return tuple(secret for secret in (self.password, self.ssh_key) if secret)

    def __repr__(self) -> str:
        return "GitCredentials(...)"  # the values must not appear in logs

    def environment(self, directory: Path, address: RepositoryAddress, files: SecretFiles) -> dict[str, str]:
        """Return the variables that point git to the credentials. Scripts without secrets go to the directory,
        the secrets to `files`."""
        if address.protocol == "ssh":
            return self._for_ssh(directory, files)
        environment = {}
        if self.authority:
            write_private(directory / "authority.pem", self.authority)
            environment["GIT_SSL_CAINFO"] = str(directory / "authority.pem")
        if self.password:
            # Some servers take the token as the user name.
            name, password = files.add("username", self.username), files.add("password", self.password)
            write_private(directory / "askpass", _askpass(name, password, address), mode=0o700)
            environment["GIT_ASKPASS"] = str(directory / "askpass")
        return environment

    def _for_ssh(self, directory: Path, files: SecretFiles) -> dict[str, str]:
        if not self.ssh_key:
            raise AuthFailed("an ssh repository needs a private key", hint=_BAD_SECRET)
        write_private(directory / "known_hosts", f"{self.known_hosts.rstrip()}\n")
        key = files.add("key", self.ssh_key)
        write_private(directory / "ssh", _ssh(directory, key), mode=0o700)
        return {"GIT_SSH": str(directory / "ssh"), "GIT_SSH_VARIANT": "ssh"}


def _askpass(name_file: Path, password_file: Path, address: RepositoryAddress) -> str:
    """Return a script that prints user name and password for this server, and fails for any other."""
    host = f"[{address.host}]" if ":" in address.host else address.host
    origin = f"{host}:{address.port}" if address.port else host
    name, password = (shlex.quote(str(file)) for file in (name_file, password_file))
    server = shlex.quote(f"{address.protocol}://{origin}'")
    with_user = shlex.quote(f"@{origin}'")
    return (
        "#!/bin/sh\n"
        'case "$1" in\n'
        f'"Username for \'"{server}*) exec cat {name} ;;\n'
        f'"Password for \'"{shlex.quote(f"{address.protocol}://")}*{with_user}*) exec cat {password} ;;\n'
        "esac\n"
        "exit 1\n"
    )


def _ssh(directory: Path, key: Path) -> str:
    options = {
        "BatchMode": "yes",
        "StrictHostKeyChecking": "yes",
        "UserKnownHostsFile": str(directory / "known_hosts"),
        "GlobalKnownHostsFile": "/dev/null",
        "IdentityFile": str(key),
        "IdentitiesOnly": "yes",
        "IdentityAgent": "none",
        "PermitLocalCommand": "no",
        "ForwardAgent": "no",
        "ClearAllForwardings": "yes",
        "UpdateHostKeys": "no",
        "ConnectTimeout": "15",
        "ServerAliveInterval": "15",
        "ServerAliveCountMax": "3",
    }
    given = " ".join(f"-o {shlex.quote(f'{name}={value}')}" for name, value in options.items())
    return f'#!/bin/sh\nexec ssh -F /dev/null {given} "$@"\n'
