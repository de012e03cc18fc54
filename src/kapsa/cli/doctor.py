"""`kapsa doctor`: a check of the tools that Kapsa uses, with advice on missing ones."""

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
_MIN_FREE_BYTES = 1 << 30


class CheckStatus(enum.StrEnum):
    OK = "ok"
    MISSING = "missing"
    """Missing, but only some commands need it."""
    BROKEN = "broken"
    """Missing or unusable, and most commands need it."""


class CheckResult(msgspec.Struct, frozen=True):
    """The result of one check."""

    name: str
    status: CheckStatus
    version: str = ""
    where: str = ""
    advice: str = ""
    """The remedy, and what the tool is needed for."""


class Output(enum.StrEnum):
    TABLE = "table"
    JSON = "json"


def command(
    output: Annotated[
        Output, typer.Option("--output", "-o", help="The format of the output.")
    ] = Output.TABLE,
) -> None:
    """Check the tools that Kapsa uses, and explain how to install missing ones.

    Exits 1 if an essential tool is missing.
    """
    results = list(examine())
    if output is Output.JSON:
        typer.echo(msgspec.json.format(msgspec.json.encode(results), indent=2).decode())
    else:
        _print_table(results)
    raise typer.Exit(1 if any(result.status is CheckStatus.BROKEN for result in results) else 0)


def examine() -> Iterator[CheckResult]:
    """Check this machine, without installing or building anything."""
    yield _python()
    yield _cache()
    yield _tool("git", essential=True)
    yield _tool("helm")
    yield _tool("kubectl")
    yield _go()
    yield from _control_plane()
    yield asyncio.run(examine_cluster())


def _python() -> CheckResult:
    # An older Python cannot import this module; the check reports which one is running.
    return CheckResult("python", CheckStatus.OK, platform.python_version(), sys.executable)


def _cache() -> CheckResult:
    directory = cache_directory()
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    size = f"{free / 1e9:.1f} GB free"
    if not os.access(existing, os.W_OK | os.X_OK):
        advice = f"{existing} is not writable: set XDG_CACHE_HOME to a writable directory"
        return CheckResult("cache", CheckStatus.BROKEN, size, str(directory), advice)
    if free < _MIN_FREE_BYTES:
        advice = "the disk is nearly full: free some space, or set XDG_CACHE_HOME to another disk"
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
        advice = "needed only to build the real control plane: install it from https://go.dev/dl"
        return CheckResult("go", CheckStatus.MISSING, advice=advice)
    answer = subprocess.run([path, "version"], capture_output=True, text=True, check=False)  # noqa: S603
    version = re.search(r"go(\d+(?:\.\d+)+)", answer.stdout)
    return CheckResult("go", CheckStatus.OK, version[1] if version else "unknown", path)


def _control_plane() -> Iterator[CheckResult]:
    from kapsa.devcluster.real.binaries import find_binaries, version_of
    from kapsa.devcluster.real.components import ALL_COMPONENTS

    binaries = find_binaries()
    for name in ALL_COMPONENTS:
        if (binary := binaries.get(name)) is None:
            advice = "needed only for the real devcluster: run `kapsa devcluster build` (needs Go)"
            yield CheckResult(name, CheckStatus.MISSING, advice=advice)
        else:
            version = version_of(binary.path) or "unknown"
            yield CheckResult(name, CheckStatus.OK, version, f"{binary.path} ({binary.source})")


async def examine_cluster() -> CheckResult:
    """Check that the cluster of the current kubeconfig responds."""
    from kapsa.runtime import ClientError, HttpTransport, load_config

    advice = "to start one on this machine: `kapsa devcluster up`"
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
    return CheckResult("cluster", CheckStatus.OK, version, "from the current kubeconfig")


def _print_table(results: list[CheckResult]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    marks = {
        CheckStatus.OK: ("✓", "green"),
        CheckStatus.MISSING: ("–", "yellow"),
        CheckStatus.BROKEN: ("✗", "red"),
    }
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title in ("", "tool", "version", "location, or how to install it"):
        table.add_column(title, overflow="fold")
    for result in results:
        mark, colour = marks[result.status]
        details = "; ".join(part for part in (result.where, result.advice) if part)
        table.add_row(Text(mark, style=colour), Text(result.name), Text(result.version), Text(details))
    Console().print(table)
