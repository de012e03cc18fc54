"""`kapsa fleet crds`: CRDs of operators, their changes, and the verdict on live resources."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from kapsa.cli.fleet.client.connection import call_manager
from kapsa.cli.fleet.client.manager_api import as_type, path_of
from kapsa.cli.fleet.client.references import complete_clusters, complete_crds, complete_operators
from kapsa.cli.fleet.people.inputs import read_mapping
from kapsa.cli.fleet.people.lists import LimitOption, ListView, show_list, show_result
from kapsa.cli.fleet.views.crds import describe_crd, describe_validation
from kapsa.cli.tables import OutputFormat, OutputOption, printable
from kapsa.fleet.orchestrator.crds.requests import (
    ApproveCrd,
    CrdDetail,
    CrdValidation,
    StoreCrd,
    ValidateCrd,
)
from kapsa.fleet.orchestrator.ports.crds import CrdApproval, CrdListing

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Inspect, compare and approve changes of CRDs."
)

Name = Annotated[
    str,
    typer.Argument(
        help="The name of the CRD, such as certificates.cert-manager.io.",
        autocompletion=complete_crds,
        show_default=False,
    ),
]
Operator = Annotated[str, typer.Option(help="The operator.", autocompletion=complete_operators)]
FromVersion = Annotated[
    str, typer.Option("--from", help="The version to come from (default: the one before).")
]


def _row(crd: CrdListing, now: datetime) -> tuple[object, ...]:
    return crd.name, crd.operator, crd.kind, crd.scope, crd.newest_version, crd.revisions


_CRDS = ListView(
    CrdListing,
    ("NAME", "OPERATOR", "KIND", "SCOPE", "NEWEST", "VERSIONS"),
    _row,
    "there are no CRDs: they are stored with the versions of operators",
)


@app.command("ls")
def list_crds(
    operator: Operator = "",
    prefix: Annotated[str, typer.Option(help="Only names that start with this.")] = "",
    limit: LimitOption = 0,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List the CRDs of operators."""
    show_list(_CRDS, "/crds", output, limit=limit, query={"operator": operator, "prefix": prefix})


@app.command()
def describe(name: Name, operator: Operator = "", output: OutputOption = OutputFormat.TABLE) -> None:
    """Show a CRD with its history, its approvals, and its state on every cluster that has it."""
    answer = call_manager(lambda api: api.get(path_of("crds", name), operator=operator))
    show_result(answer, output, lambda: describe_crd(as_type(answer, CrdDetail)), name=lambda: name)


@app.command()
def validate(
    name: Name,
    operator: Operator,
    version: Annotated[str, typer.Option("--to", help="The version to go to (default: the newest).")] = "",
    from_version: FromVersion = "",
    cluster: Annotated[
        list[str] | None,
        typer.Option(
            help="Judge the resources of this cluster only. Repeatable.", autocompletion=complete_clusters
        ),
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Compare two versions of a CRD, and judge the live resources of clusters by the newer one.

    Prints the digest that `kapsa fleet crds approve` needs.
    """
    request = ValidateCrd(
        operator=operator,
        version=version,
        from_version=from_version,
        clusters=tuple(cluster) if cluster else None,
    )
    answer = call_manager(lambda api: api.post(path_of("crds", name, "validate"), request))
    show_result(
        answer,
        output,
        lambda: describe_validation(as_type(answer, CrdValidation)),
        name=lambda: str(answer["digest"]),
    )


@app.command()
def approve(
    name: Name,
    operator: Operator,
    version: Annotated[str, typer.Option("--to", help="The version to go to.")],
    digest: Annotated[str, typer.Option(help="The digest that `kapsa fleet crds validate` printed.")],
    from_version: FromVersion = "",
    comment: Annotated[str, typer.Option("--comment", "-m", help="A comment for the record.")] = "",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Approve a breaking or one-way change of a CRD: exactly the findings that validation has shown."""
    request = ApproveCrd(
        operator=operator, version=version, digest=digest, from_version=from_version, comment=comment
    )
    answer = call_manager(lambda api: api.post(path_of("crds", name, "approve"), request))

    def show() -> None:
        approval = as_type(answer, CrdApproval)
        typer.echo(f"{approval.name} {approval.version} is approved by {printable(approval.approved_by)}")

    show_result(answer, output, show, name=lambda: name)


@app.command()
def store(
    operator: Annotated[str, typer.Argument(help="The operator.", autocompletion=complete_operators)],
    version: Annotated[str, typer.Argument(help="A registered version of it.")],
    file: Annotated[
        Path, typer.Argument(help="The CustomResourceDefinition as YAML; `-` for standard input.")
    ],
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Store a CRD with a version of an operator, if its chart does not bring it along."""
    request = StoreCrd(operator=operator, version=version, definition=read_mapping(file))
    answer: Any = call_manager(lambda api: api.post("/crds", request))
    name = str(answer["name"])
    show_result(
        answer,
        output,
        lambda: typer.echo(f"{printable(name)} is stored with {operator} {version}"),
        name=lambda: name,
    )
