"""The directory that KUBEBUILDER_ASSETS names."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from kapsa.devcluster.envtest import apiserver_program, etcd_program
from kapsa.devcluster.real.binaries import DROP_IN_MARK

__all__ = ["write_assets"]

_HELP = """\
case " $* " in *" --help "* | *" -h "*)
  cat <<'EOF'
{text}
EOF
  exit
esac
"""


def write_assets(directory: Path, kubectl: Path | None) -> None:
    """Write the programs `etcd`, `kube-apiserver` and `kubectl`, each a short shell script.

    Without a kubectl on this machine, the program `kubectl` reports how to get one: few tests call it.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / DROP_IN_MARK).touch()
    _write(directory / "etcd", _script(etcd_program.__file__, etcd_program.HELP))
    # -S: the standard library is all that it imports.
    _write(directory / "kube-apiserver", _script(apiserver_program.__file__, apiserver_program.HELP, "-S"))
    if kubectl is not None:
        _write(directory / "kubectl", f'exec {shlex.quote(str(kubectl))} "$@"')
    else:
        _write(
            directory / "kubectl", "echo 'kubectl: not installed; run `kapsa tools install`' >&2; exit 127"
        )


def _script(program: str, help_text: str, *options: str) -> str:
    """Return the script that starts a program. It prints the help itself, which envtest reads before each start."""
    command = shlex.join([sys.executable, "-I", *options, program])
    return f'{_HELP.format(text=help_text)}exec {command} "$@"'


def _write(path: Path, script: str) -> None:
    """Write a program at once, because another process may be about to start it."""
    partial = path.with_suffix(".new")
    partial.write_text(f"#!/bin/sh\n{script}\n")
    partial.chmod(0o755)
    partial.replace(path)
