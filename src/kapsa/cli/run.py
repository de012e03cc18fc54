"""`kapsa run MODULE:OPERATOR`: run an operator until it is told to stop."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kapsa.runtime.operator import Operator

__all__ = ["command", "load_operator"]


def load_operator(target: str) -> Operator:
    """The operator that `MODULE:OPERATOR` names; the attribute is `operator` unless given."""
    from kapsa.runtime.operator import Operator

    module_name, _, attribute = target.partition(":")
    attribute = attribute or "operator"
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise
        raise typer.BadParameter(
            f"no module {module_name!r} here: run it from the project's folder, or install the project"
        ) from None
    found = getattr(module, attribute, None)
    if not isinstance(found, Operator):
        have = [name for name, value in vars(module).items() if isinstance(value, Operator)]
        hint = f"it has {', '.join(have)}" if have else "it has no Operator at all"
        raise typer.BadParameter(f"{module_name}:{attribute} is no Operator; {hint}")
    return found


def command(
    target: Annotated[str, typer.Argument(metavar="MODULE:OPERATOR", help="Where the operator is.")],
    namespace: Annotated[
        list[str] | None,
        typer.Option("--namespace", "-n", help="Look at this namespace only; may be repeated."),
    ] = None,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="The cluster; KUBECONFIG, the pod's own or ~/.kube/config unless given."),
    ] = None,
    context: Annotated[str | None, typer.Option(help="The kubeconfig's context to use.")] = None,
    metrics_port: Annotated[int | None, typer.Option(help="Serve /metrics here instead.")] = None,
    health_port: Annotated[int | None, typer.Option(help="Serve /healthz and /readyz here instead.")] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    log_format: Annotated[str, typer.Option(help="json or text.")] = "json",
) -> None:
    """Run an operator: MODULE:OPERATOR."""
    from kapsa.runtime.client import Client
    from kapsa.runtime.errors import ConfigError
    from kapsa.runtime.logs import configure

    try:
        configure(level=log_level, format=log_format)  # type: ignore[arg-type]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    operator = load_operator(target)
    if metrics_port is not None:
        operator.metrics_port = metrics_port
    if health_port is not None:
        operator.health_port = health_port
    try:
        client = Client.connect(kubeconfig=kubeconfig, context=context, field_manager=operator.field_manager)
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from None
    operator.run(client=client, namespaces=namespace or None)
