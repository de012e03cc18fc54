"""Routes of deployments."""

from typing import Annotated

from litestar import Controller, Response, delete, get, post
from litestar.params import HeaderParameter, JSONBody, QueryParameter
from litestar.response import Stream

from kapsa.fleet.api.access import admin_write, read, write
from kapsa.fleet.api.event_stream import EVENT_STREAM, event_stream, resume_point
from kapsa.fleet.api.parameters import ObjectId, PageCursor, PageLimit
from kapsa.fleet.api.problems import NotServed
from kapsa.fleet.api.requests import ApiRequest
from kapsa.fleet.api.views import DeploymentHistory, RetryDeployment, RollBackDeployment
from kapsa.fleet.domain.rollout.deployments import DeploymentPhase, VersionDeployment
from kapsa.fleet.orchestrator.cursors import DEFAULT_LIMIT
from kapsa.fleet.orchestrator.deployment_requests import (
    DeploymentDetails,
    DeploymentRequest,
    PlanDetails,
    RollbackStatus,
)
from kapsa.fleet.orchestrator.pages import Page
from kapsa.fleet.orchestrator.ports.requests.rate_limits import CREATE_DEPLOYMENT

__all__ = ["RolloutController"]

OperatorFilter = Annotated[
    str, QueryParameter(name="operator", max_length=63, description="Only deployments of this operator.")
]
PhaseFilter = Annotated[
    DeploymentPhase | None, QueryParameter(description="Only deployments that are in this phase.")
]
AfterEvent = Annotated[
    int, QueryParameter(ge=0, le=2**53, description="Only entries after this sequence number.")
]
LastEvent = Annotated[
    str | None,
    HeaderParameter(
        name="Last-Event-ID",
        max_length=20,
        description="The last entry that a broken stream has received.",
        schema_extra={"pattern": "^[0-9]{0,16}$"},
    ),
]
Accept = Annotated[
    str | None,
    HeaderParameter(name="Accept", description=f"`{EVENT_STREAM}` for a live stream."),
]


class RolloutController(Controller):
    """Routes of deployments."""

    path = "/api/v1/deployments"

    @post(
        "/",
        opt={**write(limit=CREATE_DEPLOYMENT), "statuses": (503,)},
        status_code=202,
        operation_id="createDeployment",
    )
    async def create(
        self, request: ApiRequest, data: JSONBody[DeploymentRequest]
    ) -> Response[VersionDeployment]:
        """Request a deployment: a version of an operator, for clusters, by a strategy.

        It is planned first, then approved if that is needed, then carried out.
        """
        _require_engine(request)
        deployment = await request.use_cases.deployments.create(
            request.principal, data, trace_parent=request.trace_parent
        )
        return Response(deployment, headers={"Location": f"/api/v1/deployments/{deployment.id}"})

    @post(
        "/plan",
        opt={**write(limit=CREATE_DEPLOYMENT), "statuses": (503,)},
        status_code=200,
        operation_id="previewDeployment",
    )
    async def preview(self, request: ApiRequest, data: JSONBody[DeploymentRequest]) -> PlanDetails:
        """Plan a deployment without requesting it: a dry run."""
        _require_engine(request)
        return await request.use_cases.deployments.preview(request.principal, data)

    @get("/", opt=read(), operation_id="listDeployments")
    async def list_all(
        self,
        request: ApiRequest,
        cursor: PageCursor = "",
        limit: PageLimit = DEFAULT_LIMIT,
        operator: OperatorFilter = "",
        phase: PhaseFilter = None,
    ) -> Page[VersionDeployment]:
        """List deployments, newest first."""
        phases = () if phase is None else (phase,)
        return await request.use_cases.deployments.page(
            request.principal, cursor=cursor, limit=limit, operator=operator, phases=phases
        )

    @get("/{deployment_id:uuid}", opt=read(), operation_id="getDeployment")
    async def show(self, request: ApiRequest, deployment_id: ObjectId) -> DeploymentDetails:
        """Get a deployment with its clusters."""
        return await request.use_cases.deployments.get(request.principal, deployment_id)

    @delete("/{deployment_id:uuid}", opt=write(), status_code=200, operation_id="abortDeployment")
    async def abort(self, request: ApiRequest, deployment_id: ObjectId) -> VersionDeployment:
        """Abort an active deployment. One that is finished is refused with 409: history stays."""
        return await request.use_cases.deployments.abort(request.principal, deployment_id)

    @get("/{deployment_id:uuid}/plan", opt={**read(), "statuses": (409,)}, operation_id="getDeploymentPlan")
    async def plan(self, request: ApiRequest, deployment_id: ObjectId) -> PlanDetails:
        """Get the plan of a deployment: per cluster the diff, the CRD findings and the verdicts, with its digest."""
        return await request.use_cases.deployments.plan(request.principal, deployment_id)

    @post("/{deployment_id:uuid}/pause", opt=write(), status_code=200, operation_id="pauseDeployment")
    async def pause(self, request: ApiRequest, deployment_id: ObjectId) -> VersionDeployment:
        """Let no further cluster begin. A failing version is still rolled back."""
        return await request.use_cases.deployments.pause(request.principal, deployment_id)

    @post("/{deployment_id:uuid}/resume", opt=write(), status_code=200, operation_id="resumeDeployment")
    async def resume(self, request: ApiRequest, deployment_id: ObjectId) -> VersionDeployment:
        """Continue a paused deployment, and give every wait that gave up another chance."""
        return await request.use_cases.deployments.resume(request.principal, deployment_id)

    @post("/{deployment_id:uuid}/retry", opt=write(), status_code=200, operation_id="retryDeployment")
    async def retry(
        self, request: ApiRequest, deployment_id: ObjectId, data: JSONBody[RetryDeployment]
    ) -> VersionDeployment:
        """Begin another attempt on the clusters that are not finished. It is planned, and approved, again."""
        return await request.use_cases.deployments.retry(
            request.principal, deployment_id, force_reason=data.force_reason
        )

    @post("/{deployment_id:uuid}/switch", opt=write(), status_code=200, operation_id="switchDeployment")
    async def switch(self, request: ApiRequest, deployment_id: ObjectId) -> VersionDeployment:
        """Let a blue-green deployment hand over once its new release has validated."""
        return await request.use_cases.deployments.switch(request.principal, deployment_id)

    @post(
        "/{deployment_id:uuid}/rollback",
        opt=admin_write(),
        status_code=202,
        operation_id="rollBackDeployment",
    )
    async def roll_back(
        self, request: ApiRequest, deployment_id: ObjectId, data: JSONBody[RollBackDeployment]
    ) -> VersionDeployment:
        """Return every cluster that the deployment changed to the version before, finished ones too."""
        return await request.use_cases.deployments.rollback(
            request.principal, deployment_id, reason=data.reason
        )

    @get("/{deployment_id:uuid}/rollback-status", opt=read(), operation_id="getRollbackStatus")
    async def rollback_status(self, request: ApiRequest, deployment_id: ObjectId) -> RollbackStatus:
        """Get the progress of a rollback."""
        return await request.use_cases.deployments.rollback_status(request.principal, deployment_id)

    @get(
        "/{deployment_id:uuid}/events",
        opt={**read(), "stream": EVENT_STREAM, "statuses": (429,)},
        operation_id="listDeploymentEvents",
    )
    async def events(
        self,
        request: ApiRequest,
        deployment_id: ObjectId,
        after: AfterEvent = 0,
        last_event: LastEvent = None,
        accept: Accept = None,
    ) -> Response[DeploymentHistory] | Stream:
        """Get the history of a deployment, oldest first.

        With `Accept: text/event-stream` it is live: entries follow as they happen, until the deployment ends or the
        caller's token does. A broken stream continues after `Last-Event-ID`.
        """
        deployments, start = request.use_cases.deployments, resume_point(last_event, after)
        events = await deployments.events(request.principal, deployment_id, after=start)
        if accept and EVENT_STREAM in accept:
            return event_stream(request, deployment_id, start)
        last = events[-1].sequence if events else start
        return Response(DeploymentHistory(events, last))


def _require_engine(request: ApiRequest) -> None:
    """Raise NotServed if nothing would ever carry the deployment out."""
    if not request.app.state.carries_out_rollouts:
        raise NotServed("this manager runs without a rollout engine, so it accepts no deployments")
