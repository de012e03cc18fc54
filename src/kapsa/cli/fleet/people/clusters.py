"""`kapsa fleet clusters`: register clusters, look at them, and close them to changes for a time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from kapsa.cli.fleet.client.connection import call_manager
from kapsa.cli.fleet.client.manager_api import ManagerApi, as_type, path_of
from kapsa.cli.fleet.client.references import complete_clusters, complete_operators
from kapsa.cli.fleet.people.inputs import parse_moment, parse_pairs, read_text
from kapsa.cli.fleet.people.lists import LimitOption, ListView, YesOption, show_list, show_result
from kapsa.cli.fleet.people.windows import parse_windows
from kapsa.cli.fleet.views.clusters import describe_cluster, describe_inventory
from kapsa.cli.tables import OutputFormat, OutputOption, confirm, format_age, print_fields, printable
from kapsa.cli.target import TargetError
from kapsa.fleet.domain.registry.clusters import ClusterEnvironment, ManagedCluster
from kapsa.fleet.domain.registry.inventory import ClusterInventory
from kapsa.fleet.domain.registry.windows import ChangeFreeze
from kapsa.fleet.orchestrator.registry.adoptions import AdoptionPlan, AdoptRelease
from kapsa.fleet.orchestrator.registry.clusters import ClusterResult, RegisterCluster, UpdateCluster

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Register, inspect and freeze clusters.")

Name = Annotated[
    str, typer.Argument(help="The name of the cluster.", autocompletion=complete_clusters, show_default=False)
]
Names = Annotated[
    list[str],
    typer.Argument(help="The names of the clusters.", autocompletion=complete_clusters, show_default=False),
]
Kubeconfig = Annotated[
    Path | None,
    typer.Option(help="A kubeconfig with one cluster, user and context; `-` for standard input."),
]
Labels = Annotated[list[str] | None, typer.Option("--label", "-l", help="A label, key=value. Repeatable.")]
Windows = Annotated[
    list[str] | None,
    typer.Option(
        "--window",
        help="A time at which it may be changed: 'Tuesday,Thursday 22:00 4h Europe/Prague'. Repeatable.",
    ),
]
Discard = Annotated[
    bool,
    typer.Option("--discard-upload", help="Erase the kubeconfig once the manager has a token of its own."),
]
Key = Annotated[
    str, typer.Option("--idempotency-key", help="Repeat a request with the same key without a second effect.")
]


def _row(cluster: ManagedCluster, now: datetime) -> tuple[object, ...]:
    health = cluster.health
    frozen = any(freeze.starts_at <= now < freeze.ends_at for freeze in cluster.freezes)
    return (
        cluster.name,
        cluster.environment,
        health.condition,
        health.kubernetes_version,
        f"{health.nodes_ready}/{health.nodes}",
        "Frozen" if frozen else "Windows" if cluster.windows else "Any time",
        format_age(cluster.created_at, now),
    )


_CLUSTERS = ListView(
    ManagedCluster,
    ("NAME", "ENVIRONMENT", "HEALTH", "KUBERNETES", "NODES", "CHANGES", "AGE"),
    _row,
    "there are no clusters: `kapsa fleet clusters register` adds one",
)


@app.command("ls")
def list_clusters(
    environment: Annotated[
        ClusterEnvironment | None,
        typer.Option(help="Only clusters of this environment.", case_sensitive=False),
    ] = None,
    label: Labels = None,
    prefix: Annotated[str, typer.Option(help="Only names that start with this.")] = "",
    limit: LimitOption = 0,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List clusters with their health."""
    labels = ",".join(f"{key}={value}" for key, value in parse_pairs("--label", label).items())
    query: dict[str, object] = {"environment": environment or "", "labels": labels, "prefix": prefix}
    show_list(_CLUSTERS, "/clusters", output, limit=limit, query=query)


@app.command()
def describe(name: Name, output: OutputOption = OutputFormat.TABLE) -> None:
    """Show a cluster: its health, its labels, and when it may be changed."""
    answer = call_manager(lambda api: api.get(path_of("clusters", name)))
    show_result(answer, output, lambda: describe_cluster(as_type(answer, ManagedCluster)), name=lambda: name)


@app.command()
def releases(
    name: Name,
    refresh: Annotated[bool, typer.Option("--refresh", help="Take the inventory again, now.")] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show the Helm releases and the CRDs of a cluster, and who else manages them."""
    answer = call_manager(lambda api: api.get(path_of("clusters", name, "releases"), refresh=refresh))
    show_result(
        answer, output, lambda: describe_inventory(as_type(answer, ClusterInventory)), name=lambda: name
    )


@app.command()
def register(
    name: Annotated[str, typer.Argument(help="The name of the cluster.")],
    environment: Annotated[ClusterEnvironment, typer.Option(help="Its use.", case_sensitive=False)],
    kubeconfig: Annotated[
        Path, typer.Option(help="A kubeconfig with one cluster, user and context; `-` for standard input.")
    ],
    label: Labels = None,
    window: Windows = None,
    discard_upload: Discard = False,
    key: Key = "",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Register a cluster by its kubeconfig.

    The cluster is contacted first, and an account for the manager is made there. For one context of your own:
    `kubectl config view --minify --flatten --raw | kapsa fleet clusters register dev --environment Dev --kubeconfig -`.
    """
    request = RegisterCluster(
        name=name,
        environment=environment,
        kubeconfig=read_text(kubeconfig),
        labels=parse_pairs("--label", label),
        windows=parse_windows(window),
        discard_upload=discard_upload,
    )
    _show_changed(call_manager(lambda api: api.post("/clusters", request, key=key)), output, "registered")


@app.command()
def update(
    name: Name,
    environment: Annotated[
        ClusterEnvironment | None, typer.Option(help="Its use.", case_sensitive=False)
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", "-l", help="A label to set, key=value, or to remove, key-. Repeatable."),
    ] = None,
    window: Windows = None,
    no_windows: Annotated[bool, typer.Option("--no-windows", help="Remove all maintenance windows.")] = False,
    kubeconfig: Kubeconfig = None,
    discard_upload: Discard = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Change the environment, the labels, the windows or the credential of a cluster. What is left out stays."""
    if window and no_windows:
        raise TargetError("give --window or --no-windows, not both")
    changes: dict[str, Any] = {}
    if environment:
        changes["environment"] = environment
    if window or no_windows:
        changes["windows"] = parse_windows(window)
    if kubeconfig:
        changes["kubeconfig"] = read_text(kubeconfig)
    if discard_upload:
        changes["discard_upload"] = True
    if not changes and not label:
        raise TargetError(
            "there is nothing to change: `kapsa fleet clusters update --help` lists the options"
        )

    def labelled(cluster: ManagedCluster) -> UpdateCluster:
        if not label:
            return UpdateCluster(**changes)
        return UpdateCluster(**changes, labels=_changed_labels(cluster.labels, label))

    _show_changed(_change(name, lambda cluster, now: labelled(cluster)), output, "updated")


@app.command()
def freeze(
    names: Names,
    until: Annotated[str, typer.Option(help="The end: 2027-01-02T08:00:00Z, or a span such as 3d.")],
    reason: Annotated[str, typer.Option(help="The reason, which waiting deployments show.")],
    since: Annotated[str, typer.Option("--from", help="The start (default: now).")] = "0s",
) -> None:
    """Close clusters to changes for a time. Deployments wait, and name the reason."""

    def add(cluster: ManagedCluster, now: datetime) -> UpdateCluster:
        added = ChangeFreeze(parse_moment("--from", since, now), parse_moment("--until", until, now), reason)
        return UpdateCluster(freezes=(*(each for each in cluster.freezes if each.ends_at > now), added))

    for name in names:
        _change(name, add)
        typer.echo(f"cluster {name} is frozen until {until}")


@app.command()
def unfreeze(names: Names) -> None:
    """Remove all freezes of clusters. A deployment that waits for them goes on within a minute."""
    for name in names:
        _change(name, lambda cluster, now: UpdateCluster(freezes=()))
        typer.echo(f"cluster {name} has no freezes")


@app.command()
def adopt(
    name: Name,
    operator: Annotated[str, typer.Argument(help="The operator.", autocompletion=complete_operators)],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan, and adopt nothing.")] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Adopt the release of an operator that was there before, without a change to the cluster."""
    request = AdoptRelease(operator=operator, dry_run=dry_run)
    answer = call_manager(lambda api: api.post(path_of("clusters", name, "adopt"), request))

    def show() -> None:
        plan = as_type(answer, AdoptionPlan)
        state = "adopted" if plan.adopted else "not adopted"
        release = f"{plan.namespace}/{plan.release} revision {plan.revision}, version {plan.version}: {state}"
        print_fields([("release", release), *(("differs", each) for each in plan.differences)])
        for notice in plan.notices:
            typer.echo(printable(notice))

    show_result(answer, output, show, name=lambda: name)


@app.command()
def delete(name: Name, yes: YesOption = False) -> None:
    """Delete a cluster, its credentials, and what identifies it. Refused while a deployment uses it."""
    confirm(f"Delete cluster {name} and its credentials from the manager?", yes=yes)
    answer = call_manager(lambda api: api.delete(path_of("clusters", name)))
    typer.echo(f"cluster {name} is deleted from the manager; what runs there stays")
    for notice in (answer or {}).get("notices", ()):
        typer.echo(printable(notice), err=True)


def _change(name: str, decide: Callable[[ManagedCluster, datetime], UpdateCluster]) -> Any:
    """Change a cluster by what it is now. Refused if somebody else changes it in between."""

    async def write(api: ManagerApi) -> Any:
        present = as_type(await api.get(path_of("clusters", name)), ManagedCluster)
        return await api.patch(path_of("clusters", name), decide(present, api.now), version=present.version)

    return call_manager(write)


def _changed_labels(present: dict[str, str], texts: list[str] | None) -> dict[str, str]:
    removed = {text[:-1] for text in texts or () if text.endswith("-") and "=" not in text}
    added = parse_pairs("--label", [text for text in texts or () if text[:-1] not in removed or "=" in text])
    return {key: value for key, value in present.items() if key not in removed} | added


def _show_changed(answer: Any, output: OutputFormat, verb: str) -> None:
    result = as_type(answer, ClusterResult)
    cluster = result.cluster

    def show() -> None:
        state = f"{cluster.environment}, {cluster.health.condition}"
        typer.echo(printable(f"cluster {cluster.name} is {verb}: {state}"))
        for notice in result.notices:
            typer.echo(printable(notice), err=True)

    show_result(answer, output, show, name=lambda: cluster.name)
