"""`kapsa run MODULE:OPERATOR`: run an operator until it is told to stop."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["command"]


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    JSON = "json"
    TEXT = "text"


def command(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:OPERATOR", help="Where the operator is, such as myapp:operator.")
    ],
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
    log_level: Annotated[LogLevel, typer.Option(help="What to log.")] = LogLevel.INFO,
    log_format: Annotated[LogFormat, typer.Option(help="How to log.")] = LogFormat.JSON,
) -> None:
    """Run an operator until SIGTERM or SIGINT; then what runs may finish, and the lease is released."""
    given = {
        "--kubeconfig": kubeconfig,
        "--context": context,
        "--metrics-port": metrics_port,
        "--health-port": health_port,
        "--log-level": log_level.value,
        "--log-format": log_format.value,
    }
    arguments = [f"{name}={value}" for name, value in given.items() if value is not None]
    arguments += [f"--namespace={name}" for name in namespace or ()]
    # The command line's machinery weighs ten megabytes, which an operator would carry for months: become another
    # program, in the same process.
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "kapsa.runtime.process", target, *arguments])  # noqa: S606
