"""Certificates of webhooks: one that expires soon is a warning, long before a check fails.

Only the API server sees the certificate that a webhook serves. The authority that verifies it and the Secret that the
controller mounts can be read.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

__all__ = ["CertificateFacts", "CertificateReading", "judge_certificates"]

_AHEAD = timedelta(days=14)
_MOST_WARNINGS = 20


class CertificateFacts(msgspec.Struct, frozen=True):
    """A certificate that a webhook depends on."""

    source: str
    """The object that has it: `caBundle of webhook x`, `Secret operators/serving-cert`."""
    expires_at: datetime


class CertificateReading(msgspec.Struct, frozen=True, rename="camel"):
    """The certificates of an operator's webhooks at a time."""

    checked_at: datetime
    warnings: tuple[str, ...] = ()
    """One sentence for each that has expired or does so within 14 days."""


def judge_certificates(certificates: Iterable[CertificateFacts], now: datetime) -> CertificateReading:
    """Return a warning for each certificate that expires soon, the most urgent first."""
    expiring = sorted(
        {(each.expires_at, each.source) for each in certificates if each.expires_at - now <= _AHEAD}
    )
    return CertificateReading(now, tuple(_warning(*each, now) for each in expiring[:_MOST_WARNINGS]))


def _warning(expires_at: datetime, source: str, now: datetime) -> str:
    date = f"{expires_at:%Y-%m-%dT%H:%M:%SZ}"
    if expires_at <= now:
        return f"{source}: the certificate expired at {date}; calls of the webhook fail: renew it now"
    return f"{source}: the certificate expires at {date}; renew it, or calls of the webhook fail from then on"
