"""What the scenarios share: the peers' programs, the load generator's requests, and the machine they run on."""

from __future__ import annotations

import asyncio
import compileall
import functools
import json
import os
import re
import shutil
import subprocess
import sys
from base64 import b64decode
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import yaml

import kapsa
from bench.processes import Usage, usage
from kapsa.adapters.process.tools import cache_directory
from kapsa.devcluster.real.binaries import pinned_versions
from kapsa.runtime import Client

HERE = Path(__file__).resolve().parent
PEERS = HERE / "peers"
SAMPLES = "bench.kapsa.dev/v1/Sample"


class Bench(msgspec.Struct):
    """One control plane under load, with the files the load generator needs."""

    kubeconfig: Path
    pids: Sequence[int]
    """The API server and its store."""
    client: Client
    directory: Path
    load_binary: Path | None

    @property
    def _config(self) -> dict[str, Any]:
        loaded: dict[str, Any] = yaml.safe_load(self.kubeconfig.read_text())
        return loaded

    def server_cpu(self) -> float:
        """CPU seconds of the API server and its store so far."""
        return sum(usage(pid).cpu_seconds for pid in self.pids)

    def server_usage(self) -> list[Usage]:
        return [usage(pid) for pid in self.pids]

    async def create_samples(self, n: int) -> None:
        """sample-0, sample-1, ...: by the load generator, or more slowly where there is no Go to build it."""
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
        """Run the bare load generator; returns its counts and the server's CPU seconds meanwhile."""
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
            raise RuntimeError(f"the load generator ended with {process.returncode}")
        outcome = json.loads(output)
        if outcome["failed"]:
            raise RuntimeError(f"{outcome['failed']} of {n} {operation} requests were refused")
        return {**outcome, "server_cpu": self.server_cpu() - before}

    def _access_flags(self) -> list[str]:
        cluster = self._config["clusters"][0]["cluster"]
        user = self._config["users"][0]["user"]
        if not cluster["server"].startswith("https"):
            return []
        files = {"ca": b64decode(cluster["certificate-authority-data"])}
        if "token" in user:
            files["token"] = user["token"].encode()
        else:
            files["cert"] = b64decode(user["client-certificate-data"])
            files["key"] = b64decode(user["client-key-data"])
        flags = []
        for flag, content in files.items():
            path = self.directory / flag
            path.write_bytes(content)
            flags.append(f"-{flag}={path}")
        return flags


@functools.cache
def go_program(name: str) -> Path | None:
    """Build one of the Go programs under peers/, once; None where there is no Go."""
    if shutil.which("go") is None:
        return None
    target = cache_directory() / "bench" / name
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["go", "build", "-trimpath", "-ldflags=-s -w", "-o", str(target), "."], cwd=PEERS / name, check=True
    )
    return target


def compile_kapsa() -> None:
    """Compile Kapsa's modules as installing a package does, and as kopf's are; a checkout's may be compiled at each start."""
    for folder in (Path(kapsa.__file__).parent, PEERS):
        compileall.compile_dir(folder, quiet=2)


class Command(msgspec.Struct, frozen=True):
    """How a peer's operator is started."""

    arguments: list[str]
    environment: dict[str, str] = {}


def kapsa_command(target: str, folder: Path) -> Command:
    """`kapsa run`, with metrics and probes on any free port: several benches may share a machine."""
    arguments = [str(Path(sys.executable).parent / "kapsa"), "run", target]
    return Command([*arguments, "--metrics-port=0", "--health-port=0"], {"PYTHONPATH": str(folder)})


def peer_command(peer: str, kind: str) -> Command | None:
    """What runs a peer's operator `kind` (status or owned); None where it cannot be built."""
    binaries = Path(sys.executable).parent
    owned = kind == "owned"
    if peer == "kapsa":
        return kapsa_command(f"kapsa_sample:{kind}", PEERS)
    if peer.startswith("kopf"):
        program = str(PEERS / "kopf_sample.py")
        command = [str(binaries / "kopf"), "run", "--all-namespaces", "--quiet", program]
        watched = "blind" if peer.endswith("blind") else "watched"
        return Command(command, {"OWNED": watched if owned else ""})
    binary = go_program("controller-runtime")
    if binary is None:
        return None
    apply = peer.endswith("apply")
    return Command([str(binary), f"-owned={str(owned).lower()}", f"-apply={str(apply).lower()}"])


def versions() -> dict[str, str]:
    """Of everything that is compared, as it is installed or pinned."""
    found = {name: version(name) for name in ("kapsa", "kopf", "aiohttp", "msgspec", "uvloop")}
    pinned = (PEERS / "controller-runtime" / "go.mod").read_text()
    if match := re.search(r"sigs.k8s.io/controller-runtime v(\S+)", pinned):
        found["controller-runtime"] = match[1]
    found |= {name: pinned_versions()[name] for name in ("kube-apiserver", "etcd")}
    if (go := shutil.which("go")) is not None:
        told = subprocess.run([go, "version"], capture_output=True, text=True, check=True).stdout
        found["go"] = told.split()[2].removeprefix("go")
    return found


def machine() -> dict[str, str]:
    model = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    memory = Path("/proc/meminfo").read_text().split("\n", 1)[0].split()[1]
    return {
        "cpu": model[0].partition(":")[2].strip() if model else "unknown",
        "cores": str(os.cpu_count()),
        "memory": f"{int(memory) // 1024 // 1024} GiB",
        "python": sys.version.split()[0],
    }
