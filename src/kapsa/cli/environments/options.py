"""Options that the commands for people share: the cluster, the namespace, and the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

__all__ = [
    "BranchOption",
    "ClusterChoice",
    "ContextOption",
    "KubeconfigOption",
    "NameArgument",
    "NamespaceOption",
    "ProjectOption",
    "PullRequestOption",
    "Selector",
]

KubeconfigOption = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig",
        metavar="FILE",
        help="The kubeconfig to use (default: KUBECONFIG, the pod's own, or ~/.kube/config).",
    ),
]
ContextOption = Annotated[str | None, typer.Option("--context", help="The context of the kubeconfig to use.")]
NamespaceOption = Annotated[
    str | None,
    typer.Option(
        "--namespace", "-n", help="The namespace of your team or of a project (default: that of the context)."
    ),
]
ProjectOption = Annotated[
    str, typer.Option("--project", "-p", help="The Project of the environment: NAME, or NAMESPACE/NAME.")
]
BranchOption = Annotated[str, typer.Option("--branch", "-b", help="The branch of the environment.")]
PullRequestOption = Annotated[
    int | None, typer.Option("--pr", min=1, help="The number of the environment's pull request.")
]
NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="The name of the environment; or select it by --branch or --pr.",
        show_default=False,
    ),
]


class ClusterChoice(msgspec.Struct, frozen=True):
    """The cluster and the namespace of a command, as kubectl takes them."""

    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None


class Selector(msgspec.Struct, frozen=True):
    """The environments that a command is about. An empty field selects all."""

    name: str = ""
    project: str = ""
    branch: str = ""
    pull_request: int | None = None

    @property
    def is_empty(self) -> bool:
        """True if no field distinguishes one environment from the others."""
        return not (self.name or self.branch or self.pull_request)

    def __str__(self) -> str:
        parts = [
            self.name,
            f"of branch {self.branch}" if self.branch else "",
            f"of pull request {self.pull_request}" if self.pull_request else "",
            f"of project {self.project}" if self.project else "",
        ]
        return " ".join(part for part in parts if part)
