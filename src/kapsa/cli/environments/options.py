"""Options that the commands for people share: the cluster, the namespace, and the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kapsa.cli.option_groups import OptionGroup

__all__ = ["ClusterChoice", "EnvironmentFilter", "Selector"]

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


class ClusterChoice(OptionGroup, frozen=True, kw_only=True):
    """The cluster and the namespace of a command, as kubectl takes them."""

    namespace: NamespaceOption = None
    context: ContextOption = None
    kubeconfig: KubeconfigOption = None


class EnvironmentFilter(OptionGroup, frozen=True, kw_only=True):
    """The environments that a command is about. An empty field selects all."""

    project: ProjectOption = ""
    branch: BranchOption = ""
    pull_request: PullRequestOption = None


class Selector(EnvironmentFilter, frozen=True, kw_only=True):
    """The one environment that a command is about."""

    name: NameArgument = ""

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
