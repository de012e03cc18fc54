"""Who we are to a registry: a name and a password, or what `.dockerconfigjson` holds for it."""

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
    """A name and a password, or a refresh token that takes their place."""

    username: str = ""
    password: str = ""
    identity_token: str = ""

    @classmethod
    def from_secret(cls, secret: Mapping[str, Any], registry: str) -> RegistryCredentials:
        """What a Secret holds for a registry (`host`, `host:port` or `host/path`).

        :raises AuthFailed: it holds nothing for it.
        """
        data = decoded_secret(secret)
        if ".dockerconfigjson" in data:
            return cls._from_docker_config(data[".dockerconfigjson"], registry)
        if data.get("username") and data.get("password"):
            return cls(username=data["username"], password=data["password"])
        raise AuthFailed("the Secret for the registry holds no credentials", hint=_HINT)

    @classmethod
    def _from_docker_config(cls, text: str, registry: str) -> RegistryCredentials:
        try:
            entries = msgspec.json.decode(text.encode(), type=_DockerConfig).auths
        except (msgspec.DecodeError, UnicodeEncodeError):
            raise AuthFailed(
                ".dockerconfigjson of the Secret is not what docker writes", hint=_HINT
            ) from None
        wanted = _key(registry)
        # The longest fits best: an entry can be for a part of a registry.
        fitting = sorted((key for key in entries if _covers(_key(key), wanted)), key=len)
        if not fitting:
            raise AuthFailed(f".dockerconfigjson of the Secret has no entry for {registry}", hint=_HINT)
        return entries[fitting[-1]].credentials(registry)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must never be shown."""
        return tuple(secret for secret in (self.password, self.identity_token) if secret)

    @property
    def basic(self) -> str:
        """The value of an Authorization header."""
        return "Basic " + base64.b64encode(f"{self.username}:{self.password}".encode()).decode()

    def __repr__(self) -> str:
        return "RegistryCredentials(...)"  # they must not get into a log


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
    """The content of `.dockerconfigjson` that lets a node pull, or a build push, with these credentials."""
    entry: dict[str, str] = {}
    if credentials.password:
        entry["auth"] = credentials.basic.removeprefix("Basic ")
    if credentials.identity_token:
        entry["identitytoken"] = credentials.identity_token
    key = _key(registry)
    key = _HUB_KEY if key == DOCKER_HUB else key
    return msgspec.json.encode({"auths": {key: entry}}, order="sorted").decode()


def _key(name: str) -> str:
    """A registry's name in a common form: without protocol, and Docker Hub by one name, whoever's images they are."""
    host, path = split_endpoint(name)
    return host if host == DOCKER_HUB or not path else f"{host}/{path}"


def _covers(entry: str, wanted: str) -> bool:
    return wanted == entry or wanted.startswith(f"{entry}/")
