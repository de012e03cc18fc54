"""`kapsa doctor`: what is found, in which version, what is missing and how to get it."""

from __future__ import annotations

import asyncio
import enum
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Annotated

import msgspec
import typer

from kapsa.adapters.process.tools import ToolNotFound, cache_directory, find_tool

__all__ = ["command"]

_CLUSTER_SECONDS = 5.0
_FREE_BYTES_WANTED = 1 << 30


class CheckStatus(enum.StrEnum):
    OK = "ok"
    MISSING = "missing"
    """Not there, but only some commands need it."""
    BROKEN = "broken"
    """Not there, and nothing works well without it."""


class CheckResult(msgspec.Struct, frozen=True):
    """One line of the examination."""

    name: str
    status: CheckStatus
    version: str = ""
    where: str = ""
    advice: str = ""
    """What to do about it, or what it is good for."""


class Output(enum.StrEnum):
    TABLE = "table"
    JSON = "json"


def command(
    output: Annotated[
        Output, typer.Option("--output", "-o", help="A table for people, JSON for programs.")
    ] = Output.TABLE,
) -> None:
    """Tell what is found, in which version, what is missing and how to get it. Exits 1 if an essential is missing."""
    findings = list(examine())
    if output is Output.JSON:
        typer.echo(msgspec.json.format(msgspec.json.encode(findings), indent=2).decode())
    else:
        _print_table(findings)
    raise typer.Exit(1 if any(finding.status is CheckStatus.BROKEN for finding in findings) else 0)


def examine() -> Iterator[CheckResult]:
    """Look at this machine. Fetches and builds nothing."""
    yield _python()
    yield _cache()
    yield _tool("git", essential=True)
    yield _tool("helm")
    yield _tool("kubectl")
    yield _go()
    yield from _control_plane()
    yield asyncio.run(examine_cluster())


def _python() -> CheckResult:
    # An older Python cannot even import this module; it is here so that a report says which one runs.
    return CheckResult("python", CheckStatus.OK, platform.python_version(), sys.executable)


def _cache() -> CheckResult:
    directory = cache_directory()
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    size = f"{free / 1e9:.1f} GB free"
    if not os.access(existing, os.W_OK | os.X_OK):
        advice = f"{existing} is not writable; set XDG_CACHE_HOME to a directory that is"
        return CheckResult("cache", CheckStatus.BROKEN, size, str(directory), advice)
    if free < _FREE_BYTES_WANTED:
        advice = "nearly full: free some space, or set XDG_CACHE_HOME to a directory with more"
        return CheckResult("cache", CheckStatus.BROKEN, size, str(directory), advice)
    return CheckResult("cache", CheckStatus.OK, size, str(directory))


def _tool(name: str, *, essential: bool = False) -> CheckResult:
    try:
        tool = find_tool(name, install=False)
    except ToolNotFound as error:
        return CheckResult(name, CheckStatus.BROKEN if essential else CheckStatus.MISSING, advice=str(error))
    return CheckResult(name, CheckStatus.OK, tool.version, f"{tool.path} ({tool.source})")


def _go() -> CheckResult:
    path = shutil.which("go")
    if path is None:
        advice = "only to build the real control plane: install it from https://go.dev/dl"
        return CheckResult("go", CheckStatus.MISSING, advice=advice)
    answer = subprocess.run([path, "version"], capture_output=True, text=True, check=False)  # noqa: S603
    version = re.search(r"go(\d+(?:\.\d+)+)", answer.stdout)
    return CheckResult("go", CheckStatus.OK, version[1] if version else "unknown", path)


def _control_plane() -> Iterator[CheckResult]:
    from kapsa.devcluster.real.binaries import find_binaries, version_of
    from kapsa.devcluster.real.components import ALL_COMPONENTS

    found = find_binaries()
    for name in ALL_COMPONENTS:
        if (binary := found.get(name)) is None:
            advice = "only for the real devcluster: `kapsa devcluster build` makes it (needs Go)"
            yield CheckResult(name, CheckStatus.MISSING, advice=advice)
        else:
            version = version_of(binary.path) or "unknown"
            yield CheckResult(name, CheckStatus.OK, version, f"{binary.path} ({binary.source})")


async def examine_cluster() -> CheckResult:
    """Whether the cluster of the current kubeconfig answers."""
    from kapsa.runtime.client.config import load_config
    from kapsa.runtime.client.http.transport import HttpTransport
    from kapsa.runtime.errors import ClientError

    advice = "`kapsa devcluster up` starts one here"
    try:
        transport = HttpTransport(load_config().access)
    except (ClientError, OSError) as error:
        return CheckResult("cluster", CheckStatus.MISSING, where=str(error), advice=advice)
    try:
        response = await transport.request("GET", "/version", timeout=_CLUSTER_SECONDS)
        version = str(msgspec.json.decode(response.body)["gitVersion"])
    except (ClientError, OSError, msgspec.DecodeError, KeyError, TypeError) as error:
        return CheckResult("cluster", CheckStatus.MISSING, where=f"not reachable: {error}", advice=advice)
    finally:
        await transport.close()
    return CheckResult("cluster", CheckStatus.OK, version, "the current kubeconfig's")


def _print_table(findings: list[CheckResult]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    marks = {
        CheckStatus.OK: ("✓", "green"),
        CheckStatus.MISSING: ("–", "yellow"),
        CheckStatus.BROKEN: ("✗", "red"),
    }
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title in ("", "what", "version", "where, or how to get it"):
        table.add_column(title, overflow="fold")
    for finding in findings:
        mark, colour = marks[finding.status]
        told = ". ".join(part for part in (finding.where, finding.advice) if part)
        table.add_row(Text(mark, style=colour), Text(finding.name), Text(finding.version), Text(told))
    Console().print(table)
