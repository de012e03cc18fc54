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
    certain: bool = True
    """False for a Secret that a controller mounts: it may be for something else than its webhook."""


class CertificateReading(msgspec.Struct, frozen=True, rename="camel"):
    """The certificates of an operator's webhooks at a time."""

    checked_at: datetime
    warnings: tuple[str, ...] = ()
    """One sentence for each that has expired or does so within 14 days."""


def judge_certificates(certificates: Iterable[CertificateFacts], now: datetime) -> CertificateReading:
    """Return a warning for each certificate that expires soon, the most urgent first."""
    soon = {each for each in certificates if each.expires_at - now <= _AHEAD}
    expiring = sorted(soon, key=lambda each: (each.expires_at, each.source))
    return CertificateReading(now, tuple(_warning(each, now) for each in expiring[:_MOST_WARNINGS]))


def _warning(each: CertificateFacts, now: datetime) -> str:
    date = f"{each.expires_at:%Y-%m-%dT%H:%M:%SZ}"
    calls = "calls of the webhook fail" if each.certain else "calls of the webhook fail if it serves it"
    if each.expires_at <= now:
        return f"{each.source}: the certificate expired at {date}; {calls}: renew it now"
    return f"{each.source}: the certificate expires at {date}; renew it, or {calls} from then on"
