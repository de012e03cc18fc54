"""The helm program without a cluster, a network, plugins, a PATH or a home directory."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kapsa.adapters.process.limited_process import (
    FinishedProcess,
    ProcessLimits,
    private_environment,
    run_program,
)
from kapsa.adapters.process.tools import find_tool
from kapsa.adapters.redaction import printable, redact

__all__ = ["helm_message", "run_isolated_helm"]

_MESSAGE_LIMIT = 1500


async def run_isolated_helm(
    arguments: Sequence[str], values: Mapping[str, Any], limits: ProcessLimits
) -> FinishedProcess:
    """Run helm with these values. A chart must be passed by its absolute path.

    Raises the errors of `run_program`.
    """
    tool = await asyncio.to_thread(find_tool, "helm")
    with tempfile.TemporaryDirectory(prefix="kapsa-helm-", ignore_cleanup_errors=True) as private:
        home = Path(private)
        (home / "values.json").write_bytes(msgspec.json.encode(values))
        (home / "empty").mkdir()
        command = [str(tool.path), *arguments, "--values", str(home / "values.json")]
        environment = private_environment(home) | {
            "PATH": str(home / "empty"),
            "HELM_NO_PLUGINS": "1",
            "HELM_PLUGINS": str(home / "empty"),
            "NO_COLOR": "1",
        }
        return await run_program(command, environment=environment, directory=home, limits=limits)


def helm_message(output: str, chart: Path) -> str:
    """Return the message of helm in one line, without secrets and without the path of the chart."""
    lines = [
        line.replace(f"{chart}/", "").replace(str(chart), chart.name).removeprefix("Error: ").strip()
        for line in redact(printable(output)).splitlines()
        if line.strip() and not line.startswith("level=") and "--debug flag" not in line
    ]
    return " ".join(lines)[:_MESSAGE_LIMIT] or "failed without a message"
