"""Routes of CRDs."""

from typing import Annotated

from litestar import Controller, get, post
from litestar.params import JSONBody, QueryParameter

from kapsa.fleet.api.access import DECIDERS, WRITERS, admin_write, read, write
from kapsa.fleet.api.parameters import CrdName, PageCursor, PageLimit
from kapsa.fleet.api.requests import ApiRequest
from kapsa.fleet.orchestrator.crds.requests import (
    ApproveCrd,
    CrdDetail,
    CrdValidation,
    StoreCrd,
    ValidateCrd,
)
from kapsa.fleet.orchestrator.cursors import DEFAULT_LIMIT
from kapsa.fleet.orchestrator.pages import Page
from kapsa.fleet.orchestrator.ports.crds import CrdApproval, CrdListing, CrdRevision

__all__ = ["CrdController"]

_DOCUMENT_BODY = 2 * 1024 * 1024

OperatorFilter = Annotated[
    str, QueryParameter(name="operator", max_length=63, description="Only CRDs of this operator.")
]
NamePrefix = Annotated[
    str, QueryParameter(max_length=253, description="Only CRDs whose names start with this.")
]


class CrdController(Controller):
    """Routes of CRDs."""

    path = "/api/v1/crds"

    @post(
        "/",
        opt={**write(), "statuses": (404,)},
        request_max_body_size=_DOCUMENT_BODY,
        operation_id="storeCrd",
    )
    async def store(self, request: ApiRequest, data: JSONBody[StoreCrd]) -> CrdRevision:
        """Store a CRD with a version of an operator, if the chart does not bring it along."""
        return await request.use_cases.crds.store(request.principal, data)

    @get("/", opt=read(), operation_id="listCrds")
    async def list_all(
        self,
        request: ApiRequest,
        cursor: PageCursor = "",
        limit: PageLimit = DEFAULT_LIMIT,
        operator: OperatorFilter = "",
        prefix: NamePrefix = "",
    ) -> Page[CrdListing]:
        """List CRDs in the order of their names and operators."""
        return await request.use_cases.crds.page(
            request.principal, cursor=cursor, limit=limit, operator=operator, prefix=prefix
        )

    @get("/{name:str}", opt=read(), operation_id="getCrd")
    async def show(self, request: ApiRequest, name: CrdName, operator: OperatorFilter = "") -> CrdDetail:
        """Get a CRD with its history, its approvals, and its state on every cluster that has it."""
        return await request.use_cases.crds.get(request.principal, name, operator=operator)

    @post("/{name:str}/validate", opt=write(WRITERS | DECIDERS), status_code=200, operation_id="validateCrd")
    async def validate(
        self, request: ApiRequest, name: CrdName, data: JSONBody[ValidateCrd]
    ) -> CrdValidation:
        """Compare two versions of a CRD, and judge the live resources of clusters by the newer one."""
        return await request.use_cases.crds.validate(request.principal, name, data)

    @post("/{name:str}/approve", opt=admin_write(), status_code=200, operation_id="approveCrd")
    async def approve(self, request: ApiRequest, name: CrdName, data: JSONBody[ApproveCrd]) -> CrdApproval:
        """Approve a breaking or one-way change of a CRD, by the digest that validation returned."""
        return await request.use_cases.crds.approve(request.principal, name, data)
