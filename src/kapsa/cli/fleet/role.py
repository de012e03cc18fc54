"""`kapsa fleet role`: the rights that the manager needs in a cluster for certain operators."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from kapsa.cli.target import TargetError

__all__ = ["print_role"]


def print_role(
    manifests: Annotated[
        list[Path] | None,
        typer.Argument(help="Files with rendered charts, CRDs included; standard input if there are none."),
    ] = None,
    name: Annotated[str, typer.Option(help="The name of the ClusterRole.")] = "kapsa-fleet",
) -> None:
    """Print a ClusterRole with the rights that the manager needs in a cluster to roll out certain operators.

    Create it in each cluster before you register the cluster, and set KAPSA_FLEET_CLUSTER_ROLE to its name. Example:
    `helm template cert-manager cert-manager.tgz --include-crds | kapsa fleet role | kubectl apply -f -`
    """
    from kapsa.fleet.infrastructure.clusters.manager_role import manager_role
    from kapsa.runtime import to_yaml

    origins: list[Path | None] = [*manifests] if manifests else [None]
    objects = [each for origin in origins for each in _objects(origin)]
    typer.echo(to_yaml([manager_role(name, objects)]), nl=False)


def _objects(path: Path | None) -> list[dict[str, Any]]:
    """Return the objects of a manifest, with those of Lists."""
    import yaml

    origin = "standard input" if path is None else str(path)
    try:
        text = sys.stdin.read() if path is None else path.read_text(encoding="utf-8")
        documents = [each for each in yaml.safe_load_all(text) if each]
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise TargetError(f"{origin} cannot be read as YAML: {error}") from None
    objects: list[dict[str, Any]] = []
    for each in documents:
        if not isinstance(each, dict) or not isinstance(each.get("apiVersion"), str) or "kind" not in each:
            raise TargetError(
                f"{origin} has a document that is not a Kubernetes object: render the chart first"
            )
        objects += each["items"] if each["kind"].endswith("List") and "items" in each else [each]
    if not objects:
        raise TargetError(
            f"{origin} has no objects: pass the output of `helm template RELEASE CHART --include-crds`"
        )
    return objects
