"""Logging for operators: one line per event, as JSON for machines or as plain text for people."""

from __future__ import annotations

import logging
import sys
from typing import Any, Literal

# structlog loads rich and greenlet where they are installed, for tracebacks and threads that are not used here:
# five megabytes in every operator. Hiding them during the import keeps them out. They can still be imported later.
_hidden = {"rich", "greenlet"} - set(sys.modules) if "structlog" not in sys.modules else set()
sys.modules.update(dict.fromkeys(_hidden))  # type: ignore[arg-type]
import structlog  # noqa: E402

for _name in _hidden:
    del sys.modules[_name]

__all__ = ["adopt_standard_logging", "configure"]

_MALFORMED_REQUESTS = "aiohttp.http_exceptions"  # by name: most operators need no web framework
_ERROR_LIMIT = 1000
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)

LogFormat = Literal["json", "text"]


def configure(*, level: str = "info", format: LogFormat = "json") -> None:  # noqa: A002 - the seed's own word
    """Configure structlog for the whole process. See `adopt_standard_logging` for other libraries."""
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"invalid log level {level!r}: use debug, info, warning or error")
    processors: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if format == "json":
        processors += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    elif format == "text":
        processors += [
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            )
        ]
    else:
        raise ValueError(f"invalid log format {format!r}: use json or text")
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(number),
        # Looked up for each line, so that a replaced sys.stderr (as in a test) gets the lines from then on.
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )


def adopt_standard_logging() -> None:
    """Write what other libraries log from warnings up in the same format: no bare traceback among lines of JSON.

    A process that has configured the standard logging itself is left alone.
    """
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(_StandardLogs(logging.WARNING))


class _StandardLogs(logging.Handler):
    """A handler of the standard logging that passes records on to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record. Nothing is raised into the library that logged it, whatever is wrong with it."""
        try:
            self._write(record)
        except Exception:
            self.handleError(record)

    def _write(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        details: dict[str, Any] = {"logger": record.name}
        level = record.levelno
        if error is not None and type(error).__module__ == _MALFORMED_REQUESTS:
            # Any client can send one: a line is enough, and nobody need be paged.
            level, details["error"] = logging.WARNING, repr(error)[:_ERROR_LIMIT]
        elif error is not None:
            details["exc_info"] = record.exc_info
        try:
            message = record.getMessage()
        except Exception as malformed:  # the arguments do not fit, or one of them cannot be shown
            message, details["malformed"] = str(record.msg), repr(malformed)[:_ERROR_LIMIT]
        structlog.get_logger(record.name).log(_next_lower(level), message[:_ERROR_LIMIT], **details)


def _next_lower(level: int) -> int:
    """Return the level itself, or for a library's own level the next lower one that structlog has."""
    return max((each for each in _LEVELS if each <= level), default=logging.DEBUG)
