"""Query strings: parameters and the values that the API server reads from them."""

from __future__ import annotations

from urllib.parse import parse_qsl

__all__ = ["is_true", "parse_query"]


def parse_query(query: str) -> dict[str, list[str]]:
    """Return the parameters, each with all its values."""
    values: dict[str, list[str]] = {}
    if query:
        for key, value in parse_qsl(query, keep_blank_values=True):
            values.setdefault(key, []).append(value)
    return values


def is_true(text: str) -> bool:
    """Return whether the API server reads a parameter's value as true: all but "0" and "false", even empty."""
    return text.lower() not in ("0", "false")
