"""The certificate of the API: loaded again when its files change, so that a renewal needs no restart."""

import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import structlog
from cryptography import x509

__all__ = ["ServedCertificate"]

log = structlog.get_logger(__name__)

_WARNING = timedelta(days=14)
"""The time before its expiry from which on a certificate is a warning in the log, once a day."""
_DAY = timedelta(days=1)


class ServedCertificate:
    """A certificate and its key in files. New connections get the newest pair that is valid."""

    def __init__(
        self,
        context: ssl.SSLContext,
        certificate: Path,
        key: Path,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._context = self._newest = context
        context.sni_callback = self._choose
        self._certificate = certificate
        self._key = key
        self._now = now
        self._stamps = self._current_stamps()
        self._expires_at = _expiry(certificate)
        self._warned_at: datetime | None = None

    async def reload(self) -> bool:
        """Load the files again if they have changed. Return whether a new certificate is in use.

        A pair that does not fit, such as half of a renewal, is logged, and the certificate before stays in use.
        """
        renewed = self._renew()
        self._warn()
        return renewed

    def _renew(self) -> bool:
        stamps = self._current_stamps()
        if stamps is None or stamps == self._stamps:
            return False
        self._stamps = stamps
        try:
            self._newest = self._loaded()
            self._expires_at = _expiry(self._certificate)
        except (OSError, ValueError) as error:
            log.error(  # noqa: TRY400 - the cause is in the file
                "the changed certificate of the API is not used: correct the files",
                certificate=str(self._certificate),
                key=str(self._key),
                error=str(error),
            )
            return False
        self._warned_at = None
        log.info(
            "the certificate of the API was renewed", valid_until=f"{self._expires_at:%Y-%m-%d %H:%M} UTC"
        )
        return True

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        """Let a new connection use the newest pair. It is called for clients that send no name, too."""
        connection.context = self._newest

    def _loaded(self) -> ssl.SSLContext:
        """Return a context with the pair in the files.

        A context keeps one pair for each type of key: with another type, the one that is in use would serve both.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = self._context.minimum_version
        context.load_cert_chain(self._certificate, self._key, password=_refuse_password)
        return context

    def _warn(self) -> None:
        now = self._now()
        soon = self._expires_at - now <= _WARNING
        if soon and (self._warned_at is None or now - self._warned_at >= _DAY):
            self._warned_at = now
            log.warning(
                f"the certificate of the API {'expires soon' if self._expires_at > now else 'has expired'}: replace it",
                certificate=str(self._certificate),
                valid_until=f"{self._expires_at:%Y-%m-%d %H:%M} UTC",
            )

    def _current_stamps(self) -> tuple[tuple[int, int, int], ...] | None:
        try:
            statuses = [path.stat() for path in (self._certificate, self._key)]
        except OSError:
            return None  # being replaced: what is loaded stays in use
        return tuple((each.st_ino, each.st_mtime_ns, each.st_size) for each in statuses)


def _refuse_password() -> str:
    """Raise ValueError in place of a question on the terminal, which would stop the manager."""
    raise ValueError("the key is encrypted: store it without a password")


def _expiry(path: Path) -> datetime:
    return x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
