"""`kapsa fleet operators`: register charts and their versions, and look at them."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from kapsa.cli.fleet.client.connection import call_manager
from kapsa.cli.fleet.client.manager_api import ManagerApi, as_type, path_of
from kapsa.cli.fleet.client.references import complete_operators
from kapsa.cli.fleet.people.inputs import convert_input, read_bytes, read_mapping
from kapsa.cli.fleet.people.lists import LimitOption, ListView, YesOption, show_list, show_result
from kapsa.cli.fleet.views.health import health_rows
from kapsa.cli.fleet.views.operators import describe_operator, source_text
from kapsa.cli.tables import OutputFormat, OutputOption, confirm, format_age, print_table, printable
from kapsa.cli.target import TargetError
from kapsa.fleet.domain.registry.clusters import ClusterEnvironment
from kapsa.fleet.domain.registry.operators import (
    ChartSource,
    HttpChart,
    ManagedOperator,
    OciChart,
    OperatorVersion,
    UploadedChart,
)
from kapsa.fleet.orchestrator.operator_health import OperatorHealthReport
from kapsa.fleet.orchestrator.ports.charts import RepositoryLogin
from kapsa.fleet.orchestrator.registry.operators import (
    AddVersion,
    RegisteredOperator,
    RegisterOperator,
    UpdateOperator,
)

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Register and inspect operators.")

Name = Annotated[
    str,
    typer.Argument(help="The name of the operator.", autocompletion=complete_operators, show_default=False),
]
Version = Annotated[str, typer.Option(help="The version (default: the newest that is not a prerelease).")]
Archive = Annotated[
    Path | None, typer.Option(help="The archive of an uploaded chart (.tgz); `-` for standard input.")
]
Values = Annotated[Path | None, typer.Option(help="A YAML file with values; `-` for standard input.")]
SecretValues = Annotated[
    Path | None, typer.Option(help="A YAML file with values that are sealed and shown to nobody.")
]
EnvironmentValues = Annotated[
    Path | None, typer.Option(help="A YAML file with values by environment: `Production: {replicas: 3}`.")
]
ClusterValues = Annotated[
    Path | None, typer.Option(help="A YAML file with values by cluster: `prod-eu: {replicas: 5}`.")
]
Credentials = Annotated[
    Path | None,
    typer.Option(help="A YAML file with the login of the repository: username and password, or token."),
]
Key = Annotated[
    str, typer.Option("--idempotency-key", help="Repeat a request with the same key without a second effect.")
]


def _operator_row(operator: ManagedOperator, now: datetime) -> tuple[object, ...]:
    state = "Paused" if operator.paused_reason else "Active"
    return (
        operator.name,
        operator.namespace,
        source_text(operator.source),
        state,
        format_age(operator.created_at, now),
    )


def _version_row(version: OperatorVersion, now: datetime) -> tuple[object, ...]:
    state = f"Withdrawn: {version.withdrawn_reason}" if version.withdrawn_reason else "Available"
    crds = len(version.facts.crds_in_crds) + len(version.facts.crds_in_templates)
    return version.version, version.chart_digest[:19], crds, format_age(version.created_at, now), state


_OPERATORS = ListView(
    ManagedOperator,
    ("NAME", "NAMESPACE", "CHART", "STATE", "AGE"),
    _operator_row,
    "there are no operators: `kapsa fleet operators register` adds one",
)
_VERSIONS = ListView(
    OperatorVersion,
    ("VERSION", "DIGEST", "CRDS", "AGE", "STATE"),
    _version_row,
    "there are no versions: `kapsa fleet operators add-version` adds one",
    name="version",
)


@app.command("ls")
def list_operators(
    prefix: Annotated[str, typer.Option(help="Only names that start with this.")] = "",
    limit: LimitOption = 0,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List operators."""
    show_list(_OPERATORS, "/operators", output, limit=limit, query={"prefix": prefix})


@app.command()
def describe(name: Name, output: OutputOption = OutputFormat.TABLE) -> None:
    """Show an operator with its newest versions."""

    async def read(api: ManagerApi) -> tuple[Any, list[Any], datetime]:
        operator = await api.get(path_of("operators", name))
        versions = [each async for each in api.items(path_of("operators", name, "versions"), limit=10)]
        return operator, versions, api.now

    operator, versions, now = call_manager(read)

    def show() -> None:
        describe_operator(as_type(operator, ManagedOperator))
        typer.echo()
        rows = [_version_row(as_type(each, OperatorVersion), now) for each in versions]
        print_table(_VERSIONS.headers, rows, empty=_VERSIONS.empty)

    show_result({**operator, "versions": versions}, output, show, name=lambda: name)


@app.command()
def versions(name: Name, limit: LimitOption = 50, output: OutputOption = OutputFormat.TABLE) -> None:
    """List the versions of an operator, newest first."""
    show_list(_VERSIONS, path_of("operators", name, "versions"), output, limit=limit)


@app.command()
def health(name: Name, output: OutputOption = OutputFormat.TABLE) -> None:
    """Show the health of an operator on every cluster, with the checks that are not healthy."""
    answer = call_manager(lambda api: api.get(path_of("operators", name, "health")))

    def show() -> None:
        report = as_type(answer, OperatorHealthReport)
        typer.echo(f"{printable(report.operator_name)} is {report.overall_health}")
        headers = ("CLUSTER", "HEALTH", "VERSION", "REVISION", "PODS", "WEBHOOKS", "RESOURCES", "EVIDENCE")
        print_table(headers, health_rows(report.clusters), empty="it is installed on no cluster")

    show_result(answer, output, show, name=lambda: name)


@app.command()
def register(
    name: Annotated[str, typer.Argument(help="The name of the operator, and of its release.")],
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="The namespace of its release.")],
    repository: Annotated[str, typer.Option(help="The address of a chart repository, with --chart.")] = "",
    chart: Annotated[
        str, typer.Option(help="The name of the chart (default: the name of the operator).")
    ] = "",
    oci: Annotated[
        str, typer.Option(help="A chart in a registry: oci://registry.example.com/charts/widget.")
    ] = "",
    archive: Archive = None,
    version: Version = "",
    values: Values = None,
    environment_values: EnvironmentValues = None,
    cluster_values: ClusterValues = None,
    secret_values: SecretValues = None,
    credentials: Credentials = None,
    key: Key = "",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Register an operator with its first version: from a chart repository, a registry, or an archive.

    Examples: `kapsa fleet operators register cert-manager -n cert-manager --repository https://charts.example.com`,
    `... --oci oci://registry.example.com/charts/widget`, `... --archive widget-1.0.0.tgz`.
    """
    request = RegisterOperator(
        name=name,
        namespace=namespace,
        source=_source(repository, oci, archive, chart or name),
        version=version,
        archive=read_bytes(archive) if archive else b"",
        values=read_mapping(values),
        environment_values=convert_input(
            read_mapping(environment_values), dict[ClusterEnvironment, dict[str, Any]], "--environment-values"
        ),
        cluster_values=_layers(cluster_values),
        secret_values=read_mapping(secret_values),
        credentials=_login(credentials),
    )
    _show_registered(call_manager(lambda api: api.post("/operators", request, key=key)), output)


@app.command("add-version")
def add_version(
    name: Name,
    version: Version = "",
    archive: Archive = None,
    migration_guide: Annotated[
        Path | None, typer.Option(help="A file with what people must do when they go to this version.")
    ] = None,
    key: Key = "",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Register a version of an operator, from its repository or with an archive."""
    request = AddVersion(
        version=version,
        archive=read_bytes(archive) if archive else b"",
        migration_guide=read_bytes(migration_guide).decode(errors="replace") if migration_guide else "",
    )
    path = path_of("operators", name, "versions")
    _show_registered(call_manager(lambda api: api.post(path, request, key=key)), output)


@app.command()
def update(
    name: Name,
    values: Values = None,
    environment_values: EnvironmentValues = None,
    cluster_values: ClusterValues = None,
    secret_values: SecretValues = None,
    credentials: Credentials = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Replace the values, the secret values or the credentials of an operator. What is left out stays."""
    changes: dict[str, Any] = {}
    if values:
        changes["values"] = read_mapping(values)
    if environment_values:
        changes["environment_values"] = convert_input(
            read_mapping(environment_values), dict[ClusterEnvironment, dict[str, Any]], "--environment-values"
        )
    if cluster_values:
        changes["cluster_values"] = _layers(cluster_values)
    if secret_values:
        changes["secret_values"] = read_mapping(secret_values)
    if credentials:
        changes["credentials"] = _login(credentials)
    if not changes:
        raise TargetError(
            "there is nothing to change: `kapsa fleet operators update --help` lists the options"
        )

    async def write(api: ManagerApi) -> Any:
        present = await api.get(path_of("operators", name))
        return await api.patch(
            path_of("operators", name), UpdateOperator(**changes), version=present["version"]
        )

    answer = call_manager(write)
    show_result(answer, output, lambda: typer.echo(f"operator {name} is updated"), name=lambda: name)


@app.command()
def delete(name: Name, yes: YesOption = False) -> None:
    """Delete an operator with its versions and secrets. Refused while deployments refer to it."""
    confirm(f"Delete operator {name} with its versions and secrets?", yes=yes)
    call_manager(lambda api: api.delete(path_of("operators", name)))
    typer.echo(f"operator {name} is deleted; what runs on clusters stays there")


def _source(repository: str, oci: str, archive: Path | None, chart: str) -> ChartSource:
    given = [each for each in (repository, oci, archive) if each]
    if len(given) != 1:
        raise TargetError("give one of --repository URL, --oci REFERENCE and --archive FILE")
    if repository:
        return HttpChart(repository=repository, chart=chart)
    return OciChart(reference=oci) if oci else UploadedChart(chart=chart)


def _layers(path: Path | None) -> dict[str, dict[str, Any]]:
    return convert_input(read_mapping(path), dict[str, dict[str, Any]], "--cluster-values")


def _login(path: Path | None) -> RepositoryLogin | None:
    return convert_input(read_mapping(path), RepositoryLogin, str(path)) if path else None


def _show_registered(answer: Any, output: OutputFormat) -> None:
    result = as_type(answer, RegisteredOperator)
    name = result.operator.name

    def show() -> None:
        version = f" {result.version.version}" if result.version else ", without a version yet,"
        typer.echo(printable(f"operator {name}{version} is registered"))
        for warning in result.warnings:
            typer.echo(f"warning: {printable(warning)}", err=True)

    show_result(answer, output, show, name=lambda: name)
