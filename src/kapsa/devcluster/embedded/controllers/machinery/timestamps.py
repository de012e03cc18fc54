"""Timestamps in the form Kubernetes writes: RFC 3339."""

from __future__ import annotations

from datetime import UTC, datetime


def render(moment: datetime) -> str:
    """Render a `metav1.Time`: whole seconds, UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse(text: str) -> datetime:
    """Parse a timestamp, with or without a fraction."""
    return datetime.fromisoformat(text)


def seconds_since(text: str, now: datetime) -> float:
    """Return the age of a timestamp in whole seconds, the resolution it was written with."""
    return (now.replace(microsecond=0) - parse(text)).total_seconds()


def render_micro(moment: datetime) -> str:
    """Render a `metav1.MicroTime`, UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
