"""Reads the fenced blocks of a Markdown page, in order, with the words behind the language.

```python                         runs
```python norun="a signature"     does not, and says why
```yaml file=sample.yaml          is written to the page's directory, for later blocks to import, apply or run
```text output                    is what the block before it prints; `...` stands for anything
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
SHOWN = {"dockerfile", "json", "makefile", "mermaid", "text", "toml", "yaml"}
"""Languages that nothing can be done with but look at, or write to a file."""


class PageError(Exception):
    """A block that says something about itself which the tests do not understand."""


class Snippet(msgspec.Struct, frozen=True):
    """One fenced block."""

    language: str
    body: str
    line: int
    file: str = ""
    norun: str = ""
    output: bool = False


def snippets(page: Path) -> Iterator[Snippet]:
    """The blocks of `page` that run, are written to a file, or say what is printed."""
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
        raise PageError(f"{where}: ```{info}: say the language first, and quote what has spaces") from error
    if language not in RUNNABLE | SHOWN:
        raise PageError(f"{where}: {language!r} is not among {', '.join(sorted(RUNNABLE | SHOWN))}")
    attributes = dict(word.partition("=")[::2] for word in words)
    unknown = attributes.keys() - {"file", "norun", "output"}
    if unknown or attributes.get("norun") == "":
        raise PageError(f'{where}: ```{info}: known are file=NAME, norun="why not" and output')
    return Snippet(
        language,
        body,
        line,
        file=attributes.get("file", ""),
        norun=attributes.get("norun", ""),
        output="output" in attributes,
    )
