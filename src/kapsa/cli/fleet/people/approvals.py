"""`kapsa fleet approvals`: agree to plans, or refuse them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import typer

from kapsa.cli.fleet.client.connection import call_manager
from kapsa.cli.fleet.client.manager_api import ManagerApi, as_type, path_of
from kapsa.cli.fleet.client.problems import CallRefused
from kapsa.cli.fleet.client.references import (
    complete_pending_approvals,
    find_approval,
    find_deployment,
    short_id,
)
from kapsa.cli.fleet.people.lists import LimitOption, ListView, show_list, show_result
from kapsa.cli.fleet.views.plans import describe_plan
from kapsa.cli.tables import OutputFormat, OutputOption, format_age, format_duration, print_fields, printable
from kapsa.fleet.api.views import ApprovalDecision
from kapsa.fleet.domain.rollout.approvals import ApprovalRequest, ApprovalState
from kapsa.fleet.orchestrator.deployment_requests import PlanDetails

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Decide on plans that need approval.")

Ids = Annotated[
    list[str],
    typer.Argument(
        metavar="ID...",
        help="Approvals, by their ids or the first characters of them.",
        autocompletion=complete_pending_approvals,
        show_default=False,
    ),
]
Comment = Annotated[str, typer.Option("--comment", "-m", help="A comment for the record.")]


def _row(approval: ApprovalRequest, now: datetime) -> tuple[object, ...]:
    return (
        short_id(approval.id),
        short_id(approval.deployment_id),
        approval.kind,
        approval.environment,
        approval.state,
        approval.requested_by,
        approval.decided_by,
        format_duration((approval.expires_at - now).total_seconds())
        if approval.expires_at > now
        else "expired",
        format_age(approval.created_at, now),
    )


_APPROVALS = ListView(
    ApprovalRequest,
    ("ID", "DEPLOYMENT", "KIND", "ENVIRONMENT", "STATE", "REQUESTED BY", "DECIDED BY", "EXPIRES IN", "AGE"),
    _row,
    "there are no such approvals",
    name="id",
)


@app.command("ls")
def list_approvals(
    state: Annotated[
        ApprovalState, typer.Option(help="Only approvals in this state.", case_sensitive=False)
    ] = ApprovalState.PENDING,
    deployment: Annotated[str, typer.Option(help="Only approvals of this deployment.")] = "",
    limit: LimitOption = 0,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List approvals, newest first: those that are pending, unless another state is chosen."""
    chosen = call_manager(lambda api: find_deployment(api, deployment)) if deployment else ""

    def keep(item: Any) -> bool:
        return not chosen or item["deploymentId"] == chosen

    show_list(
        _APPROVALS, "/approvals", output, limit=0 if chosen else limit, keep=keep, query={"state": state}
    )


@app.command()
def describe(
    identifier: Annotated[
        str, typer.Argument(metavar="ID", help="The approval.", autocompletion=complete_pending_approvals)
    ],
    diff: Annotated[bool, typer.Option("--diff", help="Show what changes in the manifests.")] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show an approval with the plan that it is bound to."""

    async def read(api: ManagerApi) -> tuple[Any, Any]:
        approval = await find_approval(api, identifier)
        try:
            plan = await api.get(path_of("deployments", approval["deploymentId"], "plan"))
        except CallRefused:  # the deployment is being planned again
            plan = None
        return approval, plan

    approval, plan = call_manager(read)

    def show() -> None:
        _describe(as_type(approval, ApprovalRequest))
        if plan is not None and plan["digest"] == approval["digest"]:
            typer.echo()
            describe_plan(as_type(plan, PlanDetails), diff=diff)
        else:
            typer.echo("\nthe deployment has another plan now: this approval cannot be used", err=True)

    show_result({**approval, "plan": plan}, output, show, name=lambda: str(approval["id"]))


@app.command()
def approve(identifiers: Ids, comment: Comment = "") -> None:
    """Agree to the plans that approvals are bound to. Nobody approves what they requested."""
    _decide(identifiers, "approve", comment)


@app.command()
def reject(identifiers: Ids, comment: Comment = "") -> None:
    """Refuse plans. Their deployments end, and never run."""
    _decide(identifiers, "reject", comment)


def _decide(identifiers: list[str], verb: str, comment: str) -> None:
    async def decide(api: ManagerApi) -> None:
        for identifier in identifiers:
            chosen = await find_approval(api, identifier)
            answer = await api.post(path_of("approvals", chosen["id"], verb), ApprovalDecision(comment))
            approval = as_type(answer, ApprovalRequest)
            typer.echo(
                f"{short_id(approval.id)} is {approval.state}: {approval.kind} in {approval.environment}, "
                f"deployment {short_id(approval.deployment_id)}, plan {printable(approval.digest[:19])}"
            )

    call_manager(decide)


def _describe(approval: ApprovalRequest) -> None:
    print_fields(
        [
            ("id", approval.id),
            ("deployment", approval.deployment_id),
            ("kind", approval.kind),
            ("environment", approval.environment),
            ("level", approval.level if approval.level > 1 else ""),
            ("state", approval.state),
            ("requested by", ", ".join((approval.requested_by, *approval.retried_by))),
            ("decided by", approval.decided_by),
            ("comment", approval.comment),
            ("expires", f"{approval.expires_at:%Y-%m-%d %H:%M} UTC"),
            ("plan", approval.digest),
        ]
    )
