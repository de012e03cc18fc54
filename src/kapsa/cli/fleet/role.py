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
    allow_everything: Annotated[
        bool, typer.Option(help="Accept a chart that makes the role an administrator of the cluster.")
    ] = False,
) -> None:
    """Print a ClusterRole with the rights that the manager needs in a cluster to roll out certain operators.

    Rights that deserve a second look, such as wildcards, are pointed out on standard error.

    Create it in each cluster before you register the cluster, and set KAPSA_FLEET_CLUSTER_ROLE to its name. Example:
    `helm template cert-manager cert-manager.tgz --include-crds | kapsa fleet role | kubectl apply -f -`
    """
    from kapsa.fleet.domain.errors import InvalidInput
    from kapsa.fleet.infrastructure.clusters.granted_rights import grants_of_everything, role_warnings
    from kapsa.fleet.infrastructure.clusters.manager_role import manager_role
    from kapsa.runtime import to_yaml

    origins: list[Path | None] = [*manifests] if manifests else [None]
    objects = [each for origin in origins for each in _objects(origin)]
    try:
        role, everything, warnings = (
            manager_role(name, objects),
            grants_of_everything(objects),
            role_warnings(objects),
        )
    except InvalidInput as error:
        raise TargetError(str(error)) from None
    if everything and not allow_everything:
        raise TargetError(
            f"{everything[0]} grants everything, and the role would be an administrator of the cluster: "
            "pass --allow-everything to accept that, or leave the chart out"
        )
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)
    typer.echo(to_yaml([role]), nl=False)


def _objects(path: Path | None) -> list[dict[str, Any]]:
    """Return the objects of a manifest, with those of Lists."""
    from kapsa.adapters.errors import ExternalError
    from kapsa.adapters.helm.release_secret import MANIFEST_LIMITS
    from kapsa.adapters.manifests.yaml_documents import load_documents

    origin = "standard input" if path is None else str(path)
    try:
        text = sys.stdin.read() if path is None else path.read_text(encoding="utf-8")
        documents = [each for each in load_documents(text.encode(), origin, MANIFEST_LIMITS) if each]
    except (OSError, UnicodeError) as error:
        raise TargetError(f"{origin} cannot be read as YAML: {error}") from None
    except ExternalError as error:
        raise TargetError(str(error)) from None
    objects: list[dict[str, Any]] = []
    for each in documents:
        objects += _items(each) if _is_object(each) else [each]
    if not all(map(_is_object, objects)):
        raise TargetError(f"{origin} has a document that is not a Kubernetes object: render the chart first")
    if not objects:
        raise TargetError(
            f"{origin} has no objects: pass the output of `helm template RELEASE CHART --include-crds`"
        )
    return objects


def _is_object(document: Any) -> bool:
    return isinstance(document, dict) and all(
        isinstance(document.get(field), str) for field in ("apiVersion", "kind")
    )


def _items(document: dict[str, Any]) -> list[Any]:
    """Return the items of a List, or the object itself. Items of a typed list have its kind."""
    kind = document["kind"]
    if not kind.endswith("List") or "items" not in document:
        return [document]
    items = document["items"] if isinstance(document["items"], list) else [None]
    typed = {"apiVersion": document["apiVersion"], "kind": kind.removesuffix("List")}
    if not typed["kind"]:
        return items
    return [{**typed, **item} if isinstance(item, dict) else item for item in items]
