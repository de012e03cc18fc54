"""Runs the blocks of a page in order, in one directory, as a reader does who follows it from the top.

Python blocks share their names and may use `await` at the top level. Functions named `test_...` run as pytest
would run them with Kapsa's plugin: each on its own embedded cluster, on virtual time. Shell blocks may leave
processes running for later blocks; they are stopped at the end of the page.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import linecache
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from kapsa.devcluster import DevCluster, FaultPlan, VirtualClock
from kapsa.runtime.testing import Harness, run_on_virtual_time
from tests.docs.snippets import Snippet, snippets

SHELL_SECONDS = 60
"""More than any single block needs. The page as a whole is limited by pytest."""


class PageRun:
    """The run of a page: its namespace, its processes and its last output."""

    def __init__(self, page: Path, directory: Path, *, seconds: float = SHELL_SECONDS) -> None:
        self._page = page
        self._seconds = seconds
        self._directory = directory
        self._module = ModuleType(f"page_{re.sub(r'[^a-z0-9]', '_', page.stem.lower())}")
        self._groups: list[int] = []
        self._printed = ""

    def run(self) -> None:
        """Run every block. An `AssertionError` names the page, the line and the problem."""
        # Classes look up the names in their annotations there.
        sys.modules[self._module.__name__] = self._module
        try:
            for snippet in snippets(self._page):
                self._do(snippet)
        finally:
            self._end_processes()
            del sys.modules[self._module.__name__]

    def _do(self, snippet: Snippet) -> None:
        if snippet.file:
            file = self._directory / snippet.file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(snippet.body, encoding="utf-8")
        elif snippet.norun:
            return
        elif snippet.output:
            self._compare(snippet)
        elif snippet.language == "sh":
            self._run_shell(snippet)
        else:
            self._run_python(snippet)

    def _fail(self, snippet: Snippet, why: str) -> AssertionError:
        return AssertionError(f"{self._page.name}:{snippet.line}\n{snippet.body}\n{why}")

    # -- output ------------------------------------------------------------------------------------------------

    def _compare(self, snippet: Snippet) -> None:
        pattern = "\n".join(
            r"[\s\S]*" if line == "..." else ".*".join(re.escape(part) for part in line.split("..."))
            for line in snippet.body.strip("\n").splitlines()
        )
        if re.search(pattern, self._printed) is None:
            raise self._fail(snippet, f"does not match the output of the previous block:\n{self._printed}")

    # -- shell -------------------------------------------------------------------------------------------------

    def _run_shell(self, snippet: Snippet) -> None:
        process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", snippet.body],
            cwd=self._directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._groups.append(process.pid)
        try:
            self._printed, _ = process.communicate(timeout=self._seconds)
        except subprocess.TimeoutExpired as expired:
            os.killpg(process.pid, signal.SIGKILL)
            rest, _ = process.communicate()
            why = f"did not end within {self._seconds} s, or left a process that holds its output:\n{rest}"
            raise self._fail(snippet, why) from expired
        if process.returncode:
            logs = [
                f"{log.name}:\n{log.read_text()[-3000:]}" for log in sorted(self._directory.glob("*.log"))
            ]
            raise self._fail(snippet, "\n".join([f"exit code {process.returncode}", self._printed, *logs]))
        if "No resources found" in self._printed:
            # kubectl exits 0, but the page promises a result.
            raise self._fail(snippet, f"shows no resources:\n{self._printed}")

    def _end_processes(self) -> None:
        for group in self._groups:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGTERM)

    # -- Python ------------------------------------------------------------------------------------------------

    def _run_python(self, snippet: Snippet) -> None:
        # The newlines preserve the line numbers of the page in a traceback.
        source = "\n" * (snippet.line - 1) + snippet.body
        name = f"<{self._page.name}:{snippet.line}>"
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        code: CodeType = compile(
            source, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True
        )
        before = dict(vars(self._module))
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            if code.co_flags & inspect.CO_COROUTINE:
                asyncio.run(eval(code, vars(self._module)))
            else:
                exec(code, vars(self._module))
            for test, value in list(vars(self._module).items()):
                if test.startswith("test_") and before.get(test) is not value:
                    run_test(value)
        self._printed = printed.getvalue()


def run_test(test: Callable[..., Any]) -> None:
    """Run a test function with the fixtures of `kapsa.runtime.testing.plugin`, on virtual time."""
    parameters = inspect.signature(test).parameters
    if not inspect.iscoroutinefunction(test):
        assert not parameters, f"{test.__name__}: only asynchronous tests can use fixtures"
        test()
        return

    async def main() -> None:
        clock, faults = VirtualClock(), FaultPlan()
        async with DevCluster(clock=clock, faults=faults, http=False, seed=1) as cluster:
            harness = Harness(cluster, clock=clock)
            fixtures = {"harness": harness, "faults": faults}
            try:
                await test(**{name: fixtures[name] for name in parameters})
            finally:
                await harness.close()

    run_on_virtual_time(main())
