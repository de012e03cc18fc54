"""Warnings in the API server's responses: deprecated versions, unknown fields, messages of webhooks."""

import re
from collections.abc import Iterator, Mapping

import structlog

__all__ = ["ServerWarnings"]

_log = structlog.get_logger(__name__)
_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
_LIMIT = 1000
_LONGEST = 512
"""Characters of a warning that are logged and compared."""


class ServerWarnings:
    """A log of warnings, each once, because each repetition of a request brings the same one.

    A webhook may return a different warning for each object, so after 1000 different warnings no more are
    logged.
    """

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def log(self, headers: Mapping[str, str], method: str, path: str) -> None:
        """Log the new warnings in the headers of a response."""
        header = headers.get("warning")
        if header is None:
            return
        for text in texts(header):
            if len(self._logged) == _LIMIT:
                return
            start = text[:_LONGEST]
            if start not in self._logged:
                self._logged.add(start)
                _log.warning("warning from the API server", warning=start, request=f"{method} {path}")
                if len(self._logged) == _LIMIT:
                    _log.warning("further warnings from the API server will not be logged", logged=_LIMIT)


def texts(header: str) -> Iterator[str]:
    """Yield the texts of `299 - "one", 299 - "another"`; Kubernetes uses code 299."""
    for quoted in _WARNING.findall(header):
        yield re.sub(r"\\(.)", r"\1", quoted)
