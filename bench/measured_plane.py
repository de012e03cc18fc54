"""A control plane under measurement: its CPU and memory, and the load generator's requests to it."""

from __future__ import annotations

import asyncio
import json
import subprocess
from base64 import b64decode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from bench.processes import Usage, usage
from kapsa.runtime import Client

SAMPLES = "bench.kapsa.dev/v1/Sample"


class MeasuredPlane(msgspec.Struct):
    """A control plane, and the files that the load generator needs."""

    kubeconfig: Path
    pids: Sequence[int]
    """The processes of the API server and its store."""
    client: Client
    directory: Path
    load_binary: Path | None

    @property
    def _config(self) -> dict[str, Any]:
        loaded: dict[str, Any] = yaml.safe_load(self.kubeconfig.read_text())
        return loaded

    def server_cpu(self) -> float:
        """Return the CPU seconds of the API server and its store so far."""
        return sum(usage(pid).cpu_seconds for pid in self.pids)

    def server_usage(self) -> list[Usage]:
        return [usage(pid) for pid in self.pids]

    async def create_samples(self, n: int) -> None:
        """Create sample-0, sample-1, and so on, with the load generator, or more slowly without Go."""
        if self.load_binary is not None:
            await self.load("create", n)
            return
        limit = asyncio.Semaphore(32)

        async def create(i: int) -> None:
            async with limit:
                await self.client.create(
                    {
                        "apiVersion": "bench.kapsa.dev/v1",
                        "kind": "Sample",
                        "metadata": {"name": f"sample-{i}", "namespace": "default"},
                        "spec": {"value": 1},
                    }
                )

        async with asyncio.TaskGroup() as group:
            for i in range(n):
                group.create_task(create(i))

    async def load(self, operation: str, n: int, **options: int | str) -> dict[str, float]:
        """Run the load generator alone. Return its counts and the CPU seconds of the server."""
        if self.load_binary is None:
            raise RuntimeError("the load generator needs a Go toolchain")
        command = [
            str(self.load_binary),
            f"-server={self._config['clusters'][0]['cluster']['server']}",
            f"-op={operation}",
            f"-n={n}",
        ]
        command += [f"-{name}={value}" for name, value in options.items()]
        command += self._access_flags()
        before = self.server_cpu()
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        output, _ = await process.communicate()
        if process.returncode:
            raise RuntimeError(f"the load generator exited with code {process.returncode}")
        outcome = json.loads(output)
        if outcome["failed"]:
            raise RuntimeError(f"{outcome['failed']} of {n} {operation} requests failed")
        return {**outcome, "server_cpu": self.server_cpu() - before}

    def _access_flags(self) -> list[str]:
        config = self._config
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        files = {}
        if cluster["server"].startswith("https"):
            files["ca"] = b64decode(cluster["certificate-authority-data"])
        if "token" in user:
            files["token"] = user["token"].encode()
        elif "client-certificate-data" in user:
            files["cert"] = b64decode(user["client-certificate-data"])
            files["key"] = b64decode(user["client-key-data"])
        flags = []
        for flag, content in files.items():
            path = self.directory / flag
            path.write_bytes(content)
            flags.append(f"-{flag}={path}")
        return flags
