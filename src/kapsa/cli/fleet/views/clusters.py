"""A cluster and its inventory as text."""

from __future__ import annotations

import typer

from kapsa.cli.tables import print_fields, print_table, printable
from kapsa.fleet.domain.registry.clusters import ManagedCluster
from kapsa.fleet.domain.registry.inventory import ClusterInventory
from kapsa.fleet.domain.registry.windows import MaintenanceWindow

__all__ = ["describe_cluster", "describe_inventory"]


def describe_cluster(cluster: ManagedCluster) -> None:
    """Print a cluster with its health, and when it may be changed."""
    health = cluster.health
    print_fields(
        [
            ("name", cluster.name),
            ("id", cluster.id),
            ("environment", cluster.environment),
            ("labels", ", ".join(f"{key}={value}" for key, value in sorted(cluster.labels.items()))),
            ("server", cluster.server),
            ("health", f"{health.condition}: {health.reason}" if health.reason else health.condition),
            ("kubernetes", health.kubernetes_version),
            ("nodes", f"{health.nodes_ready} of {health.nodes} ready"),
            ("latency", f"{health.latency_ms:.0f} ms" if health.latency_ms is not None else ""),
            ("checked", f"{health.last_checked:%Y-%m-%d %H:%M:%S} UTC" if health.last_checked else "not yet"),
            ("kubeconfig", "stored, sealed" if cluster.has_upload else "discarded: tokens are renewed"),
            ("created", f"{cluster.created_at:%Y-%m-%d %H:%M} UTC by {cluster.created_by}"),
            *(("window", _window(each)) for each in cluster.windows),
            *(
                (
                    "freeze",
                    f"{each.starts_at:%Y-%m-%d %H:%M} to {each.ends_at:%Y-%m-%d %H:%M} UTC: {each.reason}",
                )
                for each in cluster.freezes
            ),
            *(("warning", each) for each in health.warnings),
        ]
    )


def _window(window: MaintenanceWindow) -> str:
    hours = window.duration.total_seconds() / 3600
    return f"{', '.join(window.days)} {window.start} for {hours:g} h ({window.timezone})"


def describe_inventory(inventory: ClusterInventory) -> None:
    """Print the releases and the CRDs of a cluster."""
    releases = [
        (
            f"{each.namespace}/{each.name}",
            f"{each.chart} {each.chart_version}",
            each.revision,
            each.status,
            "this manager" if each.ours else each.manager or "",
        )
        for each in inventory.releases
    ]
    headers = ("RELEASE", "CHART", "REVISION", "STATUS", "MANAGED BY")
    print_table(headers, releases, empty="the cluster has no Helm releases")
    typer.echo()
    crds = [
        (each.name, ",".join(each.versions), ",".join(each.stored_versions), each.release, each.manager or "")
        for each in inventory.crds
    ]
    print_table(("CRD", "SERVED", "STORED", "RELEASE", "MANAGED BY"), crds, empty="the cluster has no CRDs")
    for problem in inventory.problems:
        typer.echo(f"not read: {printable(problem)}", err=True)
