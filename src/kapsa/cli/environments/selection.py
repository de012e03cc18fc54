"""The environments of a namespace: those in it, and those of the Projects in it.

A team's namespace holds Projects, and each Project has a namespace of its own with its Environments. People need not
know the second one: the status of the Project names it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import typer

from kapsa.cli.environments.options import Selector
from kapsa.cli.environments.session import Session
from kapsa.cli.tables import printable
from kapsa.cli.target import TargetError
from kapsa.environments.resources import Environment, Project
from kapsa.runtime import Forbidden, NotFound

__all__ = ["select", "select_one"]

_AT_ONCE = 8
_SHOWN = 5


async def select(session: Session, selector: Selector, *, everywhere: bool = False) -> list[Environment]:
    """Return the environments that match, sorted by namespace and name."""
    if everywhere:
        listed = list((await session.client.list(Environment)).items)
    else:
        listed = await _listed(session, await _namespaces(session, selector.project))
    matching = [each for each in listed if _matches(each, selector)]
    return sorted(matching, key=lambda each: (each.namespace, each.name))


async def select_one(session: Session, selector: Selector) -> Environment:
    """Return the only environment that matches. Raises TargetError if there is none, or more than one."""
    if selector.is_empty:
        raise TargetError("give the NAME of an environment, or select it by --branch or --pr")
    matching = await select(session, selector)
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise TargetError(
            f"{len(matching)} environments match {printable(selector)}: {_names(matching)}; choose one with its NAME, "
            "--project or --namespace"
        )
    raise TargetError(
        f"there is no environment {printable(selector)} in namespace {session.namespace} or in those of its projects; "
        "`kapsa environments ls` lists them, and --namespace selects another namespace"
    )


async def _namespaces(session: Session, project: str) -> list[str]:
    """Return the namespaces to look in: that of the project, or the current one and those of its projects."""
    if project:
        return [await _namespace_of(session, project)]
    try:
        projects = (await session.client.list(Project, namespace=session.namespace)).items
    except Forbidden:
        projects = []  # a person who may see a project's environments only
    made = [each.status.namespace.name for each in projects if each.status.namespace is not None]
    return list(dict.fromkeys([session.namespace, *made]))


async def _namespace_of(session: Session, project: str) -> str:
    """Return the namespace of a project's environments."""
    team, slash, name = project.rpartition("/")
    try:
        owner = await session.client.get(Project, name, namespace=team if slash else session.namespace)
    except (NotFound, Forbidden):
        if slash:
            raise
        return session.namespace  # the namespace of the project itself, perhaps
    if owner.status.namespace is None:
        raise TargetError(
            f"Project {owner.namespace}/{owner.name} has no namespace yet: `kubectl describe project {owner.name} -n "
            f"{owner.namespace}` shows why"
        )
    return owner.status.namespace.name


async def _listed(session: Session, namespaces: Iterable[str]) -> list[Environment]:
    """Return all environments in these namespaces. The first must be readable; others are skipped if they are not."""
    room = asyncio.Semaphore(_AT_ONCE)

    async def one(namespace: str, *, required: bool) -> Sequence[Environment]:
        async with room:
            try:
                return (await session.client.list(Environment, namespace=namespace)).items
            except Forbidden:
                if required:
                    raise
                typer.echo(f"kapsa: you may not see the environments in namespace {namespace}", err=True)
                return ()

    names = list(namespaces)
    lists = await asyncio.gather(*(one(name, required=len(names) == 1) for name in names))
    return [each for listed in lists for each in listed]


def _matches(environment: Environment, selector: Selector) -> bool:
    source = environment.spec.source
    project = selector.project.rpartition("/")[2]
    return (
        selector.name in ("", environment.name)
        and project in ("", environment.spec.project_ref.name)
        and selector.branch in ("", source.branch)
        and selector.pull_request in (None, source.pr_number)
    )


def _names(environments: Sequence[Environment]) -> str:
    shown = ", ".join(f"{each.namespace}/{each.name}" for each in environments[:_SHOWN])
    return shown + (" and more" if len(environments) > _SHOWN else "")
