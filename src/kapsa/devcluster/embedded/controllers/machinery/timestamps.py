"""RFC 3339 times as Kubernetes writes them."""

from __future__ import annotations

from datetime import UTC, datetime


def render(moment: datetime) -> str:
    """`metav1.Time`: whole seconds, UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def render_micro(moment: datetime) -> str:
    """`metav1.MicroTime`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse(text: str) -> datetime:
    """Read a time back; the fraction may be there or not."""
    return datetime.fromisoformat(text)


def seconds_since(text: str, now: datetime) -> float:
    """Age of a stored time, measured on the same whole-second grid it was written on."""
    return (now.replace(microsecond=0) - parse(text)).total_seconds()
