"""`kapsa environments approve|sleep|wake|redeploy|extend`: changes of one environment by documented fields.

Each is one patch of the Environment, which a person with the role `edit` may make; `kubectl patch` can do the same.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from kapsa.adapters.git.address import is_commit
from kapsa.cli.environments.options import ClusterChoice, Selector
from kapsa.cli.environments.selection import select_one
from kapsa.cli.environments.session import Session, run
from kapsa.cli.tables import OutputFormat, OutputOption, confirm, print_document
from kapsa.cli.target import TargetError
from kapsa.environments.names import APPROVED_COMMIT, KEEP_UNTIL, REDEPLOY_REQUESTED, ROLE
from kapsa.environments.resources import Duration, Environment

__all__ = ["approve", "extend", "redeploy", "sleep", "wake"]

Patch = dict[str, Any]
_SHORTEST_COMMIT = 7


def approve(
    selector: Selector,
    commit: Annotated[
        str,
        typer.Option(
            help="The commit that you have read; fails if the environment asks for another one. In full, nothing is asked."
        ),
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    output: OutputOption = OutputFormat.TABLE,
    *,
    cluster: ClusterChoice,
) -> None:
    """Let the commit of a pull request from a fork run. Read it first: it runs with the project's secrets.

    The next push is another commit, and needs another approval.

    \b
    Examples:
      kapsa environments approve --pr 42
      kapsa environments approve pr-42 --commit 0123456789abcdef0123456789abcdef01234567
    """

    def patch(environment: Environment) -> tuple[Patch, str]:
        requested = _requested_commit(environment)
        _check_read(environment, requested, commit)
        question = (
            f"Let commit {requested} of environment {environment.name} run, with the secrets of project "
            f"{environment.spec.project_ref.name}?"
        )
        # Only the full hash names one commit: another with the same first digits is made in seconds.
        confirm(question, yes=yes or commit.lower() == requested)
        return _annotation(APPROVED_COMMIT, requested), f"approved commit {requested}"

    _change(cluster, selector, output, patch)


def sleep(
    selector: Selector,
    output: OutputOption = OutputFormat.TABLE,
    *,
    cluster: ClusterChoice,
) -> None:
    """Stop all pods of an environment, and keep everything else: its host, its volumes, its data.

    \b
    Examples:
      kapsa environments sleep cart
    """
    _change(cluster, selector, output, lambda _: ({"spec": {"suspended": True}}, "put to sleep"))


def wake(
    selector: Selector,
    output: OutputOption = OutputFormat.TABLE,
    *,
    cluster: ClusterChoice,
) -> None:
    """Start the pods of an environment that sleeps, at the commit that it asks for now.

    \b
    Examples:
      kapsa environments wake cart
    """
    _change(cluster, selector, output, lambda _: ({"spec": {"suspended": False}}, "woken"))


def redeploy(
    selector: Selector,
    commit: Annotated[
        str,
        typer.Option(
            help="Deploy this commit (all digits), in an environment that does not follow a branch."
        ),
    ] = "",
    output: OutputOption = OutputFormat.TABLE,
    *,
    cluster: ClusterChoice,
) -> None:
    """Replace all pods of an environment and retry a failed build, or deploy another commit.

    \b
    Examples:
      kapsa environments redeploy cart
      kapsa environments redeploy staging --commit 0123456789abcdef0123456789abcdef01234567
    """

    def patch(environment: Environment) -> tuple[Patch, str]:
        request = _annotation(REDEPLOY_REQUESTED, datetime.now(UTC).isoformat(timespec="milliseconds"))
        if not commit:
            return request, f"redeploying commit {environment.spec.source.commit_sha}"
        if environment.metadata.labels.get(ROLE) == "preview":
            raise TargetError(
                f"environment {environment.name} is a preview and follows its branch: push the commit instead"
            )
        if not is_commit(commit.lower()):  # an abbreviation can become ambiguous, and anybody can make it so
            raise TargetError(
                f"--commit {commit} is not a full commit hash: give all digits, as `git rev-parse {commit}` prints them"
            )
        return {**request, "spec": {"source": {"commitSha": commit.lower()}}}, f"deploying commit {commit}"

    _change(cluster, selector, output, patch)


def extend(
    selector: Selector,
    period: Annotated[
        str, typer.Option("--for", help="The time from now, such as 90m, 48h or 168h.")
    ] = "24h",
    output: OutputOption = OutputFormat.TABLE,
    *,
    cluster: ClusterChoice,
) -> None:
    """Keep an environment longer than its TTL. It is still deleted with its branch.

    \b
    Examples:
      kapsa environments extend --pr 42 --for 72h
    """
    try:
        longer: timedelta = Duration(period).delta
    except ValueError as error:
        raise TargetError(f"--for: {error}") from None

    def patch(environment: Environment) -> tuple[Patch, str]:
        expires = environment.status.expires_at
        until = (datetime.now(UTC) + longer).replace(microsecond=0)
        if expires is None:
            raise TargetError(
                f"environment {environment.name} has no TTL and never expires: nothing to extend"
            )
        if until <= expires:
            raise TargetError(
                f"environment {environment.name} is kept until {expires:%Y-%m-%d %H:%M} UTC already: give a longer --for"
            )
        return _annotation(KEEP_UNTIL, until.isoformat().replace("+00:00", "Z")), (
            f"kept until {until:%Y-%m-%d %H:%M} UTC"
        )

    _change(cluster, selector, output, patch)


def _change(
    cluster: ClusterChoice,
    selector: Selector,
    output: OutputFormat,
    patch: Callable[[Environment], tuple[Patch, str]],
) -> None:
    """Patch the environment, and print what was done."""

    async def work(session: Session) -> tuple[Environment, str]:
        environment = await select_one(session, selector)
        content, done = patch(environment)
        # Not the resourceVersion: the operator writes the status all the time, and nothing here depends on it.
        content = {**content, "metadata": {**content.get("metadata", {}), "uid": environment.metadata.uid}}
        changed = await session.client.patch(
            Environment, environment.name, content, namespace=environment.namespace
        )
        return changed, done

    changed, done = run(cluster, work)
    if output is OutputFormat.TABLE:
        typer.echo(f"environment {changed.namespace}/{changed.name}: {done}")
    elif output is OutputFormat.NAME:
        typer.echo(changed.name)
    else:
        print_document(changed.to_dict(), output)


def _annotation(key: str, value: str) -> Patch:
    return {"metadata": {"annotations": {key: value}}}


def _requested_commit(environment: Environment) -> str:
    """Return the requested commit in full, as an approval must name it."""
    requested = environment.spec.source.commit_sha.removesuffix("...").lower()
    seen = environment.status.seen_commit or ""
    if environment.spec.source.pr_number is None:
        raise TargetError(f"environment {environment.name} is not of a pull request: it needs no approval")
    if seen.startswith(requested):
        return seen
    if len(requested) < 40:  # an abbreviation that the operator has not resolved yet
        raise TargetError(
            f"the operator has not resolved commit {requested} of environment {environment.name} yet: repeat in a moment"
        )
    return requested


def _check_read(environment: Environment, requested: str, read: str) -> None:
    """Raise TargetError if the person has read another commit than the requested one."""
    if not read:
        return
    if len(read) < _SHORTEST_COMMIT or not requested.startswith(read.lower()):
        raise TargetError(
            f"environment {environment.name} asks for commit {requested}, not {read}: read that one, then approve it"
        )
