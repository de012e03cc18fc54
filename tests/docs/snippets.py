"""Reads the fenced blocks of a Markdown page, in order, with the words behind the language.

A block runs unless it says why it does not: ```sh norun="needs a cluster of yours"
A block with `file=NAME` is written to the page's directory first, so that later blocks can import or run it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import msgspec

FENCE = re.compile(
    r"^(?P<indent> *)```(?P<info>[^\n`]+)\n(?P<body>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)
RUNNABLE = {"python", "sh"}


class Snippet(msgspec.Struct, frozen=True):
    """One fenced block."""

    language: str
    body: str
    line: int
    file: str = ""
    norun: str = ""


def snippets(page: Path) -> Iterator[Snippet]:
    """The blocks of `page` that run or are written to a file."""
    text = page.read_text(encoding="utf-8")
    for match in FENCE.finditer(text):
        language, *words = shlex.split(match["info"])
        attributes = dict(word.partition("=")[::2] for word in words)
        if language in RUNNABLE or "file" in attributes:
            line = text.count("\n", 0, match.start()) + 2
            yield Snippet(
                language, match["body"], line, attributes.get("file", ""), attributes.get("norun", "")
            )
