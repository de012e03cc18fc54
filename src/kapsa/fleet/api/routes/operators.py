"""Routes of operators and their versions."""

from typing import Annotated

from litestar import Controller, Response, delete, get, patch, post
from litestar.params import JSONBody, QueryParameter

from kapsa.fleet.api.access import read, write
from kapsa.fleet.api.parameters import IfMatch, ObjectName, PageCursor, PageLimit
from kapsa.fleet.api.requests import ApiRequest, etag, expected_version
from kapsa.fleet.domain.registry.operators import ManagedOperator, OperatorVersion
from kapsa.fleet.orchestrator.cursors import DEFAULT_LIMIT
from kapsa.fleet.orchestrator.operator_health import OperatorHealthReport
from kapsa.fleet.orchestrator.pages import Page
from kapsa.fleet.orchestrator.ports.requests.rate_limits import LIST_OPERATORS
from kapsa.fleet.orchestrator.registry.operators import (
    AddVersion,
    RegisteredOperator,
    RegisterOperator,
    UpdateOperator,
)

__all__ = ["OperatorController"]

_UPLOAD_BODY = 24 * 1024 * 1024
"""An archive of 16 MB in base64, and the other fields."""

NamePrefix = Annotated[
    str, QueryParameter(max_length=63, description="Only operators whose names start with this.")
]


class OperatorController(Controller):
    """Routes of operators."""

    path = "/api/v1/operators"

    @post(
        "/",
        opt={**write(), "etag": True},
        request_max_body_size=_UPLOAD_BODY,
        operation_id="registerOperator",
    )
    async def register(
        self, request: ApiRequest, data: JSONBody[RegisterOperator]
    ) -> Response[RegisteredOperator]:
        """Register an operator with its first version.

        The chart is pulled or taken from the request, linted and rendered; its CRDs are stored.
        """
        result = await request.use_cases.operators.register(request.principal, data)
        headers = {
            "Location": f"/api/v1/operators/{result.operator.name}",
            "ETag": etag(result.operator.version),
        }
        return Response(result, headers=headers)

    @get("/", opt=read(limit=LIST_OPERATORS), operation_id="listOperators")
    async def list_all(
        self,
        request: ApiRequest,
        cursor: PageCursor = "",
        limit: PageLimit = DEFAULT_LIMIT,
        prefix: NamePrefix = "",
    ) -> Page[ManagedOperator]:
        """List operators in the order of their names."""
        return await request.use_cases.operators.page(
            request.principal, cursor=cursor, limit=limit, prefix=prefix
        )

    @get("/{name:str}", opt={**read(), "etag": True}, operation_id="getOperator")
    async def show(self, request: ApiRequest, name: ObjectName) -> Response[ManagedOperator]:
        """Get an operator."""
        return _tagged(await request.use_cases.operators.get(request.principal, name))

    @patch("/{name:str}", opt={**write(), "etag": True}, operation_id="updateOperator")
    async def update(
        self, request: ApiRequest, name: ObjectName, data: JSONBody[UpdateOperator], if_match: IfMatch = None
    ) -> Response[ManagedOperator]:
        """Change the values or credentials of an operator. What is left out stays as it is."""
        changed = await request.use_cases.operators.update(
            request.principal, name, data, expected=expected_version(if_match)
        )
        return _tagged(changed)

    @delete("/{name:str}", opt=write(), operation_id="deleteOperator")
    async def remove(self, request: ApiRequest, name: ObjectName, if_match: IfMatch = None) -> None:
        """Delete an operator with its versions and secrets. Refused while deployments refer to it."""
        await request.use_cases.operators.delete(request.principal, name, expected=expected_version(if_match))

    @post(
        "/{name:str}/versions",
        opt=write(),
        request_max_body_size=_UPLOAD_BODY,
        operation_id="addOperatorVersion",
    )
    async def add_version(
        self, request: ApiRequest, name: ObjectName, data: JSONBody[AddVersion]
    ) -> Response[RegisteredOperator]:
        """Register a version of an operator, from its repository or with an archive."""
        result = await request.use_cases.operators.add_version(request.principal, name, data)
        return Response(result, headers={"Location": f"/api/v1/operators/{name}/versions"})

    @get("/{name:str}/versions", opt=read(), operation_id="listOperatorVersions")
    async def versions(
        self, request: ApiRequest, name: ObjectName, cursor: PageCursor = "", limit: PageLimit = DEFAULT_LIMIT
    ) -> Page[OperatorVersion]:
        """List the versions of an operator, newest first."""
        return await request.use_cases.operators.versions(request.principal, name, cursor=cursor, limit=limit)

    @get("/{name:str}/health", opt=read(), operation_id="getOperatorHealth")
    async def health(self, request: ApiRequest, name: ObjectName) -> OperatorHealthReport:
        """Get the health of an operator on every cluster that it is installed on."""
        return await request.use_cases.health.report(request.principal, name)


def _tagged(operator: ManagedOperator) -> Response[ManagedOperator]:
    return Response(operator, headers={"ETag": etag(operator.version)})
