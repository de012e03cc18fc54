"""The HTTP API of Vault's transit engine: encrypt, decrypt and rewrap under a named key that never leaves Vault."""

import base64
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from kapsa.adapters.errors import ExternalError
from kapsa.adapters.http.client import HttpClient
from kapsa.fleet.orchestrator.ports.vault import VaultError, VaultUnavailable

__all__ = ["TransitAddress", "TransitApi", "TransitKeyInfo"]

Answer = TypeVar("Answer")

_LARGEST_RESPONSE = 1_000_000
_PAUSE = 2.0
"""Seconds for which no request is sent after several got no answer: each caller would wait for the timeout."""
_MOST_FAILURES = 3
"""Requests without an answer, and none with one in between, after which Vault is left alone for a moment."""


class TransitAddress(msgspec.Struct, frozen=True):
    """The place of a key in a Vault server, and the token for it."""

    url: str
    mount: str
    key: str
    namespace: str = ""
    token: str = ""
    token_file: Path | None = None
    """Read again for each request: an agent replaces it before the token expires."""

    def __repr__(self) -> str:
        return f"TransitAddress({self.name})"

    @property
    def name(self) -> str:
        """The key for messages."""
        return f"{self.mount}/keys/{self.key}"


class TransitKeyInfo(msgspec.Struct, frozen=True):
    """The versions of a key."""

    latest_version: int
    min_decryption_version: int = 1
    supports_encryption: bool = True
    supports_decryption: bool = True


class _Answer(msgspec.Struct, frozen=True):
    data: msgspec.Raw


class _Encrypted(msgspec.Struct, frozen=True):
    ciphertext: str


class _Decrypted(msgspec.Struct, frozen=True):
    plaintext: str


class TransitApi:
    """Requests about one key. No error has a token or a key in its text."""

    def __init__(
        self, client: HttpClient, address: TransitAddress, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._address = address
        self._monotonic = monotonic
        self._silent_until = 0.0
        self._failures = 0

    async def key_info(self) -> TransitKeyInfo:
        """Return the versions of the key. Raises VaultError if it does not exist or cannot encrypt."""
        info = await self._call("GET", "keys", None, TransitKeyInfo)
        if not info.supports_encryption or not info.supports_decryption:
            raise VaultError(
                f"the key {self._address.name} of Vault does not encrypt: use one of type aes256-gcm96"
            )
        return info

    async def encrypt(self, plaintext: bytes) -> str:
        """Return the ciphertext, `vault:vN:…`, under the newest version of the key."""
        body = {"plaintext": base64.b64encode(plaintext).decode()}
        return (await self._call("POST", "encrypt", body, _Encrypted)).ciphertext

    async def decrypt(self, ciphertext: str) -> bytes:
        """Return the plaintext."""
        answer = await self._call("POST", "decrypt", {"ciphertext": ciphertext}, _Decrypted)
        try:
            return base64.b64decode(answer.plaintext, validate=True)
        except ValueError:
            raise self._strange() from None

    async def rewrap(self, ciphertext: str) -> str:
        """Return the ciphertext under the newest version of the key. The plaintext stays in Vault."""
        return (await self._call("POST", "rewrap", {"ciphertext": ciphertext}, _Encrypted)).ciphertext

    async def _call(self, method: str, action: str, body: Any, kind: type[Answer]) -> Answer:
        address = self._address
        if self._monotonic() < self._silent_until:
            raise self._away("it did not answer a moment ago")
        try:
            response = await self._client.fetch(
                method,
                f"{address.url.rstrip('/')}/v1/{quote(address.mount)}/{action}/{quote(address.key, safe='')}",
                headers=self._headers(),
                body=b"" if body is None else msgspec.json.encode(body),
                limit=_LARGEST_RESPONSE,
            )
        except ExternalError as error:
            self._failures += 1
            if self._failures >= _MOST_FAILURES:
                self._silent_until = self._monotonic() + _PAUSE
            raise self._away(error.hint or error.reason) from None
        self._failures = 0
        if response.status != 200:
            raise self._failure(response.status, action, _reason(response.body))
        try:
            return msgspec.json.decode(msgspec.json.decode(response.body, type=_Answer).data, type=kind)
        except msgspec.DecodeError:
            raise self._strange() from None

    def _headers(self) -> dict[str, str]:
        headers = {"X-Vault-Request": "true", "X-Vault-Token": self._token()}
        if self._address.namespace:
            headers["X-Vault-Namespace"] = self._address.namespace
        return headers

    def _token(self) -> str:
        path = self._address.token_file
        if path is None:
            return self._address.token
        try:
            token = path.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise VaultUnavailable(f"the token for Vault in {path} cannot be read: {reason}") from None
        if not token or not token.isascii() or not token.isprintable():
            raise VaultUnavailable(f"{path} has no token for Vault: write one into it")
        return token

    def _away(self, reason: str) -> VaultUnavailable:
        return VaultUnavailable(
            f"Vault at {self._address.url} cannot be used: {reason}. Is it running and reachable?"
        )

    def _strange(self) -> VaultUnavailable:
        return self._away("its answer is not that of the transit engine")

    def _failure(self, status: int, action: str, reason: str) -> VaultError:
        """Return the error for an answer, with what to do about it."""
        address = self._address
        where = f"Vault at {address.url} answered {status}"
        because = f" ({reason})" if reason else ""
        if status == 403:
            return VaultUnavailable(
                f"{where} to {action}{because}: renew the token, and permit it to read {address.name} and to "
                f"update {address.mount}/encrypt, decrypt and rewrap/{address.key}"
            )
        if status == 404:
            return VaultError(
                f"{where}{because}: there is no key {address.name}. Create it with "
                f"`vault secrets enable -path={address.mount} transit` and `vault write -f {address.name}`"
            )
        if status == 400:
            return VaultError(
                f"{where} to {action}{because}: the ciphertext was changed, or its version of the key is below "
                "min_decryption_version"
            )
        if status == 503:
            return VaultUnavailable(f"{where}{because}: unseal it")
        if 300 <= status < 400:
            return VaultUnavailable(
                f"{where}, a redirect: set the address of the active node, or of its load balancer"
            )
        return VaultUnavailable(f"{where}{because}: the log of Vault has the cause")


def _reason(body: bytes) -> str:
    """Return the errors of an answer, on one line and not too long."""
    try:
        errors = msgspec.json.decode(body, type=dict[str, list[str]]).get("errors", [])
    except msgspec.DecodeError:
        return ""
    return " ".join("; ".join(errors).split())[:200]
