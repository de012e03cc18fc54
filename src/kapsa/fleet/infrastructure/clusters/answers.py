"""Answers of clusters: each failure of a client becomes one sentence for people, within a time limit."""

import asyncio
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from kapsa.adapters.errors import ExternalError
from kapsa.adapters.redaction import printable, redact
from kapsa.fleet.orchestrator.ports.clusters import ClusterUnreachable, CredentialRejected
from kapsa.runtime import ClientError, CredentialError, Unauthorized

__all__ = ["answering", "clean_text", "log_unreadable", "reason_of"]

log = structlog.get_logger(__name__)

_LONGEST = 500


@asynccontextmanager
async def answering(server: str, seconds: float) -> AsyncIterator[None]:
    """Turn each failure of a client into `ClusterUnreachable` with its reason, and end after a time."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise ClusterUnreachable(f"{server} did not answer within {seconds:g} seconds") from None
    except (Unauthorized, CredentialError) as error:
        raise CredentialRejected(reason_of(error)) from None
    except (ClientError, ExternalError) as error:
        raise ClusterUnreachable(reason_of(error)) from None
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
        # A server that lies about its objects: a page without metadata, a node that is a list, an object that is
        # nested too deeply to be walked through. Or a defect of ours.
        log_unreadable(server, error)
        raise ClusterUnreachable(
            f"{server} sent an object that is not valid: {type(error).__name__}"
        ) from None


def log_unreadable(server: str, error: Exception) -> None:
    """Log where an answer could not be read, since it may be a defect of this program.

    The text of the error is left out: it may quote an object, and so a secret.
    """
    frames = "".join(traceback.format_tb(error.__traceback__))
    name = type(error).__name__
    log.error("an answer of a cluster could not be read", server=server, error=name, traceback=frames)


def reason_of(error: Exception) -> str:
    """Return the message of an error in one line, without secrets, within a limit."""
    return clean_text(str(error)) or type(error).__name__


def clean_text(text: str) -> str:
    """Return words of a cluster in one line, without secrets and control characters, within a limit."""
    return " ".join(redact(printable(text)).split())[:_LONGEST]
