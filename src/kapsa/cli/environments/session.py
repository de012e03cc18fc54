"""The session of a command: a client for the cluster of the kubeconfig, and errors that say what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from kapsa.cli.environments.options import ClusterChoice
from kapsa.cli.target import TargetError
from kapsa.runtime import (
    Client,
    ClientError,
    ConfigError,
    CredentialError,
    Forbidden,
    TransportError,
    Unauthorized,
    UnknownKind,
)

__all__ = ["Session", "run"]

Result = TypeVar("Result")
FIELD_MANAGER = "kapsa-cli"


class Session(msgspec.Struct, frozen=True):
    """A connection to a cluster, and the namespace that the command is about."""

    client: Client
    namespace: str


def run(options: ClusterChoice, work: Callable[[Session], Awaitable[Result]]) -> Result:
    """Connect to the cluster, and do the work. Raises TargetError with advice for an error of the cluster."""

    async def connected() -> Result:
        async with Client.connect(
            kubeconfig=options.kubeconfig, context=options.context, field_manager=FIELD_MANAGER
        ) as client:
            return await work(Session(client, options.namespace or client.namespace))

    try:
        return asyncio.run(connected())
    except ClientError as error:
        raise TargetError(_advice(error)) from error


def _advice(error: ClientError) -> str:
    """Return the error with what to do about it."""
    match error:
        case ConfigError() | CredentialError():
            return f"{error} (--kubeconfig, --context and KUBECONFIG select a cluster)"
        case Forbidden():
            return (
                f"{error}. Ask an administrator for the role view (to read) or edit (to change) in the namespace of your "
                "team; the operator grants it in the namespaces of its environments"
            )
        case Unauthorized():
            return f"{error}: log in to the cluster again, then repeat the command"
        case UnknownKind():
            return f"{error}: the environments operator is not installed there, or this is another cluster"
        case TransportError():
            return f"the cluster does not respond: {error}. Check the network, and the context of your kubeconfig"
    return str(error)
