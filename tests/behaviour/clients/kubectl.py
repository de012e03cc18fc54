"""The real kubectl as a test runs it: its own namespace, directory and home."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import yaml

from kapsa.adapters.process.tools import find_tool
from kapsa.devcluster import DevCluster

__all__ = ["Kubectl"]


class Kubectl:
    """kubectl in a test's own namespace, with files in the test's own directory."""

    def __init__(
        self, cluster: DevCluster, namespace: str, directory: Path, *, kubeconfig: Path | None = None
    ) -> None:
        self.namespace = namespace
        self.directory = directory
        # A kubeconfig of the test's own names the namespace.
        self._namespace = () if kubeconfig else ("--namespace", namespace)
        self._binary = str(find_tool("kubectl").path)
        self._environment = {
            "KUBECONFIG": str(kubeconfig or cluster.kubeconfig),
            "HOME": str(directory),
            "PATH": os.environ["PATH"],
            "KUBE_EDITOR": str(directory / "editor"),
        }

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            self._binary,
            *self._namespace,
            *arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._environment,
            cwd=self.directory,
        )

    async def run(self, *arguments: str, given: object = None) -> tuple[int, str, str]:
        """Run a command and return its exit code, standard output and standard error."""
        process = await self.start(*arguments)
        document = "" if given is None else given if isinstance(given, str) else yaml.safe_dump(given)
        async with asyncio.timeout(60):
            output, errors = await process.communicate(document.encode())
        assert process.returncode is not None
        return process.returncode, output.decode(), errors.decode()

    async def __call__(self, *arguments: str, given: object = None) -> str:
        """Run a command that must succeed and return its standard output."""
        code, output, errors = await self.run(*arguments, given=given)
        assert code == 0, f"kubectl {' '.join(arguments)} ended with {code}: {errors}"
        return output

    async def apply(self, document: object) -> str:
        return await self("apply", "-f", "-", given=document)
