"""The W3C trace context of a caller: `traceparent` if it is valid, since any caller can send anything."""

import re

__all__ = ["checked_trace_parent"]

_VALID = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def checked_trace_parent(header: str) -> str:
    """Return a header that is valid; an empty text for any other, so that a new trace begins."""
    return header if _VALID.fullmatch(header) else ""
