"""Tokens from an OpenID Connect issuer: the `oidc` auth-provider of a kubeconfig."""

import asyncio
import base64
import ssl
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import aiohttp
import msgspec
import structlog

from kapsa.runtime.client.auth.credentials import (
    Credential,
    RereadFile,
    basic_header,
    bearer_header,
    content_of,
)
from kapsa.runtime.client.auth.tls import client_context
from kapsa.runtime.clock import Clock
from kapsa.runtime.errors import ConfigError, CredentialError

__all__ = ["OidcProvider"]

T = TypeVar("T")

_log = structlog.get_logger(__name__)

_MARGIN = timedelta(seconds=10)
_TIMEOUT = 20.0
_RESPONSE_LIMIT = 1024 * 1024

Persist = Callable[[Mapping[str, str]], None]
"""Saves the new `id-token` and `refresh-token`: an issuer that rotates refresh tokens revokes the old one."""


class _Claims(msgspec.Struct, frozen=True):
    exp: float = 0


class _Endpoints(msgspec.Struct, frozen=True):
    token_endpoint: str = ""


class _Tokens(msgspec.Struct, frozen=True):
    id_token: str = ""
    refresh_token: str = ""
    error: str = ""
    error_description: str = ""


class OidcProvider:
    """A provider of the id-token. Once it expires, the refresh-token gets a new one, once for all callers."""

    def __init__(
        self,
        config: Mapping[str, str],
        *,
        origin: str,
        authority: bytes | RereadFile | None,
        clock: Clock,
        persist: Persist | None = None,
    ) -> None:
        """Take the config of a kubeconfig; `origin` names it in errors, `authority` verifies the issuer."""
        for required in ("idp-issuer-url", "client-id"):
            if not config.get(required):
                raise ConfigError(f"{origin}.{required} is missing")
        self._origin = origin
        self._issuer = config["idp-issuer-url"].rstrip("/")
        self._client = config["client-id"]
        self._secret = config.get("client-secret", "")
        self._id_token = config.get("id-token", "")
        self._refresh_token = config.get("refresh-token", "")
        self._authority = authority
        self._clock = clock
        self._persist = persist
        self._reported_loss = False
        self._current: Credential | None = None
        self._expires = expiry(self._id_token)
        self._lock = asyncio.Lock()
        self._tls()  # reports an invalid authority now, not at the first request

    async def current(self) -> Credential:
        if self._usable():
            assert self._current is not None
            return self._current
        async with self._lock:
            if not self._usable():
                self._current = await self._obtain()
            assert self._current is not None
            return self._current

    async def rejected(self, used: Credential) -> bool:
        if not self._refresh_token:
            return False
        if used is self._current:
            self._current, self._id_token = None, ""
        return True

    def _usable(self) -> bool:
        return self._current is not None and self._clock.now() < self._expires - _MARGIN

    async def _obtain(self) -> Credential:
        if not self._id_token or self._clock.now() >= self._expires - _MARGIN:
            await self._refresh()
        return Credential((bearer_header(self._id_token),))

    async def _refresh(self) -> None:
        if not self._refresh_token:
            raise CredentialError(
                f"the id-token of {self._issuer} has expired and there is no refresh-token; log in again"
            )
        tokens = await self._exchange()
        if not tokens.id_token:
            reason = tokens.error_description or tokens.error or "the response has no id_token"
            raise CredentialError(f"{self._issuer} did not renew the token: {reason}; log in again")
        self._id_token = tokens.id_token
        self._refresh_token = tokens.refresh_token or self._refresh_token
        self._expires = expiry(self._id_token)
        self._save()

    def _save(self) -> None:
        """Write the new tokens back. They are used even if that fails, as on a read-only volume."""
        if self._persist is None:
            return
        try:
            self._persist({"id-token": self._id_token, "refresh-token": self._refresh_token})
        except Exception as error:
            if not self._reported_loss:
                # Only the system's own messages are safe to log: others may quote the file, and so the tokens
                # in it.
                reason = str(error) if isinstance(error, OSError) else type(error).__name__
                _log.warning(
                    "cannot write the renewed token back; you may need to log in again after a restart",
                    field=self._origin,
                    error=reason,
                )
            self._reported_loss = True

    def _tls(self) -> ssl.SSLContext | bool:
        authority = content_of(self._authority)
        if not authority:
            return True
        try:
            return client_context(ca=authority)
        except ConfigError as error:
            raise ConfigError(f"{self._origin}.idp-certificate-authority: {error}") from error

    async def _exchange(self) -> _Tokens:
        limits = aiohttp.ClientTimeout(total=_TIMEOUT)
        tls = self._tls()
        try:
            async with aiohttp.ClientSession(timeout=limits) as session:
                document = f"{self._issuer}/.well-known/openid-configuration"
                async with session.get(document, ssl=tls, allow_redirects=False) as response:
                    if response.status != 200:
                        raise CredentialError(f"{document} returned status {response.status}")
                    endpoints = await _read(response, _Endpoints)
                form = {
                    "grant_type": "refresh_token",
                    "refresh_token": self._refresh_token,
                    "client_id": self._client,
                }
                headers = dict([basic_header(self._client, self._secret)]) if self._secret else {}
                async with session.post(
                    endpoints.token_endpoint, data=form, headers=headers, ssl=tls, allow_redirects=False
                ) as response:
                    return await _read(response, _Tokens)
        except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError) as error:
            raise CredentialError(f"cannot get a token from {self._issuer}: {error}") from error


async def _read(response: aiohttp.ClientResponse, kind: type[T]) -> T:
    content = bytearray()
    async for chunk in response.content.iter_any():
        content += chunk
        if len(content) > _RESPONSE_LIMIT:
            raise CredentialError(f"{response.url} returned more than 1 MB")
    return msgspec.json.decode(content, type=kind)


def expiry(token: str) -> datetime:
    """Return the expiry that a token claims. Its signature is not verified here: the API server does that."""
    try:
        payload = token.split(".")[1]
        padded = payload + "=" * (-len(payload) % 4)
        claims = msgspec.json.decode(base64.urlsafe_b64decode(padded), type=_Claims)
        return datetime.fromtimestamp(claims.exp, UTC)
    except (IndexError, ValueError, OverflowError, msgspec.DecodeError):
        return datetime.min.replace(tzinfo=UTC) + _MARGIN
