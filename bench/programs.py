"""The programs under comparison: how to build and run each peer's operator."""

from __future__ import annotations

import compileall
import functools
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec

import kapsa
from bench.console import say
from kapsa.adapters.process.tools import cache_directory

HERE = Path(__file__).resolve().parent
PEERS = HERE / "peers"


@functools.cache
def go_program(name: str) -> Path | None:
    """Build one of the Go programs in peers/, once. Return None without Go."""
    if shutil.which("go") is None:
        return None
    target = cache_directory() / "bench" / name
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["go", "build", "-trimpath", "-ldflags=-s -w", "-o", str(target), "."], cwd=PEERS / name, check=True
    )
    return target


class Build(msgspec.Struct, frozen=True):
    """The outcome of building a peer: its program, or the reason why there is none."""

    program: Path | None
    reason: str = ""


@functools.cache
def rust_program(name: str) -> Build:
    """Build one of the Rust programs in peers/, once, with the dependencies of its lock file.

    A machine without Rust, or without access to the crates, measures the other peers.
    """
    if shutil.which("cargo") is None:
        return Build(None, "there is no Rust toolchain: install cargo to include it")
    target = cache_directory() / "bench" / f"{name}-target"
    say(f"building {name} with cargo, which takes minutes the first time")
    command = ["cargo", "build", "--release", "--locked", "--target-dir", str(target)]
    built = subprocess.run(command, cwd=PEERS / name, stderr=subprocess.PIPE, text=True, check=False)
    if built.returncode:
        return Build(None, f"`cargo build` failed in bench/peers/{name}: {first_error(built.stderr)}")
    return Build(target / "release" / name)


def first_error(output: str) -> str:
    """Return the first error in the output of cargo, or its last line."""
    lines = output.strip().splitlines() or ["no output"]
    return next((line for line in lines if line.startswith("error")), lines[-1])


def compile_kapsa() -> None:
    """Compile Kapsa's modules, as an installed package is.

    Otherwise a checkout could be compiled at each start.
    """
    for folder in (Path(kapsa.__file__).parent, PEERS):
        compileall.compile_dir(folder, quiet=2)


class Command(msgspec.Struct, frozen=True):
    """The command that runs a peer's operator."""

    arguments: list[str]
    environment: dict[str, str] = {}


def kapsa_command(target: str, folder: Path) -> Command:
    """Return the command for `kapsa run`, with metrics and probes on a free port."""
    arguments = [str(Path(sys.executable).parent / "kapsa"), "run", target]
    return Command([*arguments, "--metrics-port=0", "--health-port=0"], {"PYTHONPATH": str(folder)})


def peer_command(peer: str, kind: str) -> Command | None:
    """Return the command for a peer's operator `kind` (status or owned), or None if it cannot be built."""
    binaries = Path(sys.executable).parent
    owned = kind == "owned"
    if peer == "kapsa":
        return kapsa_command(f"kapsa_sample:{kind}", PEERS)
    if peer.startswith("kopf"):
        sample = str(PEERS / "kopf_sample.py")
        command = [str(binaries / "kopf"), "run", "--all-namespaces", "--quiet", sample]
        watched = "blind" if peer.endswith("blind") else "watched"
        return Command(command, {"OWNED": watched if owned else ""})
    if peer == "kube-rs":
        program = rust_program(peer).program
        return None if program is None else Command([str(program), *(["--owned"] if owned else [])])
    binary = go_program("controller-runtime")
    if binary is None:
        return None
    apply = peer.endswith("apply")
    return Command([str(binary), f"-owned={str(owned).lower()}", f"-apply={str(apply).lower()}"])
