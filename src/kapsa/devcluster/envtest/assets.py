"""The directory that KUBEBUILDER_ASSETS names."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from kapsa.devcluster.real.binaries import DROP_IN_MARK

__all__ = ["write_assets"]

_PROGRAMS = {"etcd": "etcd_program.py", "kube-apiserver": "apiserver_program.py"}


def write_assets(directory: Path, kubectl: Path | None) -> None:
    """Write the programs `etcd`, `kube-apiserver` and `kubectl`, each a line of shell.

    Without a kubectl on this machine, the program `kubectl` reports how to get one: few tests call it.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / DROP_IN_MARK).touch()
    for name, module in _PROGRAMS.items():
        command = [sys.executable, "-I", str(Path(__file__).parent / module)]
        _write(directory / name, f'exec {shlex.join(command)} "$@"')
    if kubectl is not None:
        _write(directory / "kubectl", f'exec {shlex.quote(str(kubectl))} "$@"')
    else:
        _write(
            directory / "kubectl", "echo 'kubectl: not installed; run `kapsa tools install`' >&2; exit 127"
        )


def _write(path: Path, line: str) -> None:
    """Write a program at once, because another process may be about to start it."""
    partial = path.with_suffix(".new")
    partial.write_text(f"#!/bin/sh\n{line}\n")
    partial.chmod(0o755)
    partial.replace(path)
