"""The `kapsa` command.

`kapsa run` hands over to the operator's own program before anything else is imported. The command-line
libraries would cost a third of a second at start and ten megabytes for as long as the operator runs, which is
months.
"""

from __future__ import annotations

import gc
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    if sys.argv[1:2] == ["run"]:
        gc.disable()  # until the operator is loaded: no imported module ever becomes garbage
        from kapsa.runtime.operator.entrypoint import main as run

        sys.exit(run(sys.argv[2:]))
    from kapsa.cli.commands import main as command

    command()
