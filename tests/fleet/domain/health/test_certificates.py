"""Certificates of webhooks: which are warnings, and in which order."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from kapsa.fleet.domain.health.certificates import CertificateFacts, judge_certificates

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def test_certificates_that_expire_within_14_days_are_warnings_the_most_urgent_first() -> None:
    certificates = [
        CertificateFacts("late", NOW + 14 * DAY + timedelta(seconds=1)),
        CertificateFacts("soon", NOW + 14 * DAY),
        CertificateFacts("over", NOW - DAY),
        CertificateFacts("soon", NOW + 14 * DAY),
    ]
    assert judge_certificates(certificates, NOW).warnings == (
        "over: the certificate expired at 2025-12-31T00:00:00Z; calls of the webhook fail: renew it now",
        "soon: the certificate expires at 2026-01-15T00:00:00Z; renew it, or calls of the webhook fail from then on",
    )


def test_a_secret_that_may_be_for_something_else_is_a_warning_with_an_if() -> None:
    (warning,) = judge_certificates([CertificateFacts("Secret a/b", NOW, certain=False)], NOW).warnings
    assert "calls of the webhook fail if it serves it: renew it now" in warning


def test_a_hundred_certificates_give_twenty_warnings() -> None:
    certificates = [CertificateFacts(f"webhook {number}", NOW) for number in range(100)]
    assert len(judge_certificates(certificates, NOW).warnings) == 20
