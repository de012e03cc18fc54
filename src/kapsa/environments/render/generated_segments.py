"""Random segments of a text: which parts of it a chart generates, and what they are in an earlier text.

A file such as `app.ini` in a Secret has a generated password between settings that commits change. Without
I/O, and in time that a hostile text cannot make long: no search backtracks, and what is searched is bounded.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import TypeAlias

__all__ = ["Spans", "random_spans", "segments_in", "with_segments"]

Spans: TypeAlias = tuple[tuple[int, int], ...]
"""The start and end of each random segment of a text, in order. Empty: the text is random as a whole."""

_LONGEST_TEXT = 64 * 1024
_MOST_SPANS = 64
_MOST_MATCHES = 1000
_BLOCK = re.compile(r"-----(BEGIN|END) [^-\n]{1,64}-----")
_ATOM = re.compile(r"[A-Za-z0-9+/]{100,}={0,2}|[A-Za-z0-9]+|.", re.DOTALL)
_WORD = re.compile(r"[A-Za-z0-9]+")
_LAST_WORD = re.compile(r"[A-Za-z0-9]+[^A-Za-z0-9]*$")


def random_spans(first: str, second: str) -> Spans:
    """Return the segments of the first text that differ in the second, another rendering of the same inputs.

    They consist of whole words: two random words may begin with the same letters.
    """
    if max(len(first), len(second)) > _LONGEST_TEXT:
        return ()
    lines, others = _lines(first), _lines(second)
    if len(lines) != len(others):
        lines, others = [list(itertools.chain(*lines))], [list(itertools.chain(*others))]
    spans, position = [], 0
    for line, other in zip(lines, others, strict=True):
        spans += [(position + start, position + end) for start, end in _differences(line, other)]
        position += sum(map(len, line))
    merged = _merged(first, spans)
    if len(merged) > _MOST_SPANS or merged == ((0, len(first)),):
        return ()
    return merged if all(start < end for start, end in merged) else ()


def segments_in(text: str, model: str, spans: Spans) -> tuple[str, ...] | None:
    """Return the random segments of an earlier text, by those of a rendering that may have other settings.

    None if some of them cannot be recognized, or not without doubt.
    """
    if len(text) > _LONGEST_TEXT:
        return None
    aligned = _aligned(text, model, spans)
    if aligned is not None:
        return aligned
    # With a line break at both ends, the first and the last line have neighbours like any other.
    text, model = f"\n{text}\n", f"\n{model}\n"
    moved = tuple((start + 1, end + 1) for start, end in spans)
    recognized = [_by_context(text, model, moved, number) for number in range(len(moved))]
    segments = tuple(each for each in recognized if each is not None)
    return segments if len(segments) == len(moved) else None


def with_segments(text: str, spans: Spans, segments: Sequence[str]) -> str:
    """Return the text with other segments."""
    parts = zip(_settings(text, spans), (*segments, ""), strict=True)
    return "".join(f"{setting}{segment}" for setting, segment in parts)


# -- differences ---------------------------------------------------------------------------------------------


def _lines(text: str) -> list[list[str]]:
    """Return the atoms of each line: words, other characters, and blocks such as certificates as a whole."""
    lines: list[list[str]] = [[]]
    for atom in _atoms(text):
        lines[-1].append(atom)
        if atom == "\n":
            lines.append([])
    return lines


def _atoms(text: str) -> Iterator[str]:
    position, begin = 0, None
    for mark in _BLOCK.finditer(text):
        if mark[1] == "BEGIN":
            begin = mark.start()
        elif begin is not None:
            yield from _ATOM.findall(text[position:begin])
            yield text[begin : mark.end()]
            position, begin = mark.end(), None
    yield from _ATOM.findall(text[position:])


def _differences(line: list[str], other: list[str]) -> Iterator[tuple[int, int]]:
    """Yield the segments of a line that differ in the other one; a single one if they are not alike."""
    if len(line) == len(other):
        position = 0
        for one, another in zip(line, other, strict=True):
            if one != another:
                yield position, position + len(one)
            position += len(one)
        return
    shorter = min(len(line), len(other))
    before = next((n for n in range(shorter) if line[n] != other[n]), shorter)
    after = next((n for n in range(shorter - before) if line[-1 - n] != other[-1 - n]), shorter - before)
    yield sum(map(len, line[:before])), sum(map(len, line[: len(line) - after]))


def _merged(text: str, spans: Sequence[tuple[int, int]]) -> Spans:
    """Join segments without a word between them, such as the parts of a UUID."""
    merged: list[tuple[int, int]] = []
    for start, end in spans:
        if merged and not _WORD.search(text, merged[-1][1], start):
            merged[-1] = merged[-1][0], end
        else:
            merged.append((start, end))
    return tuple(merged)


# -- recognition ---------------------------------------------------------------------------------------------


def _settings(text: str, spans: Spans) -> list[str]:
    """Return what is before, between and after the segments."""
    starts, ends = [start for start, _ in spans], [end for _, end in spans]
    return [text[start:end] for start, end in zip((0, *ends), (*starts, len(text)), strict=True)]


def _aligned(text: str, model: str, spans: Spans) -> tuple[str, ...] | None:
    """Return the segments of a text whose settings are those of the model."""
    first, *between, last = _settings(model, spans)
    stop = len(text) - len(last)
    if not text.startswith(first) or not text.endswith(last):
        return None
    segments, position = [], len(first)
    for setting in between:
        end = text.find(setting, position + 1, stop)
        if end < 0:
            return None
        segments.append(text[position:end])
        position = end + len(setting)
    segments.append(text[position : max(position, stop)])
    alike = (_is_like(each, model[slice(*span)]) for each, span in zip(segments, spans, strict=True))
    return tuple(segments) if all(alike) else None


def _by_context(text: str, model: str, spans: Spans, number: int) -> str | None:
    """Return a segment by what is next to it: its line, or else the word before and the character after."""
    settings, (start, end) = _settings(model, spans), spans[number]
    before = settings[number]
    line = before[max(before.rfind("\n"), 0) :]
    word = _LAST_WORD.search(line)
    after, _, _ = settings[number + 1].partition("\n")
    rest = f"{after}\n" if "\n" in settings[number + 1] else after
    for left in (line, word[0] if word else ""):
        for right in (rest, rest[:1]):
            if not _WORD.search(left):
                continue
            ours = _matches(model, left, right, model[start:end])
            theirs = _matches(text, left, right, model[start:end])
            if len(ours) == len(theirs) and start in ours:
                return list(theirs.values())[list(ours).index(start)]
    return None


def _matches(text: str, left: str, right: str, example: str) -> dict[int, str]:
    """Return what is between two texts and is like the example, by its position."""
    matches: dict[int, str] = {}
    position, longest = text.find(left), 4 * len(example) + 64
    for _ in range(_MOST_MATCHES):
        if position < 0:
            return matches
        start = position + len(left)
        end = text.find(right, start + 1, start + longest + len(right))
        if end > 0 and _is_like(text[start:end], example):
            matches[start] = text[start:end]
        position = text.find(left, position + 1)
    return {}


def _is_like(segment: str, example: str) -> bool:
    """Return whether a segment may be one of the same kind: one word, or one line, if the example is."""
    if not segment:
        return False
    if _WORD.fullmatch(example):
        return _WORD.fullmatch(segment) is not None
    return "\n" in example or "\n" not in segment
