"""TLS contexts for talking to clusters."""

import ssl
import tempfile
from pathlib import Path
from typing import NoReturn

from kapsa.runtime.errors import ConfigError

__all__ = ["client_context", "present"]

_NOT_A_PAIR = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED")
"""What OpenSSL calls a key and a certificate that do not belong together."""


def client_context(
    *,
    ca: bytes | None = None,
    certificate: bytes | None = None,
    key: bytes | None = None,
    insecure: bool = False,
) -> ssl.SSLContext:
    """A context that trusts `ca` alone (the system's store without it) and shows our certificate if we have one.

    All arguments are PEM. `insecure` trusts anyone, and is only ever set by someone who asked for it.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif ca is None:
        context.load_default_certs()
    else:
        _trust(context, ca)
    if certificate is not None or key is not None:
        if certificate is None or key is None:
            raise ConfigError("a client certificate and its key come together; one of them is missing")
        present(context, certificate, key)
    return context


def _trust(context: ssl.SSLContext, ca: bytes) -> None:
    try:
        context.load_verify_locations(cadata=ca.decode("ascii"))
    except (UnicodeDecodeError, ssl.SSLError, ValueError) as error:
        raise ConfigError(f"the certificate authority is not a PEM certificate: {error}") from error


def present(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Have the context show this certificate from the next handshake on."""
    # OpenSSL takes the chain from files only. They live, readable by us alone, for the length of this call.
    with tempfile.TemporaryDirectory(prefix="kapsa-tls-") as directory:
        chain, private = Path(directory, "chain.pem"), Path(directory, "key.pem")
        for path, content in ((chain, certificate), (private, key)):
            path.touch(mode=0o600)
            path.write_bytes(content)
        try:
            context.load_cert_chain(chain, private, password=_refuse_passphrase)
        except ssl.SSLError as error:
            if error.reason in _NOT_A_PAIR:
                raise ConfigError("the client's key does not belong to its certificate") from error
            raise ConfigError(f"the certificate and key can't be used: {error}") from error
        except (ValueError, OSError) as error:
            raise ConfigError(f"the certificate and key can't be used: {error}") from error


def _refuse_passphrase() -> NoReturn:
    raise ConfigError("the private key is encrypted; store it without a passphrase")
