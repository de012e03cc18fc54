"""One run of the helm program: a private home, no PATH, its own process group, and limits."""

import asyncio
import base64
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
from kapsa.fleet.infrastructure.charts.value_texts import texts_in
from kapsa.fleet.infrastructure.helm.gate import GateAccess
from kapsa.fleet.infrastructure.helm.post_renderer import (
    INTERPRETER_VARIABLE,
    PLUGIN,
    interpreter,
    write_plugin,
)
from kapsa.fleet.infrastructure.helm.private_home import private_home

__all__ = ["HelmInput", "failure_message", "run_helm"]

_MESSAGE_LIMIT = 1500


class HelmInput(msgspec.Struct, frozen=True):
    """The files of an install or an upgrade."""

    chart: bytes
    values: Mapping[str, Any]
    manifest: bytes

    arguments = ("chart.tgz", "--values", "values.json", "--post-renderer", PLUGIN)
    """The arguments that name them: helm runs in its home."""

    def __repr__(self) -> str:
        return "HelmInput(...)"  # values may be secret


async def run_helm(
    arguments: Sequence[str], access: GateAccess, limits: ProcessLimits, files: HelmInput | None = None
) -> FinishedProcess:
    """Run helm against the cluster behind a gate.

    Its caches are private, too: helm keeps what it discovers by address, and every cluster has the gate's.

    Raises the errors of `run_program`.
    """
    tool = await asyncio.to_thread(find_tool, "helm")
    with private_home() as home:
        await asyncio.to_thread(_furnish, home, access, files)
        environment = private_environment(home) | {
            "PATH": str(home / "empty"),
            "KUBECONFIG": str(home / "kubeconfig"),
            "KUBECACHEDIR": str(home / "kubecache"),
            "HELM_PLUGINS": str(home / "plugins"),
            "NO_COLOR": "1",
            INTERPRETER_VARIABLE: interpreter(),
        }
        return await run_program(
            [tool.path, *arguments], environment=environment, directory=home, limits=limits
        )


def _furnish(home: Path, access: GateAccess, files: HelmInput | None) -> None:
    for directory in ("empty", "plugins", "kubecache"):
        (home / directory).mkdir()
    (home / "kubeconfig").write_bytes(_kubeconfig(access))
    if files is not None:
        (home / "chart.tgz").write_bytes(files.chart)
        (home / "values.json").write_bytes(msgspec.json.encode(files.values))
        write_plugin(home / "plugins", files.manifest)


def _kubeconfig(access: GateAccess) -> bytes:
    cluster = {
        "server": access.server,
        "certificate-authority-data": base64.b64encode(access.authority).decode(),
    }
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "gate", "cluster": cluster}],
        "users": [{"name": "run", "user": {"token": access.token}}],
        "contexts": [{"name": "gate", "context": {"cluster": "gate", "user": "run"}}],
        "current-context": "gate",
    }
    return msgspec.json.encode(document)


def failure_message(finished: FinishedProcess, values: Mapping[str, Any]) -> str:
    """Return the message of helm in one line, without secrets. Helm may quote values, which it hides."""
    lines = [
        line.removeprefix("Error: ").strip()
        for line in redact(printable(finished.stderr), texts_in(values)).splitlines()
        if line.strip() and not line.startswith(("level=", "W0", "W1", "I0", "I1", "E0", "E1"))
    ]
    return " ".join(lines)[:_MESSAGE_LIMIT] or f"helm ended with code {finished.code} and no message"
