"""Go's regular expressions (RE2 syntax), translated to Python's `re`.

The differences that matter: `$` is the end of the text, classes are ASCII, `\\z`, `\\Q..\\E`, POSIX and
Unicode classes, flags in the middle of a pattern, and the syntax that Go rejects (look-around,
back-references, possessive repeats).
"""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import lru_cache

_Ranges = tuple[tuple[int, int], ...]


def _ranges(text: str) -> _Ranges:
    """Return the code point ranges of `0-9A-Z_`."""
    return tuple((ord(part[0]), ord(part[-1])) for part in re.findall(r".-.|.", text, re.DOTALL))


_POSIX = {
    "alnum": _ranges("0-9A-Za-z"),
    "alpha": _ranges("A-Za-z"),
    "ascii": _ranges("\x00-\x7f"),
    "blank": _ranges("\t "),
    "cntrl": _ranges("\x00-\x1f\x7f"),
    "digit": _ranges("0-9"),
    "graph": _ranges("!-~"),
    "lower": _ranges("a-z"),
    "print": _ranges(" -~"),
    "punct": _ranges("!-/:-@[-`{-~"),
    "space": _ranges("\t\n\v\f\r "),
    "upper": _ranges("A-Z"),
    "word": _ranges("0-9A-Z_a-z"),
    "xdigit": _ranges("0-9A-Fa-f"),
}
_PERL = {"d": _ranges("0-9"), "w": _POSIX["word"], "s": _ranges("\t\n\f\r ")}
_WORD = "[0-9A-Za-z_]"
_WORD_EDGE = f"(?:(?<!{_WORD})(?={_WORD})|(?<={_WORD})(?!{_WORD}))"
_MAX_REPEAT = 1000


class GoRegexpError(ValueError):
    """A pattern that Go would not compile; the text is Go's own."""

    def __init__(self, reason: str, part: str) -> None:
        super().__init__(f"error parsing regexp: {reason}: `{part}`")


@lru_cache(maxsize=4096)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Return the Python pattern that matches the same texts as Go's `regexp.Compile(pattern)`."""
    translated = _Translator(pattern).translate()
    try:
        return re.compile(translated)
    except re.error as error:
        backwards = re.match(r"bad character range (\S+) at", str(error))
        if backwards is not None:
            raise GoRegexpError("invalid character class range", backwards[1]) from error
        raise GoRegexpError(str(error), pattern) from error


def search(pattern: str, text: str) -> bool:
    """Return whether the pattern matches anywhere in the text, as Go's `MatchString` does."""
    return compile_pattern(pattern).search(text) is not None


@lru_cache(maxsize=64)
def _unicode_class(name: str) -> _Ranges:
    """Return the ranges of a Unicode category, or of a script, recognized by the names of its characters."""

    def member(character: str) -> bool:
        if len(name) <= 2:
            return unicodedata.category(character).startswith(name)
        return name == "Any" or unicodedata.name(character, "").startswith(f"{name.upper()} ")

    ranges: list[tuple[int, int]] = []
    for code in range(sys.maxunicode + 1):
        if member(chr(code)):
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1] = (ranges[-1][0], code)
            else:
                ranges.append((code, code))
    return tuple(ranges)


def _complement(ranges: _Ranges) -> _Ranges:
    gaps, start = [], 0
    for low, high in sorted(ranges):
        if low > start:
            gaps.append((start, low - 1))
        start = max(start, high + 1)
    if start <= sys.maxunicode:
        gaps.append((start, sys.maxunicode))
    return tuple(gaps)


def _render(ranges: _Ranges) -> str:
    """Return the ranges as the inside of a Python character class."""
    return "".join(f"\\U{low:08x}-\\U{high:08x}" if low != high else f"\\U{low:08x}" for low, high in ranges)


class _Translator:
    """A pass over a pattern; `at` is the position, `flags` are those of the groups around it."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.out: list[str] = []
        self.flags = [""]
        self.opened = [0]
        self.repeatable = False

    def translate(self) -> str:
        while self.at < len(self.pattern):
            self._step(self.pattern[self.at])
        if len(self.flags) > 1:
            raise GoRegexpError("missing closing )", self.pattern)
        return "".join(self.out) + ")" * self.opened[0]

    def _emit(self, text: str, *, repeatable: bool = True, skip: int = 1) -> None:
        self.out.append(text)
        self.at += skip
        self.repeatable = repeatable

    def _step(self, character: str) -> None:
        if character == "\\":
            self._escape()
        elif character == "[":
            self._class()
        elif character == "(":
            self._open()
        elif character == ")":
            self._close()
        elif character in "*+?{":
            self._repeat(character)
        elif character == "$":
            self._emit("(?:$)" if "m" in self.flags[-1] else r"(?:\Z)")
        elif character == "^":
            self._emit("(?:^)")
        elif character == "|":
            # Flags set in the middle of a group apply to the later alternatives too.
            scoped = self.opened[-1]
            reopened = f"(?{self._python_flags()}:" * bool(scoped)
            self.out.append(")" * scoped)
            self.opened[-1] = int(bool(scoped))
            self._emit("|" + reopened, repeatable=False)
        else:
            self._emit(character)

    def _python_flags(self) -> str:
        return "".join(flag for flag in "ims" if flag in self.flags[-1])

    def _open(self) -> None:
        rest = self.pattern[self.at :]
        if not rest.startswith("(?"):
            self._push("(", 1)
        elif named := re.match(r"\(\?P?<([A-Za-z0-9_]+)>", rest):
            self._push(f"(?P<{named[1]}>", len(named[0]))
        elif flagged := re.match(r"\(\?([imsU]*)(?:-([imsU]+))?([:)])", rest):
            self._flags(flagged)
        elif rest.startswith(("(?<", "(?P<")):
            end = rest.find(">") + 1
            if not end and ")" in rest:
                end = rest.find(")") + 1
            raise GoRegexpError("invalid named capture", rest[: end or len(rest)])
        else:
            raise GoRegexpError("invalid or unsupported Perl syntax", rest[:3])

    def _push(self, text: str, skip: int) -> None:
        self.flags.append(self.flags[-1])
        self.opened.append(0)
        self._emit(text, repeatable=False, skip=skip)

    def _flags(self, match: re.Match[str]) -> None:
        on, off, end = match[1], match[2] or "", match[3]
        new = "".join(flag for flag in dict.fromkeys(self.flags[-1] + on) if flag not in off)
        python_on = "".join(flag for flag in "ims" if flag in on)
        python_off = "".join(flag for flag in "ims" if flag in off)
        group = f"(?{python_on}{'-' if python_off else ''}{python_off}:"
        if end == ":":
            self._push(group, len(match[0]))
            self.flags[-1] = new
        else:
            self.flags[-1] = new
            self.opened[-1] += 1
            self._emit(group, repeatable=False, skip=len(match[0]))

    def _close(self) -> None:
        if len(self.flags) == 1:
            raise GoRegexpError("unexpected )", self.pattern)
        self.flags.pop()
        self._emit(")" * (self.opened.pop() + 1))

    def _repeat(self, character: str) -> None:
        match = re.match(r"[*+?]|\{(\d+)(?:(,)(\d*))?\}", self.pattern[self.at :])
        if match is None:
            self._emit(r"\{")
            return
        if not self.repeatable:
            raise GoRegexpError("missing argument to repetition operator", match[0])
        counts = [int(count) for count in (match[1], match[3]) if count]
        if any(count > _MAX_REPEAT for count in counts) or (len(counts) == 2 and counts[0] > counts[1]):
            raise GoRegexpError("invalid repeat count", match[0])
        lazy = self.pattern.startswith("?", self.at + len(match[0]))
        after = re.match(r"[*+?]|\{\d+(?:,\d*)?\}", self.pattern[self.at + len(match[0]) + lazy :])
        if after is not None:
            raise GoRegexpError("invalid nested repetition operator", match[0] + "?" * lazy + after[0])
        greedy = lazy == ("U" in self.flags[-1])
        self._emit(match[0] + ("" if greedy else "?"), repeatable=False, skip=len(match[0]) + lazy)

    def _escape(self) -> None:
        rest = self.pattern[self.at :]
        if len(rest) == 1:
            raise GoRegexpError("trailing backslash at end of expression", "")
        letter = rest[1]
        if letter == "Q":
            literal, _, _ = rest[2:].partition(r"\E")
            closed = 2 if rest[2 + len(literal) :].startswith(r"\E") else 0
            self._emit(re.escape(literal), skip=2 + len(literal) + closed)
        elif letter == "z":
            self._emit(r"(?:\Z)", skip=2)
        elif letter in "bB":
            self._emit(_WORD_EDGE if letter == "b" else f"(?!{_WORD_EDGE})", skip=2)
        elif letter == "A":
            self._emit(r"(?:\A)", skip=2)
        else:
            text, length = self._escape_in_class()
            self._emit(f"[{text}]", skip=length)

    def _escape_in_class(self) -> tuple[str, int]:
        """Return the escape at `at` as the inside of a Python class, and its length."""
        rest = self.pattern[self.at :]
        letter = rest[1:2]
        if not letter:
            raise GoRegexpError("trailing backslash at end of expression", "")
        if letter in _PERL:
            return _render(_PERL[letter]), 2
        if letter.lower() in _PERL:
            return _render(_complement(_PERL[letter.lower()])), 2
        if letter in "pP":
            return self._unicode(rest)
        if match := re.match(r"\\x(?:\{([0-9A-Fa-f]+)\}|([0-9A-Fa-f]{2}))", rest):
            return f"\\U{int(match[1] or match[2], 16):08x}", len(match[0])
        if match := re.match(r"\\(0[0-7]{0,2}|[1-7][0-7]{1,2})", rest):
            return f"\\U{int(match[1], 8):08x}", len(match[0])
        if letter in "afnrtv":
            return f"\\{letter}", 2
        if letter.isascii() and not letter.isalnum():
            return f"\\{letter}" if letter != "_" else letter, 2
        raise GoRegexpError("invalid escape sequence", rest[:2])

    def _unicode(self, rest: str) -> tuple[str, int]:
        match = re.match(r"\\([pP])(?:\{(\^?)(\w+)\}|(\w))", rest)
        if match is None:
            raise GoRegexpError("invalid character class range", rest[:2])
        ranges = _unicode_class(match[3] or match[4])
        if not ranges:
            raise GoRegexpError("invalid character class range", match[0])
        negated = (match[1] == "P") != bool(match[2])
        return _render(_complement(ranges) if negated else ranges), len(match[0])

    def _class(self) -> None:
        start = self.at
        self.at += 1
        parts = ["["]
        if self.pattern.startswith("^", self.at):
            parts.append("^")
            self.at += 1
        first = True
        while first or not self.pattern.startswith("]", self.at):
            if self.at >= len(self.pattern):
                raise GoRegexpError("missing closing ]", self.pattern[start:])
            parts.append(self._class_part())
            first = False
        parts.append("]")
        self._emit("".join(parts))

    def _class_part(self) -> str:
        rest = self.pattern[self.at :]
        if match := re.match(r"\[:(\^?)(\w+):\]", rest):
            if match[2] not in _POSIX:
                raise GoRegexpError("invalid character class range", match[0])
            self.at += len(match[0])
            return _render(_complement(_POSIX[match[2]]) if match[1] else _POSIX[match[2]])
        if rest[0] == "\\":
            text, length = self._escape_in_class()
            self.at += length
            return text
        self.at += 1
        # `[`, `&`, `~` and `|` may become set operators in a later Python; a leading `]` is a literal.
        return f"\\{rest[0]}" if rest[0] in "[]&~|" else rest[0]
