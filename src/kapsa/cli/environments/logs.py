"""`kapsa environments logs`: the logs of an environment's pods, or of its failed build."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import typer

from kapsa.cli.environments.options import ClusterChoice, Selector
from kapsa.cli.environments.selection import select_one
from kapsa.cli.environments.session import Session, run
from kapsa.cli.tables import printable
from kapsa.cli.target import TargetError
from kapsa.environments.resources import Environment
from kapsa.runtime import BadRequest, LogOptions, NotFound

__all__ = ["logs"]

_MOST_CONTAINERS = 20
"""Containers that are followed at the same time; each takes a connection."""


class _Container(msgspec.Struct, frozen=True):
    """A container of a pod, and whether its lines are marked with its name."""

    namespace: str
    pod: str
    name: str


def logs(
    selector: Selector,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines until Ctrl-C.")] = False,
    tail: Annotated[
        int, typer.Option(min=-1, help="Lines of each container to begin with; -1 for all.")
    ] = 100,
    pod: Annotated[str, typer.Option(help="Only this pod.")] = "",
    container: Annotated[str, typer.Option("--container", "-c", help="Only this container.")] = "",
    previous: Annotated[
        bool, typer.Option("--previous", help="The log of the containers before their last restart.")
    ] = False,
    build: Annotated[bool, typer.Option("--build", help="The end of the log of the failed build.")] = False,
    *,
    cluster: ClusterChoice,
) -> None:
    """Print the logs of an environment's pods, each line with its pod if there are several.

    \b
    Examples:
      kapsa environments logs cart
      kapsa environments logs --pr 42 --follow --tail 20
      kapsa environments logs cart --build
    """

    async def work(session: Session) -> None:
        environment = await select_one(session, selector)
        if build:
            _print_build(environment)
            return
        options: LogOptions = {"previous": previous}
        if tail >= 0:
            options["tail_lines"] = tail
        await _print_pods(session, await _containers(session, environment, pod, container), options, follow)

    with contextlib.suppress(KeyboardInterrupt):
        run(cluster, work)


def _print_build(environment: Environment) -> None:
    failure = environment.status.failure
    if failure is None or failure.step != "build" or not failure.log_tail:
        raise TargetError(
            f"environment {environment.name} has no failed build; the log of a running build is kept by the operator, and "
            "its end is shown here if it fails"
        )
    for line in failure.log_tail.splitlines():
        _print(line)


async def _containers(
    session: Session, environment: Environment, pod: str, container: str
) -> list[_Container]:
    """Return the containers whose logs to print."""
    made = environment.status.namespace
    if made is None:
        raise TargetError(
            f"environment {environment.name} has no namespace yet: `kapsa environments describe {environment.name} -n "
            f"{environment.namespace}` shows why"
        )
    pods = (await session.client.list("v1/Pod", namespace=made.name)).items
    selected = [
        _Container(made.name, each["metadata"]["name"], name)
        for each in pods
        if pod in ("", each["metadata"]["name"])
        for name in _started(each)
        if container in ("", name)
    ]
    if not selected:
        raise TargetError(_nothing_runs(environment, pods))
    if len(selected) > _MOST_CONTAINERS:
        raise TargetError(
            f"{len(selected)} containers run in namespace {made.name}: choose some with --pod or --container, such as "
            f"--pod {selected[0].pod}"
        )
    return selected


def _started(pod: dict[str, Any]) -> list[str]:
    """Return the containers of a pod that have a log. One that has not started has none."""
    status = pod.get("status") or {}
    states = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    return [
        each["name"] for each in states if "waiting" not in (each.get("state") or {}) or each["restartCount"]
    ]


def _nothing_runs(environment: Environment, pods: Sequence[object]) -> str:
    if environment.spec.suspended:
        why = f"it sleeps: `kapsa environments wake {environment.name}` starts it"
    elif pods:
        why = "no container that matches has started"
    else:
        why = f"it has no pods (phase {environment.status.phase})"
    return f"environment {environment.name} has no logs: {why}"


async def _print_pods(
    session: Session, containers: Sequence[_Container], options: LogOptions, follow: bool
) -> None:
    marked = len(containers) > 1

    async def one(each: _Container) -> None:
        mark = f"{each.pod}/{each.name} | " if marked else ""
        chosen: LogOptions = {**options, "namespace": each.namespace, "container": each.name}
        try:
            if follow:
                async for line in session.client.follow_logs(each.pod, **chosen):
                    _print(line.rstrip("\n"), mark)
            else:
                for line in (await session.client.logs(each.pod, **chosen)).splitlines():
                    _print(line, mark)
        except (NotFound, BadRequest) as error:  # the pod is gone, or has no earlier run
            typer.echo(f"kapsa: {each.pod}/{each.name}: {error}", err=True)

    if follow:
        await asyncio.gather(*(one(each) for each in containers))
        return
    for each in containers:
        await one(each)


def _print(line: str, mark: str = "") -> None:
    """Print a line of a program that we do not trust: on a terminal, without control characters."""
    typer.echo(mark + (printable(line, keep="\t") if sys.stdout.isatty() else line))
