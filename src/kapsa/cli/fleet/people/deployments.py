"""`kapsa fleet deployments`: plan, start and follow rollouts."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import typer

from kapsa.cli.fleet.client.connection import call_manager
from kapsa.cli.fleet.client.manager_api import ManagerApi, as_type, path_of
from kapsa.cli.fleet.client.references import (
    complete_deployments,
    complete_operators,
    find_deployment,
    short_id,
)
from kapsa.cli.fleet.people import deployment_requests as options
from kapsa.cli.fleet.people.lists import LimitOption, ListView, show_list, show_result
from kapsa.cli.fleet.people.watch import read_history, watch_deployment
from kapsa.cli.fleet.views.plans import describe_plan
from kapsa.cli.fleet.views.rollouts import describe_deployment, event_line
from kapsa.cli.option_groups import expand_options
from kapsa.cli.tables import OutputFormat, OutputOption, format_age, printable
from kapsa.cli.target import TargetError
from kapsa.fleet.domain.rollout.deployments import DeploymentPhase, RolloutEvent, VersionDeployment
from kapsa.fleet.orchestrator.deployment_requests import DeploymentDetails, PlanDetails

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Plan, start and follow rollouts.")

Id = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="The deployment, by its id or the first characters of it.",
        autocompletion=complete_deployments,
        show_default=False,
    ),
]


def _row(deployment: VersionDeployment, now: datetime) -> tuple[object, ...]:
    stages = f"{deployment.stage}/{len(deployment.stages)}" if deployment.stages else "-"
    return (
        short_id(deployment.id),
        deployment.operator_name,
        deployment.version,
        type(deployment.strategy).__name__.removesuffix("Strategy"),
        deployment.phase,
        stages,
        deployment.requested_by,
        format_age(deployment.created_at, now),
        deployment.waits_for or deployment.message,
    )


_DEPLOYMENTS = ListView(
    VersionDeployment,
    ("ID", "OPERATOR", "VERSION", "STRATEGY", "PHASE", "STAGES", "REQUESTED BY", "AGE", "WAITS FOR"),
    _row,
    "there are no deployments: `kapsa fleet deployments create` requests one",
    name="id",
)


@app.command("ls")
def list_deployments(
    operator: Annotated[
        str, typer.Option(help="Only deployments of this operator.", autocompletion=complete_operators)
    ] = "",
    phase: Annotated[
        DeploymentPhase | None, typer.Option(help="Only deployments in this phase.", case_sensitive=False)
    ] = None,
    limit: LimitOption = 50,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List deployments, newest first."""
    show_list(
        _DEPLOYMENTS, "/deployments", output, limit=limit, query={"operator": operator, "phase": phase or ""}
    )


@app.command()
def describe(identifier: Id, output: OutputOption = OutputFormat.TABLE) -> None:
    """Show a deployment with its stages and clusters, the evidence of each gate, and what it waits for."""

    async def read(api: ManagerApi) -> tuple[Any, datetime]:
        return await api.get(path_of("deployments", await find_deployment(api, identifier))), api.now

    answer, now = call_manager(read)
    show_result(
        answer,
        output,
        lambda: describe_deployment(as_type(answer, DeploymentDetails), now),
        name=lambda: str(answer["deployment"]["id"]),
    )


@app.command()
def events(identifier: Id, output: OutputOption = OutputFormat.TABLE) -> None:
    """Show the history of a deployment, oldest first."""

    async def read(api: ManagerApi) -> list[Any]:
        return [each async for each in read_history(api, await find_deployment(api, identifier))]

    listed = call_manager(read)

    def show() -> None:
        for each in listed:
            typer.echo(event_line(as_type(each, RolloutEvent)))

    show_result({"items": listed}, output, show, name=lambda: identifier)


@app.command()
def watch(identifier: Id) -> None:
    """Follow a deployment until it ends: stages, clusters, gate evidence, and the time that is left to wait.

    A live view on a terminal, a line for each change otherwise. Exits 1 unless the deployment completes.
    """
    raise typer.Exit(call_manager(lambda api: _watch(api, identifier)))


@app.command()
@expand_options
def plan(
    request: options.RequestOptions,
    operator: Annotated[
        str,
        typer.Argument(
            metavar="OPERATOR|ID", help="The operator, with a VERSION; or a deployment.", show_default=False
        ),
    ] = "",
    version: options.VersionArgument = "",
    diff: Annotated[bool, typer.Option("--diff", help="Show what changes in the manifests.")] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show what a deployment would do, without requesting it; or the plan of the deployment ID.

    Exits 1 if the plan cannot be carried out. Example:
    `kapsa fleet deployments plan widget 1.1.0 --environment Staging --stages 10,50,100 --diff`.
    """
    if operator and not version and request.file is None:
        answer = call_manager(lambda api: _stored_plan(api, operator))
    else:
        body = options.build_request(operator, version, request)
        answer = call_manager(lambda api: api.post("/deployments/plan", body))
    details = as_type(answer, PlanDetails)
    show_result(answer, output, lambda: describe_plan(details, diff=diff), name=lambda: details.digest)
    if details.plan.problems:
        typer.echo(f"the plan cannot be carried out: {len(details.plan.problems)} problems", err=True)
        raise typer.Exit(1)


@app.command()
@expand_options
def create(
    request: options.RequestOptions,
    operator: options.OperatorArgument = "",
    version: options.VersionArgument = "",
    key: Annotated[
        str,
        typer.Option("--idempotency-key", help="Repeat a request with the same key without a second effect."),
    ] = "",
    follow: Annotated[bool, typer.Option("--watch", "-w", help="Follow it until it ends.")] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Request a deployment. It is planned first, then approved if that is needed, then carried out.

    Example: `kapsa fleet deployments create widget 1.1.0 --environment Staging --stages 10,50,100 --soak 10m --watch`.
    """
    body = options.build_request(operator, version, request)
    answer = call_manager(lambda api: api.post("/deployments", body, key=key))
    deployment = as_type(answer, VersionDeployment)
    show_result(
        answer,
        output,
        lambda: typer.echo(
            f"deployment {deployment.id} of {body.operator} {body.version} is {deployment.phase}"
        ),
        name=lambda: str(deployment.id),
    )
    if follow:
        raise typer.Exit(call_manager(lambda api: _watch(api, str(deployment.id))))


async def _watch(api: ManagerApi, identifier: str) -> int:
    return await watch_deployment(api, await find_deployment(api, identifier))


async def _stored_plan(api: ManagerApi, identifier: str) -> Any:
    try:
        deployment = await find_deployment(api, identifier)
    except TargetError as error:
        raise TargetError(
            f"{error}; to plan for an operator, give its VERSION too: {printable(identifier)} VERSION"
        ) from None
    return await api.get(path_of("deployments", deployment, "plan"))
