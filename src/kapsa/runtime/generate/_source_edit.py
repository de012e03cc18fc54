"""Edits of a project's own source: an import, an argument of the operator, a keyword of a class.

Each is a function from text to text. Only what is edited is written again, formatted as `ruff format` does; source
of another shape than `kapsa new` writes is refused, never guessed at.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

import msgspec

__all__ = ["SourceEditError", "add_class_keyword", "add_import", "add_to_operator"]

_WIDTH = 110


class SourceEditError(Exception):
    """The source does not have the shape that an edit needs."""


class Term(msgspec.Struct):
    """An expression: text, or a call or list with its items."""

    text: str
    items: list[Term] | None = None
    """The items between the brackets; None if the expression is only text."""
    keyword: str = ""

    def flat(self) -> str:
        """Return the expression on one line."""
        prefix = f"{self.keyword}=" if self.keyword else ""
        if self.items is None:
            return prefix + self.text
        inner = ", ".join(item.flat() for item in self.items)
        return f"{prefix}{self.text}{inner}{_closing(self.text)}"

    def render(self, indent: str, before: int) -> str:
        """Return the expression, with an item on each line if it does not fit on one."""
        if self.items is None or before + len(self.flat()) <= _WIDTH:
            return self.flat()
        prefix = f"{self.keyword}=" if self.keyword else ""
        inner = indent + "    "
        lines = [f"{inner}{item.render(inner, len(inner) + 1)},\n" for item in self.items]
        return f"{prefix}{self.text}\n{''.join(lines)}{indent}{_closing(self.text)}"

    def argument(self, name: str) -> Term | None:
        """Return the keyword argument of this name, if it is there."""
        return next((item for item in self.items or () if item.keyword == name), None)


def _closing(opening: str) -> str:
    return "]" if opening.endswith("[") else ")"


def add_import(source: str, module: str, name: str) -> str:
    """Return the source with `from module import name`, merged into an import of that module."""
    tree = ast.parse(source)
    imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    if not imports:
        raise SourceEditError(f"add `from {module} import {name}`")
    for node in imports:
        if isinstance(node, ast.ImportFrom) and node.module == module:
            names = sorted({alias.name for alias in node.names} | {name}, key=_import_order)
            return _replace(source, node, f"from {module} import {', '.join(names)}")
    lines = source.splitlines(keepends=True)
    line = f"from {module} import {name}\n"
    after = max((node for node in imports if _precedes(node, module)), key=_end, default=None)
    position = _end(after) if after is not None else imports[0].lineno - 1
    return "".join([*lines[:position], line, *lines[position:]])


def _precedes(node: ast.Import | ast.ImportFrom, module: str) -> bool:
    name = node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
    if (name or "").partition(".")[0] == module.partition(".")[0]:
        return (name or "") <= module
    return True


def _end(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _import_order(name: str) -> tuple[int, str]:
    """Return the order that ruff's isort has: constants, classes, then functions."""
    return (0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2), name


def add_to_operator(source: str, change: Callable[[Term], None], *, otherwise: str) -> str:
    """Return the source with the call of `Operator(...)` changed. `otherwise` is what a person would write."""
    tree = ast.parse(source)
    calls = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and _name(node.value) == "Operator"
    ]
    if len(calls) != 1:
        raise SourceEditError(otherwise)
    segment = ast.get_source_segment(source, calls[0]) or ""
    if "#" in segment:  # a comment would be lost
        raise SourceEditError(otherwise)
    term = _term(source, calls[0])
    change(term)
    return _replace(source, calls[0], term.render("", calls[0].col_offset))


def _name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _term(source: str, node: ast.expr, keyword: str = "") -> Term:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        items = [_term(source, each) for each in node.args]
        items += [_term(source, each.value, each.arg or "") for each in node.keywords]
        return Term(f"{node.func.id}(", items, keyword)
    if isinstance(node, ast.List):
        return Term("[", [_term(source, each) for each in node.elts], keyword)
    return Term(ast.get_source_segment(source, node) or "", None, keyword)


def add_class_keyword(source: str, name: str, after: str, keyword: str) -> str:
    """Return the source with a keyword such as `hub=True` in the head of a class, after another keyword."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            if any(each.arg == keyword.partition("=")[0] for each in node.keywords):
                return source
            for each in node.keywords:
                if each.arg == after:
                    indent = " " * each.col_offset if each.lineno != node.lineno else ""
                    separator = f",\n{indent}" if indent else ", "
                    segment = ast.get_source_segment(source, each.value) or ""
                    return _replace(source, each.value, f"{segment}{separator}{keyword}")
    raise SourceEditError(f"add {keyword} to the head of class {name}")


def _replace(source: str, node: ast.expr | ast.stmt, text: str) -> str:
    """Return the source with a node replaced. Columns of the syntax tree count bytes."""
    lines = source.encode().splitlines(keepends=True)
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    head = b"".join(lines[: node.lineno - 1]) + lines[node.lineno - 1][: node.col_offset]
    tail = lines[node.end_lineno - 1][node.end_col_offset :] + b"".join(lines[node.end_lineno :])
    return (head + text.encode() + tail).decode()
