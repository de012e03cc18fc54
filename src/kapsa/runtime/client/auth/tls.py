"""TLS contexts of clients."""

import ssl
import tempfile
from pathlib import Path
from typing import NoReturn

from kapsa.runtime.errors import ConfigError

__all__ = ["client_context", "present"]

_NOT_A_PAIR = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED")
"""OpenSSL's reasons for a key that does not match its certificate."""


def client_context(
    *,
    ca: bytes | None = None,
    certificate: bytes | None = None,
    key: bytes | None = None,
    insecure: bool = False,
    also: bytes | None = None,
) -> ssl.SSLContext:
    """Return a context that trusts `ca` (or else the system's store, and `also` with it).

    It presents the certificate, if one is given.

    All arguments are PEM. `insecure` turns verification off; only a user's explicit setting may set it.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif ca is None:
        context.load_default_certs()
        if also is not None:
            _trust(context, also)
    else:
        _trust(context, ca)
    if certificate is not None or key is not None:
        if certificate is None or key is None:
            raise ConfigError(
                "a client certificate needs its key, and a key its certificate; one of them is missing"
            )
        present(context, certificate, key)
    return context


def _trust(context: ssl.SSLContext, ca: bytes) -> None:
    try:
        context.load_verify_locations(cadata=ca.decode("ascii"))
    except (UnicodeDecodeError, ssl.SSLError, ValueError) as error:
        raise ConfigError(f"the certificate authority is not a PEM certificate: {error}") from error


def present(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Make a context present this certificate from the next handshake on."""
    # OpenSSL reads the chain only from files. They exist, readable only by this user, during this call.
    with tempfile.TemporaryDirectory(prefix="kapsa-tls-") as directory:
        chain, private = Path(directory, "chain.pem"), Path(directory, "key.pem")
        for path, content in ((chain, certificate), (private, key)):
            path.touch(mode=0o600)
            path.write_bytes(content)
        try:
            context.load_cert_chain(chain, private, password=_reject_passphrase)
        except ssl.SSLError as error:
            if error.reason in _NOT_A_PAIR:
                raise ConfigError("the private key does not match the certificate") from error
            raise ConfigError(f"cannot use the certificate and its key: {error}") from error
        except (ValueError, OSError) as error:
            raise ConfigError(f"cannot use the certificate and its key: {error}") from error


def _reject_passphrase() -> NoReturn:
    raise ConfigError("the private key is encrypted; store it without a passphrase")
