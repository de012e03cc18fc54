"""A server that speaks the part of Vault's API that the transit engine has, with keys in memory."""

from __future__ import annotations

import base64
import secrets
from typing import Any

from aiohttp import web
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from kapsa.adapters.testing._loopback_server import LoopbackServer
from kapsa.adapters.testing._received_request import ReceivedRequest

__all__ = ["VaultServer"]

_NONCE = 12


class VaultServer(LoopbackServer):
    """A Vault with one key in its transit engine, which tests rotate, seal and take away."""

    def __init__(self, *, mount: str = "transit", key: str = "fleet", token: str = "vault-token") -> None:  # noqa: S107
        super().__init__()
        self.mount, self.key, self.token = mount, key, token
        self.sealed = False
        self.away = False
        """True to close each connection without an answer."""
        self.oldest = 1
        """The least version that decrypts: `min_decryption_version`."""
        self.plaintexts: list[bytes] = []
        """Everything that was to be encrypted, or was decrypted."""
        self._versions = [AESGCM.generate_key(256)]

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self.port}"

    def rotate(self) -> None:
        """Add a version of the key, as `vault write -f transit/keys/KEY/rotate` does."""
        self._versions.append(AESGCM.generate_key(256))

    def actions(self) -> list[str]:
        """Return the last word but one of each request's path: `keys`, `encrypt`, `decrypt` or `rewrap`."""
        return [request.path.split("/")[-2] for request in self.requests]

    async def respond(self, request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.requests.append(ReceivedRequest(request.method, request.path, headers))
        if self.away:
            if request.transport is not None:
                request.transport.close()
            return web.Response(status=500)
        if self.sealed:
            return _errors(503, "Vault is sealed")
        if headers.get("x-vault-token") != self.token:
            return _errors(403, "permission denied")
        prefix = f"/v1/{self.mount}/"
        if not request.path.startswith(prefix):
            return _errors(404, f'no handler for route "{request.path}". route entry not found.')
        action, _, name = request.path.removeprefix(prefix).partition("/")
        return self._act(action, name, await request.json() if request.method == "POST" else {})

    def _act(self, action: str, name: str, body: dict[str, Any]) -> web.Response:
        if name != self.key:
            return _errors(404) if action == "keys" else _errors(400, "encryption key not found")
        if action == "keys":
            versions = {str(number): 0 for number in range(self.oldest, len(self._versions) + 1)}
            return _data(
                name=name,
                type="aes256-gcm96",
                keys=versions,
                latest_version=len(self._versions),
                min_decryption_version=self.oldest,
                supports_encryption=True,
                supports_decryption=True,
            )
        if action == "encrypt":
            self.plaintexts.append(base64.b64decode(body["plaintext"]))
            return self._encrypted(self.plaintexts[-1])
        plain = self._decrypt(body["ciphertext"])
        if isinstance(plain, str):
            return _errors(400, plain)
        self.plaintexts.append(plain)
        if action == "rewrap":
            return self._encrypted(plain)
        return _data(plaintext=base64.b64encode(plain).decode())

    def _encrypted(self, plain: bytes) -> web.Response:
        nonce = secrets.token_bytes(_NONCE)
        content = base64.b64encode(nonce + AESGCM(self._versions[-1]).encrypt(nonce, plain, None)).decode()
        return _data(ciphertext=f"vault:v{len(self._versions)}:{content}", key_version=len(self._versions))

    def _decrypt(self, ciphertext: str) -> bytes | str:
        """Return the plaintext, or the error."""
        _, version, content = ciphertext.split(":", 2)
        number = int(version.removeprefix("v"))
        if number < self.oldest:
            return "ciphertext or signature version is disallowed by policy (too old)"
        raw = base64.b64decode(content)
        try:
            return AESGCM(self._versions[number - 1]).decrypt(raw[:_NONCE], raw[_NONCE:], None)
        except (InvalidTag, IndexError):
            return "cipher: message authentication failed"


def _data(**data: Any) -> web.Response:
    return web.json_response({"request_id": "test", "lease_id": "", "renewable": False, "data": data})


def _errors(status: int, *errors: str) -> web.Response:
    return web.json_response({"errors": list(errors)}, status=status)
