"""The `kapsa` command.

`kapsa run` becomes the operator's own program before anything else is loaded: the command line's machinery costs a
third of a second at start and ten megabytes for as long as an operator runs, which is months.
"""

from __future__ import annotations

import gc
import sys

__all__ = ["main"]


def main() -> None:
    """Entry point."""
    if sys.argv[1:2] == ["run"]:
        gc.disable()  # until the operator is loaded: nothing of what is loaded ever becomes garbage
        from kapsa.runtime.operator.entrypoint import main as run

        sys.exit(run(sys.argv[2:]))
    from kapsa.cli.commands import main as command

    command()
