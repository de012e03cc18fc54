"""Every example in the README and under docs/ runs as it stands there."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from tests.docs.snippets import Snippet, snippets

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.fixture
def page_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory in which the page's files can be imported and the `kapsa` command is found."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("KAPSA_SOURCE", str(ROOT))
    loaded = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - loaded:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_example_of_the_page_runs(page: Path, page_directory: Path) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for snippet in snippets(page):
        if snippet.file:
            (page_directory / snippet.file).parent.mkdir(parents=True, exist_ok=True)
            (page_directory / snippet.file).write_text(snippet.body, encoding="utf-8")
        elif snippet.norun:
            continue
        elif snippet.language == "sh":
            run_shell(page, snippet, page_directory)
        else:
            run_python(page, snippet, names)


def run_shell(page: Path, snippet: Snippet, directory: Path) -> None:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", snippet.body],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, f"{page.name}:{snippet.line}\n{snippet.body}\n{done.stdout}\n{done.stderr}"


def run_python(page: Path, snippet: Snippet, names: dict[str, Any]) -> None:
    # The newlines keep the page's own line numbers in a traceback.
    source = "\n" * (snippet.line - 1) + snippet.body
    code: CodeType = compile(source, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(code, names))
    else:
        exec(code, names)
