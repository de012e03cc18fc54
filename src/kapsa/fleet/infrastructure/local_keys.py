"""Generated keys in the data directory, for a start with nothing configured: one that seals, one that signs tokens."""

import os
from datetime import datetime, timedelta
from pathlib import Path

import jwt
import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from kapsa.fleet.domain.principals import Principal, Role
from kapsa.fleet.infrastructure.vault.encryption_keys import (
    KeyRingError,
    check_private,
    new_key_text,
    write_private,
)

__all__ = ["LOCAL_ISSUER", "LocalKeys"]

log = structlog.get_logger(__name__)

LOCAL_ISSUER = "kapsa-fleet-local"
"""The issuer of tokens for development."""


class LocalKeys:
    """The keys of a data directory. Each is generated when it is first needed, with a warning."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.encryption_keys_file = directory / "encryption.keys"
        self.signing_key_file = directory / "signing.key"

    def ensure_encryption_keys(self) -> Path:
        """Return the file of the encryption keys, with a new key if there is no file."""
        content = new_key_text() + "\n"
        if self._create(self.encryption_keys_file, content):
            log.warning(
                "generated an encryption key: back it up with the database, or set KAPSA_FLEET_ENCRYPTION_KEYS_FILE",
                file=str(self.encryption_keys_file),
            )
        return self.encryption_keys_file

    def ensure_signing_key(self) -> Ed25519PrivateKey:
        """Return the key that signs tokens for development, a new one if there is none."""
        fresh = Ed25519PrivateKey.generate()
        text = fresh.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        if self._create(self.signing_key_file, text):
            log.warning(
                "generated a key for tokens of `kapsa fleet token`: for development only, "
                "set KAPSA_FLEET_JWT_ISSUER in production",
                file=str(self.signing_key_file),
            )
        return self.signing_key()

    def signing_key(self) -> Ed25519PrivateKey:
        """Return the existing key that signs tokens for development."""
        try:
            with self.signing_key_file.open("rb") as file:
                check_private(self.signing_key_file, os.fstat(file.fileno()))
                key = load_pem_private_key(file.read(10_000), None)
        except OSError as error:
            raise KeyRingError(
                f"the signing key {self.signing_key_file} cannot be read: {error.strerror}. "
                "`kapsa fleet serve` makes it with its first start"
            ) from None
        except (ValueError, TypeError):
            raise KeyRingError(
                f"{self.signing_key_file} is not a private key: delete it to make a new one"
            ) from None
        if not isinstance(key, Ed25519PrivateKey):
            raise KeyRingError(f"{self.signing_key_file} is not an Ed25519 key: delete it to make a new one")
        return key

    def mint_token(self, principal: Principal, audience: str, lifetime: timedelta, now: datetime) -> str:
        """Return a token for development, which says that its bearer is this principal."""
        claims = {
            "iss": LOCAL_ISSUER,
            "aud": audience,
            "sub": principal.subject,
            "iat": now,
            "nbf": now,
            "exp": now + lifetime,
            "roles": sorted(_role_texts(principal)),
            **({"email": principal.email} if principal.email else {}),
        }
        return jwt.encode(claims, self.signing_key(), algorithm="EdDSA")

    def _create(self, path: Path, content: str) -> bool:
        """Create a file that only we can read. Return False if there is one already, also from another process."""
        if path.exists():
            return False
        if not self._directory.exists():
            self._directory.mkdir(parents=True)
            # As root, the embedded server runs as another user and must pass through; each key has its own mode.
            self._directory.chmod(0o711 if os.geteuid() == 0 else 0o700)
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        write_private(aside, content)
        try:
            os.link(aside, path)
        except FileExistsError:
            return False
        finally:
            aside.unlink()
        return True


def _role_texts(principal: Principal) -> list[str]:
    owned = [f"{Role.ENVIRONMENT_OWNER}:{environment}" for environment in principal.owned]
    return [*(role for role in principal.roles if role is not Role.ENVIRONMENT_OWNER), *owned]
