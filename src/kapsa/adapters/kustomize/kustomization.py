"""Kustomizations, built by `kubectl kustomize` without a network, plugins or files from elsewhere."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from kapsa.adapters.errors import RenderFailed
from kapsa.adapters.kustomize._survey import check_references, kustomization_file
from kapsa.adapters.manifests.manifest import Manifest
from kapsa.adapters.manifests.yaml_documents import load_objects
from kapsa.adapters.process.limited_process import ProcessLimits, private_environment, run_program
from kapsa.adapters.process.tools import find_tool
from kapsa.adapters.redaction import printable, redact

__all__ = ["build_kustomization", "is_kustomization"]

_MESSAGE_LIMIT = 1500


async def build_kustomization(root: Path, directory: Path, *, limits: ProcessLimits) -> list[Manifest]:
    """Build the kustomization in a directory of the checkout at `root`.

    Raises `RenderFailed` when it cannot be built, or when it refers to anything outside the checkout.
    """
    await asyncio.to_thread(check_references, root, directory)
    tool = await asyncio.to_thread(find_tool, "kubectl")
    with tempfile.TemporaryDirectory(prefix="kapsa-kustomize-", ignore_cleanup_errors=True) as private:
        home = Path(private)
        (home / "empty").mkdir()
        command = [str(tool.path), "kustomize", str(directory), "--load-restrictor=LoadRestrictionsRootOnly"]
        command += ["--enable-helm=false", "--enable-alpha-plugins=false", "--network=false"]
        # There is no git on this PATH: a base that the survey missed cannot be fetched either.
        environment = private_environment(home) | {"PATH": str(home / "empty")}
        finished = await run_program(command, environment=environment, directory=home, limits=limits)
    if finished.code:
        raise RenderFailed(f"kustomize: {_message(finished.stderr, root)}")
    return load_objects(finished.output, "the built kustomization")


def is_kustomization(directory: Path) -> bool:
    """Return whether a directory holds a kustomization file."""
    return kustomization_file(directory) is not None


def _message(stderr: str, root: Path) -> str:
    lines = [line for line in redact(printable(stderr)).splitlines() if not line.startswith("# Warning")]
    text = " ".join(" ".join(lines).replace(f"{root}/", "").replace(str(root), ".").split())
    return text.removeprefix("error: ")[:_MESSAGE_LIMIT] or "failed without a message"
