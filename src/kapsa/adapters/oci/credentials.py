"""Credentials for a registry: a user name and password, or the entry of a `.dockerconfigjson`."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import msgspec

from kapsa.adapters.errors import AuthFailed
from kapsa.adapters.oci.image_reference import DOCKER_HUB, split_endpoint
from kapsa.adapters.secret_data import decoded_secret

__all__ = ["RegistryCredentials", "docker_config"]

_HUB_KEY = "https://index.docker.io/v1/"
_HINT = "The Secret needs username and password, or .dockerconfigjson with an entry for the registry"


class RegistryCredentials(msgspec.Struct, frozen=True, kw_only=True):
    """A user name and password, or a refresh token instead of them."""

    username: str = ""
    password: str = ""
    identity_token: str = ""

    @classmethod
    def from_secret(cls, secret: Mapping[str, Any], registry: str) -> RegistryCredentials:
        """Read the credentials for a registry (`host`, `host:port` or `host/path`) from a Secret.

        Raises `AuthFailed` when the Secret has none.
        """
        data = decoded_secret(secret)
        if ".dockerconfigjson" in data:
            return cls._from_docker_config(data[".dockerconfigjson"], registry)
        if data.get("username") and data.get("password"):
            return cls(username=data["username"], password=data["password"])
        raise AuthFailed("the Secret for the registry has no credentials", hint=_HINT)

    @classmethod
    def _from_docker_config(cls, text: str, registry: str) -> RegistryCredentials:
        try:
            entries = msgspec.json.decode(text.encode(), type=_DockerConfig).auths
        except (msgspec.DecodeError, UnicodeEncodeError):
            raise AuthFailed(
                ".dockerconfigjson of the Secret is not a valid docker configuration", hint=_HINT
            ) from None
        name = _key(registry)
        # The longest match wins: an entry can be for a part of a registry.
        matches = sorted((key for key in entries if _covers(_key(key), name)), key=len)
        if not matches:
            raise AuthFailed(f".dockerconfigjson of the Secret has no entry for {registry}", hint=_HINT)
        return entries[matches[-1]].credentials(registry)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that must never be shown."""
        return tuple(secret for secret in (self.password, self.identity_token) if secret)

    @property
    def basic(self) -> str:
        """The value of an Authorization header."""
        return "Basic " + base64.b64encode(f"{self.username}:{self.password}".encode()).decode()

    def __repr__(self) -> str:
        return "RegistryCredentials(...)"  # the values must not appear in logs


class _DockerEntry(msgspec.Struct, frozen=True):
    auth: str = ""
    username: str = ""
    password: str = ""
    identitytoken: str = ""

    def credentials(self, registry: str) -> RegistryCredentials:
        name, password = self.username, self.password
        if self.auth:
            try:
                name, _, password = base64.b64decode(self.auth).decode().partition(":")
            except (binascii.Error, ValueError):
                raise AuthFailed(
                    f".dockerconfigjson of the Secret: auth for {registry} is not base64", hint=_HINT
                ) from None
        if not (name and password) and not self.identitytoken:
            raise AuthFailed(f".dockerconfigjson of the Secret has no password for {registry}", hint=_HINT)
        return RegistryCredentials(username=name, password=password, identity_token=self.identitytoken)


class _DockerConfig(msgspec.Struct, frozen=True):
    auths: dict[str, _DockerEntry] = {}


def docker_config(registry: str, credentials: RegistryCredentials) -> str:
    """Return a `.dockerconfigjson` with these credentials, for a node to pull or a build to push with."""
    entry: dict[str, str] = {}
    if credentials.password:
        entry["auth"] = credentials.basic.removeprefix("Basic ")
    if credentials.identity_token:
        entry["identitytoken"] = credentials.identity_token
    key = _key(registry)
    key = _HUB_KEY if key == DOCKER_HUB else key
    return msgspec.json.encode({"auths": {key: entry}}, order="sorted").decode()


def _key(name: str) -> str:
    """Return the normalized name of a registry: without the protocol, and with one name for Docker Hub."""
    host, path = split_endpoint(name)
    return host if host == DOCKER_HUB or not path else f"{host}/{path}"


def _covers(entry: str, registry: str) -> bool:
    return registry == entry or registry.startswith(f"{entry}/")
