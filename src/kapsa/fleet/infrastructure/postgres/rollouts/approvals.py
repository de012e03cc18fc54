"""Approvals in the database."""

import uuid
from collections.abc import Iterable
from datetime import datetime

import msgspec
from sqlalchemy import insert, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from kapsa.fleet.domain.rollout.approvals import ApprovalRequest, ApprovalState
from kapsa.fleet.infrastructure.postgres.tables.rollouts import approval

__all__ = ["PostgresApprovals"]


class PostgresApprovals:
    """The rows of approvals."""

    async def insert(self, connection: AsyncConnection, requests: Iterable[ApprovalRequest]) -> None:
        """Insert new requests."""
        rows = [
            {
                "id": request.id,
                "deployment_id": request.deployment_id,
                "state": request.state.value,
                "document": msgspec.to_builtins(request),
                "created_at": request.created_at,
            }
            for request in requests
        ]
        if rows:
            await connection.execute(insert(approval), rows)

    async def get(self, connection: AsyncConnection, approval_id: uuid.UUID) -> ApprovalRequest | None:
        """Return a request."""
        query = select(approval.c.document).where(approval.c.id == approval_id)
        document = (await connection.execute(query)).scalar_one_or_none()
        return None if document is None else msgspec.convert(document, ApprovalRequest)

    async def of(self, connection: AsyncConnection, deployment_id: uuid.UUID) -> list[ApprovalRequest]:
        """Return all requests of a deployment, oldest first."""
        query = (
            select(approval.c.document)
            .where(approval.c.deployment_id == deployment_id)
            .order_by(approval.c.sequence)  # two may be of the same moment
        )
        return [msgspec.convert(row.document, ApprovalRequest) for row in await connection.execute(query)]

    async def save(self, connection: AsyncConnection, request: ApprovalRequest) -> None:
        """Write a request of a locked deployment."""
        await connection.execute(
            update(approval)
            .where(approval.c.id == request.id)
            .values(state=request.state.value, document=msgspec.to_builtins(request))
        )

    async def page(
        self,
        connection: AsyncConnection,
        *,
        states: frozenset[ApprovalState],
        before: tuple[datetime, uuid.UUID] | None,
        limit: int,
    ) -> list[ApprovalRequest]:
        """Return requests, newest first."""
        query = select(approval.c.document).order_by(approval.c.created_at.desc(), approval.c.id.desc())
        if states:
            query = query.where(approval.c.state.in_([state.value for state in states]))
        if before is not None:
            query = query.where(tuple_(approval.c.created_at, approval.c.id) < tuple_(*before))
        rows = await connection.execute(query.limit(limit))
        return [msgspec.convert(row.document, ApprovalRequest) for row in rows]
