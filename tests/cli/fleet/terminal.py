"""Commands of a person at a terminal, run in this process with a login of their own."""

from __future__ import annotations

import io
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kapsa.cli.commands import main


class Result(NamedTuple):
    """The outcome of a command."""

    code: int
    out: str
    err: str


class Terminal:
    """A person with a login file."""

    def __init__(self, login: Path) -> None:
        self.login = login

    def run(self, *arguments: str, stdin: str = "") -> Result:
        """Run `kapsa fleet`. Standard input is not a terminal."""
        output, errors = io.StringIO(), io.StringIO()
        code: Any = 0
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(output), redirect_stderr(errors):
            for name in [each for each in os.environ if each.startswith("KAPSA_")]:
                patch.delenv(name)
            patch.setenv("KAPSA_FLEETCONFIG", str(self.login))
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
            patch.setattr(sys, "argv", ["kapsa", "fleet", *arguments])
            try:
                main()
            except SystemExit as end:
                code = end.code or 0
        return Result(int(code), output.getvalue(), errors.getvalue())

    def succeed(self, *arguments: str, stdin: str = "") -> str:
        """Run a command that must succeed. Return what it prints."""
        result = self.run(*arguments, stdin=stdin)
        assert result.code == 0, result
        return result.out

    def fail(self, *arguments: str, stdin: str = "") -> str:
        """Run a command that must fail with one line. Return the line."""
        result = self.run(*arguments, stdin=stdin)
        assert result.code == 1, result
        (line,) = result.err.splitlines()
        assert line.startswith("kapsa: ")
        return line
