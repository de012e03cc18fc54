"""What the API server warns of beside its answer: a version that will go, a field it does not know, a webhook's words."""

import re
from collections.abc import Iterator, Mapping

import structlog

__all__ = ["ServerWarnings"]

_log = structlog.get_logger(__name__)
_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
_REMEMBERED = 1000


class ServerWarnings:
    """Logs each warning once: the same request would bring the same one for ever."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def hear(self, headers: Mapping[str, str], method: str, path: str) -> None:
        """Look through the headers of the answer to a request."""
        header = headers.get("warning")
        if header is None:
            return
        for text in texts(header):
            if text not in self._told:
                if len(self._told) >= _REMEMBERED:
                    self._told.clear()
                self._told.add(text)
                _log.warning("the API server warns", warning=text, request=f"{method} {path}")


def texts(header: str) -> Iterator[str]:
    """The texts of `299 - "one", 299 - "another"`; code 299 is the one that Kubernetes uses."""
    for quoted in _WARNING.findall(header):
        yield re.sub(r"\\(.)", r"\1", quoted)
