"""Sharding: connections to Services, checked at intervals by all replicas of the operator, each for its share.

Waiting for many slow connections is more than one process should do, which is what sharding is for. Run it with
`kapsa run servicecheck:operator`, as often as you like.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated

from kapsa.runtime import (
    Context,
    Controller,
    CustomResource,
    Field,
    Operator,
    Requeue,
    Spec,
    Status,
    printer_column,
)

TIMEOUT_SECONDS = 5

Connect = Callable[[str, int], Awaitable[None]]
"""Connects to a host and a port. Raises OSError if that fails."""


class ServiceCheckSpec(Spec):
    """The Service to check."""

    service: Annotated[str, Field(pattern=r"^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$")]
    """A Service of the same namespace."""
    port: Annotated[int, Field(ge=1, le=65535)]
    """The port to connect to."""
    interval_seconds: Annotated[int, Field(ge=5, le=86400)] = 60
    """Seconds between two checks."""


class ServiceCheck(
    CustomResource[ServiceCheckSpec, Status],
    group="example.com",
    version="v1",
    columns=[
        printer_column("Service", ".spec.service"),
        printer_column("Reachable", ".status.conditions[?(@.type=='Reachable')].status"),
    ],
):
    """A check whether a Service accepts connections."""


async def connect(host: str, port: int) -> None:
    """Open a connection and close it. Raises OSError if that fails or takes too long."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        _, writer = await asyncio.open_connection(host, port)
    writer.close()


class ServiceCheckController(Controller[ServiceCheck]):
    max_concurrent_reconciles = 20  # for each shard

    def __init__(self, connect: Connect = connect) -> None:
        super().__init__()
        self._connect = connect

    async def reconcile(self, check: ServiceCheck, ctx: Context[ServiceCheck]) -> Requeue:
        try:
            await self._connect(f"{check.spec.service}.{check.namespace}.svc", check.spec.port)
        except OSError as error:
            message = str(error) or f"no connection within {TIMEOUT_SECONDS} s"
            ctx.condition("Reachable", False, reason="ConnectionFailed", message=message)
        else:
            ctx.condition("Reachable", True, reason="Connected", message="the Service accepts connections")
        return Requeue(after=check.spec.interval_seconds)


operator = Operator(controllers=[ServiceCheckController()], sharding="servicecheck-operator")
