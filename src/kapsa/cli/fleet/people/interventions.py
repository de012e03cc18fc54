"""Commands that change the course of a deployment: pause, resume, retry, switch, abort and roll back."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kapsa.cli.fleet.client.connection import call_manager
from kapsa.cli.fleet.client.manager_api import ManagerApi, as_type, path_of
from kapsa.cli.fleet.client.references import find_deployment, short_id
from kapsa.cli.fleet.people.deployments import Id, app
from kapsa.cli.fleet.people.lists import YesOption, show_result
from kapsa.cli.fleet.views.rollouts import describe_rollback
from kapsa.cli.tables import OutputFormat, OutputOption, confirm, printable
from kapsa.fleet.api.views import RetryDeployment, RollBackDeployment
from kapsa.fleet.domain.rollout.deployments import VersionDeployment
from kapsa.fleet.orchestrator.deployment_requests import DeploymentDetails, RollbackStatus

__all__ = ["app"]

_NAMED = 5
"""Clusters that a question names."""


@app.command()
def pause(identifier: Id, output: OutputOption = OutputFormat.TABLE) -> None:
    """Let no further cluster begin. A failing version is still rolled back."""
    _intervene(identifier, "pause", output)


@app.command()
def resume(identifier: Id, output: OutputOption = OutputFormat.TABLE) -> None:
    """Continue a paused deployment, and give every wait that gave up another chance."""
    _intervene(identifier, "resume", output)


@app.command()
def retry(
    identifier: Id,
    force_reason: Annotated[
        str, typer.Option(help="Admins: the reason to deploy a withdrawn version again.")
    ] = "",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Begin another attempt on the clusters that are not finished. It is planned, and approved, again."""
    _intervene(identifier, "retry", output, RetryDeployment(force_reason))


@app.command()
def switch(identifier: Id, output: OutputOption = OutputFormat.TABLE) -> None:
    """Let a blue-green deployment hand over once its new release has validated."""
    _intervene(identifier, "switch", output)


@app.command()
def rollback(
    identifier: Id,
    reason: Annotated[str, typer.Option(help="The reason, for the record.")],
    yes: YesOption = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Return every cluster that the deployment changed to the version before, finished ones too. Only admins may."""
    _confirm("Roll back", identifier, "on all clusters that it changed", yes=yes)
    _intervene(identifier, "rollback", output, RollBackDeployment(reason))


@app.command()
def abort(identifier: Id, yes: YesOption = False, output: OutputOption = OutputFormat.TABLE) -> None:
    """End an active deployment. What has begun ends, and every cluster is left as it is."""
    _confirm("Abort", identifier, "and leave its clusters as they are", yes=yes)

    async def call(api: ManagerApi) -> Any:
        return await api.delete(path_of("deployments", await find_deployment(api, identifier)))

    _show(call_manager(call), output)


@app.command("rollback-status")
def rollback_status(identifier: Id, output: OutputOption = OutputFormat.TABLE) -> None:
    """Show the progress of a rollback."""

    async def read(api: ManagerApi) -> Any:
        return await api.get(
            path_of("deployments", await find_deployment(api, identifier), "rollback-status")
        )

    answer = call_manager(read)
    show_result(
        answer, output, lambda: describe_rollback(as_type(answer, RollbackStatus)), name=lambda: identifier
    )


def _confirm(act: str, identifier: str, effect: str, *, yes: bool) -> None:
    """Ask for consent, with the deployment that an abbreviated id stands for."""
    if yes:
        return

    async def read(api: ManagerApi) -> Any:
        return await api.get(path_of("deployments", await find_deployment(api, identifier)))

    details = as_type(call_manager(read), DeploymentDetails)
    deployment, names = details.deployment, [each.cluster for each in details.clusters]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    of = f"{deployment.operator_name} {deployment.version} ({deployment.phase}; {', '.join(names[:_NAMED])}{more})"
    confirm(printable(f"{act} deployment {short_id(deployment.id)} of {of}, {effect}?"), yes=False)


def _intervene(identifier: str, verb: str, output: OutputFormat, body: Any = None) -> None:
    async def call(api: ManagerApi) -> Any:
        return await api.post(path_of("deployments", await find_deployment(api, identifier), verb), body)

    _show(call_manager(call), output)


def _show(answer: Any, output: OutputFormat) -> None:
    deployment = as_type(answer, VersionDeployment)

    def show() -> None:
        waits = f", waits for {deployment.waits_for}" if deployment.waits_for else ""
        of = f"{deployment.operator_name} {deployment.version}"
        typer.echo(printable(f"deployment {short_id(deployment.id)} of {of} is {deployment.phase}{waits}"))

    show_result(answer, output, show, name=lambda: str(deployment.id))
