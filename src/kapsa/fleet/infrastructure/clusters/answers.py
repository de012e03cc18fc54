"""Answers of clusters: each failure of a client becomes one sentence for people, within a time limit."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kapsa.adapters.errors import ExternalError
from kapsa.adapters.redaction import printable, redact
from kapsa.fleet.orchestrator.ports.clusters import ClusterUnreachable, CredentialRejected
from kapsa.runtime import ClientError, CredentialError, Unauthorized

__all__ = ["answering", "clean_text", "reason_of"]

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
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        # A server that lies about its objects: a page without metadata, a node that is a list.
        raise ClusterUnreachable(
            f"{server} sent an object that is not valid: {type(error).__name__}"
        ) from None


def reason_of(error: Exception) -> str:
    """Return the message of an error in one line, without secrets, within a limit."""
    return clean_text(str(error)) or type(error).__name__


def clean_text(text: str) -> str:
    """Return words of a cluster in one line, without secrets and control characters, within a limit."""
    return " ".join(redact(printable(text)).split())[:_LONGEST]
