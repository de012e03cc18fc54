"""Routes of approvals."""

from typing import Annotated

from litestar import Controller, get, post
from litestar.params import JSONBody, QueryParameter

from kapsa.fleet.api.access import DECIDERS, read, write
from kapsa.fleet.api.parameters import ObjectId, PageCursor, PageLimit
from kapsa.fleet.api.requests import ApiRequest
from kapsa.fleet.api.views import ApprovalDecision
from kapsa.fleet.domain.rollout.approvals import ApprovalRequest, ApprovalState
from kapsa.fleet.orchestrator.cursors import DEFAULT_LIMIT
from kapsa.fleet.orchestrator.pages import Page

__all__ = ["ApprovalController"]

StateFilter = Annotated[
    ApprovalState, QueryParameter(name="state", description="Only approvals in this state.")
]


class ApprovalController(Controller):
    """Routes of approvals."""

    path = "/api/v1/approvals"

    @get("/", opt=read(), operation_id="listApprovals")
    async def list_all(
        self,
        request: ApiRequest,
        cursor: PageCursor = "",
        limit: PageLimit = DEFAULT_LIMIT,
        approval_state: StateFilter = ApprovalState.PENDING,
    ) -> Page[ApprovalRequest]:
        """List approvals, newest first: those that are pending, unless another state is chosen."""
        return await request.use_cases.approvals.page(
            request.principal, states=(approval_state,), cursor=cursor, limit=limit
        )

    @post("/{approval_id:uuid}/approve", opt=write(DECIDERS), status_code=200, operation_id="approve")
    async def approve(
        self, request: ApiRequest, approval_id: ObjectId, data: JSONBody[ApprovalDecision]
    ) -> ApprovalRequest:
        """Agree to the plan that the approval is bound to. Nobody approves what they requested."""
        return await request.use_cases.approvals.approve(request.principal, approval_id, comment=data.comment)

    @post("/{approval_id:uuid}/reject", opt=write(DECIDERS), status_code=200, operation_id="reject")
    async def reject(
        self, request: ApiRequest, approval_id: ObjectId, data: JSONBody[ApprovalDecision]
    ) -> ApprovalRequest:
        """Refuse a plan. The deployment ends, and never runs."""
        return await request.use_cases.approvals.reject(request.principal, approval_id, comment=data.comment)
