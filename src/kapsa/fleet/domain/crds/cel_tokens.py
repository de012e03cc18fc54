"""Tokens of CEL expressions: enough to decide whether two rules differ in layout and quotes alone."""

import functools
import re

__all__ = ["tokens", "uses_old_self"]

_TOKEN = re.compile(
    r"""
      (?P<skip>\s+|//[^\n]*)
    | (?P<raw>(?:[bB]?[rR]|[rR][bB])(?:\"{3}.*?\"{3}|'{3}.*?'{3}|"[^"\n]*"|'[^'\n]*'))
    | (?P<text>[bB]?(?:\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}
               |"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
    | (?P<number>0[xX][0-9a-fA-F]+[uU]?|(?:\d+\.\d+|\.\d+|\d+)(?:[eE][+-]?\d+)?[uU]?)
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*|`[^`\n]*`)
    | (?P<sign>&&|\|\||[=!<>]=|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_PLAIN = re.compile(r"""(['"])([^'"\\]*)\1""")


@functools.lru_cache(maxsize=4096)
def tokens(expression: str) -> tuple[str, ...]:
    """Return the tokens of an expression, without white space and comments, and with one kind of quotes."""
    return tuple(
        _canonical(match.group()) for match in _TOKEN.finditer(expression) if match.lastgroup != "skip"
    )


def uses_old_self(expression: str) -> bool:
    """Return whether an expression refers to `oldSelf`, which makes its rule a transition rule."""
    parts = tokens(expression)
    return any(
        part == "oldSelf" and (index == 0 or parts[index - 1] != ".") for index, part in enumerate(parts)
    )


def _canonical(token: str) -> str:
    plain = _PLAIN.fullmatch(token)
    return f'"{plain.group(2)}"' if plain is not None else token
