"""The machine of a run, and the versions under comparison."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

from bench.programs import PEERS
from kapsa.devcluster.real.binaries import pinned_versions


def versions() -> dict[str, str]:
    """Return the versions of all peers and tools, as installed or pinned."""
    versions = {name: version(name) for name in ("kapsa", "kopf", "aiohttp", "msgspec", "uvloop")}
    pinned = (PEERS / "controller-runtime" / "go.mod").read_text()
    if match := re.search(r"sigs.k8s.io/controller-runtime v(\S+)", pinned):
        versions["controller-runtime"] = match[1]
    crates = tomllib.loads((PEERS / "kube-rs" / "Cargo.toml").read_text())["dependencies"]
    versions["kube-rs"] = crates["kube"]["version"].removeprefix("=")
    versions |= {name: pinned_versions()[name] for name in ("kube-apiserver", "etcd")}
    if (go := shutil.which("go")) is not None:
        printed = subprocess.run([go, "version"], capture_output=True, text=True, check=True).stdout
        versions["go"] = printed.split()[2].removeprefix("go")
    if (cargo := shutil.which("cargo")) is not None:
        printed = subprocess.run([cargo, "--version"], capture_output=True, text=True, check=False).stdout
        versions["cargo"] = printed.split()[1] if printed else "unusable"
    return versions


def machine() -> dict[str, str]:
    """Return the CPU, cores, memory and Python of this machine."""
    model = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    memory = Path("/proc/meminfo").read_text().split("\n", 1)[0].split()[1]
    return {
        "cpu": model[0].partition(":")[2].strip() if model else "unknown",
        "cores": str(os.cpu_count()),
        "memory": f"{int(memory) // 1024 // 1024} GiB",
        "python": sys.version.split()[0],
    }
