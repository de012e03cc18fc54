"""Logging for operators: one line an event, JSON for machines or plain text for people."""

from __future__ import annotations

import logging
import sys
from typing import Any, Literal

# structlog loads rich where it is installed, for tracebacks that are not used here: four megabytes in every operator.
# Hidden for the moment of the import it stays out; whoever wants rich can still load it.
if "structlog" not in sys.modules and "rich" not in sys.modules:
    sys.modules["rich"] = None  # type: ignore[assignment]
    import structlog

    del sys.modules["rich"]
else:
    import structlog

__all__ = ["configure"]

LogFormat = Literal["json", "text"]


def configure(*, level: str = "info", format: LogFormat = "json") -> None:  # noqa: A002 - the seed's own word
    """Set up structlog for the whole process. What other libraries tell the standard logging is left as it is."""
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"no log level {level!r}: use debug, info, warning or error")
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
        raise ValueError(f"no log format {format!r}: use json or text")
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(number),
        # Asked for at each line: whoever replaces sys.stderr (a test does) gets the lines from then on.
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )
