"""Credentials for a git server: read from a Secret, and passed to git through private files."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from kapsa.adapters.errors import AuthFailed
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

    def environment(self, directory: Path, address: RepositoryAddress) -> dict[str, str]:
        """Write the credentials into a private directory. Return the variables that point git to them."""
        if address.protocol == "ssh":
            return self._for_ssh(directory)
        environment = {}
        if self.authority:
            _write(directory / "authority.pem", self.authority)
            environment["GIT_SSL_CAINFO"] = str(directory / "authority.pem")
        if self.password:
            _write(directory / "username", self.username)
            _write(directory / "password", self.password)
            _write(directory / "askpass", _askpass(directory, address), mode=0o700)
            environment["GIT_ASKPASS"] = str(directory / "askpass")
        return environment

    def _for_ssh(self, directory: Path) -> dict[str, str]:
        if not self.ssh_key:
            raise AuthFailed("an ssh repository needs a private key", hint=_BAD_SECRET)
        _write(directory / "key", self.ssh_key)
        _write(directory / "known_hosts", f"{self.known_hosts.rstrip()}\n")
        _write(directory / "ssh", _ssh(directory), mode=0o700)
        return {"GIT_SSH": str(directory / "ssh"), "GIT_SSH_VARIANT": "ssh"}


def _write(path: Path, content: str, *, mode: int = 0o600) -> None:
    path.touch(mode=mode)
    path.chmod(mode)
    path.write_text(content)


def _askpass(directory: Path, address: RepositoryAddress) -> str:
    """Return a script that prints user name and password for this server, and fails for any other."""
    host = f"[{address.host}]" if ":" in address.host else address.host
    origin = f"{host}:{address.port}" if address.port else host
    name, password = (shlex.quote(str(directory / part)) for part in ("username", "password"))
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


def _ssh(directory: Path) -> str:
    options = {
        "BatchMode": "yes",
        "StrictHostKeyChecking": "yes",
        "UserKnownHostsFile": str(directory / "known_hosts"),
        "GlobalKnownHostsFile": "/dev/null",
        "IdentityFile": str(directory / "key"),
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
