"""The log of the devcluster: failures that no reply can report."""

from __future__ import annotations

import sys

__all__ = ["log_exception"]


def log_exception(event: str, error: Exception, **fields: object) -> None:
    """Log an exception, to standard error unless the process has configured structlog.

    structlog is imported here, with the first failure: it would take a quarter of the time in which a server starts.
    """
    import structlog

    if structlog.is_configured():
        logger = structlog.get_logger("kapsa.devcluster")
    else:
        logger = structlog.wrap_logger(structlog.PrintLogger(sys.stderr))
    logger.error(event, exc_info=error, **fields)
