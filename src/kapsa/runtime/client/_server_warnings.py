"""What the API server warns of beside its answer: a version that will go, a field it does not know, a webhook's words."""

import re
from collections.abc import Iterator, Mapping

import structlog

__all__ = ["ServerWarnings"]

_log = structlog.get_logger(__name__)
_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
_MOST = 1000
_LONGEST = 512
"""Characters of a text that count: the rest is neither logged nor remembered."""


class ServerWarnings:
    """Logs each warning once: the same request would bring the same one for ever.

    A webhook may word its warning anew for every object, so there is an end to it: after 1000 texts no more are logged.
    """

    def __init__(self) -> None:
        self._told: set[str] = set()

    def hear(self, headers: Mapping[str, str], method: str, path: str) -> None:
        """Look through the headers of the answer to a request."""
        header = headers.get("warning")
        if header is None:
            return
        for text in texts(header):
            if len(self._told) == _MOST:
                return
            start = text[:_LONGEST]
            if start not in self._told:
                self._told.add(start)
                _log.warning("the API server warns", warning=start, request=f"{method} {path}")
                if len(self._told) == _MOST:
                    _log.warning("further warnings of the API server are not logged", logged=_MOST)


def texts(header: str) -> Iterator[str]:
    """The texts of `299 - "one", 299 - "another"`; code 299 is the one that Kubernetes uses."""
    for quoted in _WARNING.findall(header):
        yield re.sub(r"\\(.)", r"\1", quoted)
