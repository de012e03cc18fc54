"""Access to clusters for operations: each write is stopped by a lapsed lease, each session of writes is audited."""

import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from kapsa.adapters.errors import ExternalError
from kapsa.adapters.redaction import printable, redact
from kapsa.fleet.domain.errors import UnknownObject
from kapsa.fleet.orchestrator.ports.audit import AuditEntry, AuditTrail
from kapsa.fleet.orchestrator.ports.cluster_operations import ClusterGone, ClusterRefused
from kapsa.fleet.orchestrator.ports.clusters import ClusterUnreachable, CredentialRejected
from kapsa.fleet.orchestrator.ports.leases import LeaseGuard
from kapsa.fleet.orchestrator.ports.transactions import Transactions
from kapsa.runtime import (
    ApiError,
    Client,
    ClientError,
    CredentialError,
    DecodeError,
    ResponseTooLarge,
    Unauthorized,
)

__all__ = ["FIELD_MANAGER", "Connect", "LeasedClients"]

Connect = Callable[[uuid.UUID], AbstractAsyncContextManager[Client]]
"""`ClusterClients.client`: the client of a registered cluster."""

FIELD_MANAGER = "kapsa-fleet"
ACTOR = "system:rollouts"
_LONGEST_REASON = 1000


class LeasedClients:
    """Clients of clusters for one operation at a time, with errors as the rollout engine expects them."""

    def __init__(self, connect: Connect, transactions: Transactions, audit: AuditTrail) -> None:
        self._connect = connect
        self._transactions = transactions
        self._audit = audit

    @asynccontextmanager
    async def read(self, cluster_id: uuid.UUID) -> AsyncIterator[Client]:
        """Open a client that is used for reads and dry runs.

        Raises `ClusterUnreachable`, `ClusterGone` or `ClusterRefused` for what goes wrong inside.
        """
        with_reason = f"cluster {cluster_id}"
        try:
            async with self._connect(cluster_id) as client:
                yield client
        except UnknownObject as error:
            raise ClusterGone(str(error)) from None
        except (Unauthorized, CredentialError) as error:
            raise CredentialRejected(_reason(error)) from None
        except (DecodeError, ResponseTooLarge) as error:
            raise ClusterRefused(
                f"{with_reason} sent an object that cannot be read: {_reason(error)}"
            ) from error
        except ApiError as error:
            if error.retryable:
                raise ClusterUnreachable(_reason(error)) from error
            raise ClusterRefused(_reason(error)) from error
        except ClientError as error:
            raise ClusterUnreachable(_reason(error)) from error
        except ExternalError as error:
            raise ClusterRefused(_reason(error)) from error

    @asynccontextmanager
    async def write(
        self, cluster_id: uuid.UUID, guard: LeaseGuard, action: str, details: Mapping[str, Any]
    ) -> AsyncIterator[Client]:
        """Open a client that checks the lease right before each write, and ends a write with the lease.

        The audit entry is recorded first: a process that dies in the middle has left it.
        """
        guard.check()
        entry = AuditEntry(
            actor=ACTOR,
            action=action,
            object_kind="cluster",
            object_id=str(cluster_id),
            payload=dict(details),
        )
        async with self.read(cluster_id) as client:
            async with self._transactions.transaction() as connection:
                await self._audit.record(connection, entry)
            yield client.derive(field_manager=FIELD_MANAGER, before_write=_gate(guard))


def _gate(guard: LeaseGuard) -> Callable[[], float | None]:
    def check() -> float | None:
        guard.check()
        return guard.remaining

    return check


def _reason(error: Exception) -> str:
    return " ".join(redact(printable(str(error))).split())[:_LONGEST_REASON] or type(error).__name__
