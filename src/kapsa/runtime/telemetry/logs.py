"""Logging for operators: one line per event, as JSON for machines or as plain text for people."""

from __future__ import annotations

import logging
import sys
from typing import Any, Literal

# structlog loads rich where it is installed, for tracebacks that are not used here: four megabytes in every
# operator. Hiding it during the import keeps it out. It can still be imported later.
if "structlog" not in sys.modules and "rich" not in sys.modules:
    sys.modules["rich"] = None  # type: ignore[assignment]
    import structlog

    del sys.modules["rich"]
else:
    import structlog

__all__ = ["configure"]

LogFormat = Literal["json", "text"]


def configure(*, level: str = "info", format: LogFormat = "json") -> None:  # noqa: A002 - the seed's own word
    """Configure structlog for the whole process. The standard logging of other libraries is left alone."""
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
