"""Transcripts of kubectl: commands, and what the real engine answered, with values that differ from run to run masked.

A transcript is a text file. A line `$ kubectl ...` is a command. The lines below it are its standard output, those with
`! ` in front its standard error, and `[1]` its exit code if that is not zero. A command after `$ eventually` is repeated
until it answers as recorded, because controllers take their time. Lines that start with `#:` are comments.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from typing import NamedTuple

__all__ = ["Masks", "Step", "mask_descriptions", "parse", "render"]

_COMMAND = "$ "
_EVENTUALLY = "eventually "
_COMMENT = "#:"


class Step(NamedTuple):
    """One command and its masked answer."""

    arguments: tuple[str, ...]
    answer: str
    line: str
    """The command as the transcript has it."""
    repeated: bool = False
    comments: tuple[str, ...] = ()


def parse(text: str) -> Iterator[Step]:
    """Yield the steps of a transcript."""
    comments: list[str] = []
    line, answer = "", []
    for each in text.splitlines():
        if not each.startswith((_COMMAND, _COMMENT)):
            answer.append(each)
            continue
        if line:
            yield _step(line, answer, comments)
            line, answer, comments = "", [], []
        if each.startswith(_COMMENT):
            comments.append(each)
        else:
            line = each
    if line:
        yield _step(line, answer, comments)


def _step(line: str, answer: list[str], comments: list[str]) -> Step:
    command = line.removeprefix(_COMMAND)
    repeated = command.startswith(_EVENTUALLY)
    arguments = tuple(shlex.split(command.removeprefix(_EVENTUALLY)))
    return Step(arguments, "\n".join(answer).strip("\n"), line, repeated, tuple(comments))


def render(steps: Iterable[Step]) -> str:
    """Return the text of a transcript."""
    blocks = (
        "\n".join([*step.comments, step.line, *([step.answer] if step.answer else [])]) for step in steps
    )
    return "\n".join(blocks) + "\n"


_UNENFORCED = "Warning: not enforced by the embedded engine: "
"""The start of a warning that the embedded engine alone has to give."""
_RANDOM = "[bcdfghjklmnpqrstvwxz2456789]"
_AGE = r"\d+(?:\.\d+)?(?:ms|[smhdy])(?:\d+[smhd])?"
_MASKS = tuple(
    (re.compile(pattern, re.MULTILINE), mask)
    for pattern, mask in (
        # Progress depends on the speed of the machine.
        (r"^[Ww]aiting for .*(?:rollout to finish|rolling update|pods to be ready).*\n", ""),
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)", "TIME"),
        (r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}", "TIME"),
        (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? [+-]\d{4}(?: UTC)?", "TIME"),
        (r"(?<=^[EWI])\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ ", " "),
        (r"(?<=/LIVE)-\d+|(?<=/MERGED)-\d+|(?<=/kubectl-edit)-\d+", ""),
        (r'(?<="serverAddress":")[^"]+', "SERVER"),
        (r"(?<=Container ID:)\s+\S+:\S+|(?<=Image ID:)\s+\S+@\S+", ""),
        (r"eyJ[\w-]+\.[\w-]+\.[\w-]+", "TOKEN"),
        (r"(?<=X509SHA256=)[0-9a-f]{64}", "FINGERPRINT"),
        (r"https?://127\.0\.0\.1:\d+", "SERVER"),
        (r"127\.0\.0\.1:\d+", "SERVER"),
        (r"\b10\.\d+\.\d+\.\d+\b", "IP"),
        (rf"(?<=-){_RANDOM}{{7,10}}-{_RANDOM}{{5}}\b", "HASH-SUFFIX"),
        (rf"(?<=[-=]){_RANDOM}{{8,10}}\b", "HASH"),
        (rf"(?<=pod-template-hash: ){_RANDOM}{{7,10}}\b", "HASH"),
        (rf"(?<=-){_RANDOM}{{5}}\b", "SUFFIX"),
        (r'(?<=resourceVersion: ")\d+|(?<=resourceVersion":")\d+', "RV"),
        (r"Resource Version: +\d+", "Resource Version: RV"),
        (r'(?<="resourceVersion": ")\d+', "RV"),
        (r"\b3[0-2]\d{3}(?=/TCP|/UDP|$)", "PORT"),
        (r"(?<=nodePort: )\d+", "PORT"),
        (rf"\(x\d+ over {_AGE}\)", "(REPEATED)"),
        (rf"(?<=[\s(]){_AGE}(?=[\s)]|$)", "AGE"),
        (r"AGE \(REPEATED\)", "AGE"),
        (r"(?<=\S)[ \t]{2,}", "  "),
        (r"[ \t]+$", ""),
    )
)


_DESCRIPTION = re.compile(r"^ {4,}(?!.*\t<).*\S.*$", re.MULTILINE)
_DESCRIPTIONS = re.compile(r"(?: {4}TEXT\n\n?)+(?= {4}TEXT)")


def mask_descriptions(answer: str) -> str:
    """Replace each description in what `kubectl explain` printed: its words depend on the version, not the engine."""
    return _DESCRIPTIONS.sub("", _DESCRIPTION.sub("    TEXT", answer))


class Masks:
    """The replacements that make the answers of two engines comparable."""

    def __init__(self, namespace: str, directory: str) -> None:
        self._names = ((namespace, "NAMESPACE"), (directory, "DIRECTORY"))

    def answer(self, code: int, output: str, errors: str) -> str:
        """Return what a command answered, in the form of a transcript."""
        written = (line for line in self._mask(errors).splitlines() if not line.startswith(_UNENFORCED))
        lines = [self._mask(output), *(f"! {line}".rstrip() for line in written)]
        if code:
            lines.append(f"[{code}]")
        return "\n".join(line for line in lines if line).strip("\n")

    def _mask(self, text: str) -> str:
        for value, mask in self._names:
            text = text.replace(value, mask)
        for pattern, mask in _MASKS:
            text = pattern.sub(mask, text)
        return text.strip("\n")
