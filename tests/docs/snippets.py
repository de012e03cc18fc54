"""Reads the fenced blocks of a Markdown page, in order, with the attributes after the language.

```python                         runs
```python norun="a signature"     does not run, for the given reason
```yaml file=sample.yaml          is written to the directory of the page, for later blocks to use
```text output                    is the expected output of the previous block; `...` matches anything
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import msgspec

FENCE = re.compile(
    r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)
RUNNABLE = {"python", "sh"}
SHOWN = {"dockerfile", "hcl", "json", "makefile", "mermaid", "text", "toml", "yaml"}
"""Languages of blocks that are only shown, or written to a file."""


class PageError(Exception):
    """A block has an unknown language or attribute."""


class Snippet(msgspec.Struct, frozen=True):
    """One fenced block."""

    language: str
    body: str
    line: int
    file: str = ""
    norun: str = ""
    output: bool = False


def snippets(page: Path) -> Iterator[Snippet]:
    """Yield the blocks of `page` that run, are written to a file, or state an output."""
    text = page.read_text(encoding="utf-8")
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 2
        snippet = _snippet(page, match["info"], match["body"], line)
        if snippet.language in RUNNABLE or snippet.file or snippet.output:
            yield snippet


def _snippet(page: Path, info: str, body: str, line: int) -> Snippet:
    where = f"{page.name}:{line - 1}"
    try:
        language, *words = shlex.split(info)
    except ValueError as error:
        raise PageError(
            f"{where}: ```{info}: put the language first, and quote values with spaces"
        ) from error
    if language not in RUNNABLE | SHOWN:
        raise PageError(
            f"{where}: unknown language {language!r}: use one of {', '.join(sorted(RUNNABLE | SHOWN))}"
        )
    attributes = dict(word.partition("=")[::2] for word in words)
    unknown = attributes.keys() - {"file", "norun", "output"}
    if unknown or attributes.get("norun") == "":
        raise PageError(f'{where}: ```{info}: the attributes are file=NAME, norun="reason" and output')
    return Snippet(
        language,
        body,
        line,
        file=attributes.get("file", ""),
        norun=attributes.get("norun", ""),
        output="output" in attributes,
    )
