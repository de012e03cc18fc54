"""The keys of an issuer (JWKS): fetched, cached, and fetched again for a key that is not among them.

An unknown key id causes at most one fetch in a while, whatever callers send: key ids are not trusted.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import jwt
import msgspec
import structlog

from kapsa.adapters.errors import ExternalError
from kapsa.adapters.http.client import HttpClient
from kapsa.fleet.api.authentication.keys import TokenKey, UnusableKeyError, token_key

__all__ = ["IssuerKeys"]

log = structlog.get_logger(__name__)

_LARGEST = 256 * 1024
_MOST_KEYS = 100
_FRESH = 600.0
"""Seconds until the keys are fetched again: a key that the issuer withdrew is accepted no longer than that."""
_BETWEEN_FETCHES = 10.0
_STALE = 3600.0
"""Seconds for which keys are used if the issuer does not answer."""


class _KeySet(msgspec.Struct, frozen=True):
    keys: list[dict[str, Any]]


class IssuerKeys:
    """The keys of an issuer."""

    def __init__(
        self, http: HttpClient, url: str, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._http = http
        self._url = url
        self._monotonic = monotonic
        self._keys: Mapping[str | None, TokenKey] = {}
        self._fetched_at = float("-inf")
        self._tried_at = float("-inf")
        self._fetching = asyncio.Lock()

    async def find(self, key_id: str | None) -> TokenKey | None:
        """Return the key with this id. A token without an id has the issuer's only key, if it has just one."""
        if self._age() > _FRESH or not self._has(key_id):
            await self._refresh(key_id)
        if self._age() > _STALE:
            return None
        if key_id is None:
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(key_id)

    def _has(self, key_id: str | None) -> bool:
        return key_id in self._keys or (key_id is None and len(self._keys) == 1)

    def _age(self) -> float:
        return self._monotonic() - self._fetched_at

    async def _refresh(self, key_id: str | None) -> None:
        async with self._fetching:
            if self._age() <= _FRESH and self._has(key_id):
                return
            if self._monotonic() - self._tried_at < _BETWEEN_FETCHES:
                return
            self._tried_at = self._monotonic()
            try:
                self._keys = await self._fetch()
                self._fetched_at = self._monotonic()
            except (ExternalError, ValueError) as error:
                log.warning("the keys of the issuer cannot be fetched", url=self._url, error=str(error)[:300])

    async def _fetch(self) -> Mapping[str | None, TokenKey]:
        response = await self._http.fetch(
            "GET", self._url, headers={"Accept": "application/json"}, limit=_LARGEST
        )
        if response.status != 200:
            raise ValueError(f"the issuer answered {response.status}")
        entries = msgspec.json.decode(response.body, type=_KeySet).keys
        keys: dict[str | None, TokenKey] = {}
        for entry in entries[:_MOST_KEYS]:
            if (key := _usable(entry)) is not None:
                keys[entry["kid"] if isinstance(entry.get("kid"), str) else None] = key
        if not keys:
            raise ValueError("the document has no key that can be used")
        return keys


def _usable(entry: dict[str, Any]) -> TokenKey | None:
    """Return a key that signs tokens, or None: an issuer may publish others, too."""
    if entry.get("use", "sig") != "sig" or entry.get("kty") not in ("OKP", "EC", "RSA"):
        return None
    try:
        key = token_key(jwt.PyJWK(entry).key)
    except (jwt.PyJWTError, UnusableKeyError, ValueError, TypeError, KeyError):
        return None
    return key if entry.get("alg", key.algorithm) == key.algorithm else None
