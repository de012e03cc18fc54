"""Writes docs/API.md from the docstrings of the public names. `--check` only reports whether the page is up
to date.

Signatures and attribute docstrings are read from the source, so the page is the same on every machine.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
import sys
import textwrap
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "API.md"
COMMAND = ".venv/bin/python tools/api_reference.py"
WIDTH = 100
FENCE = "`" * 3

MODULES: tuple[tuple[str, str], ...] = (
    ("kapsa.runtime", "Everything that an operator needs: `from kapsa.runtime import ...`."),
    ("kapsa.runtime.testing", ""),
    ("kapsa.devcluster", ""),
    ("kapsa.devcluster.faults", ""),
    ("kapsa.devcluster.workloads", ""),
)
"""The modules of the page, in order, each with a text to use instead of its docstring."""

INTERNAL = {
    "kapsa.devcluster.faults": {"OpenWatch", "Target"},
    "kapsa.devcluster.workloads": {"Behaviour"},
}
"""Names that modules share with each other and that are not for users."""

INTERNAL_MEMBERS = {
    "Cache": {"note_delete", "note_write", "start", "stop"},
    "Context": {"draft"},
}
"""Members that parts of the runtime call on each other and that are not for users."""

MADE_BY_THE_RUNTIME = {"AdmissionRequest", "Context", "RunningOperator", "WebhookServer"}
"""Classes that users receive and never construct."""

IMPLEMENTATIONS = {"HttpTransport": "Transport", "StaticAccess": "ClusterAccess", "SystemClock": "Clock"}
"""Classes whose undocumented methods are those of a protocol on the same page."""


class Undocumented(Exception):  # noqa: N818 - names the problem
    """A public name without a docstring."""


def main() -> int:
    """Write the page, or check it."""
    text = render()
    if "--check" in sys.argv[1:]:
        if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text:
            return 0
        print(f"docs/API.md is out of date: run `{COMMAND}`", file=sys.stderr)
        return 1
    PAGE.write_text(text, encoding="utf-8")
    print(PAGE.relative_to(ROOT))
    return 0


def render() -> str:
    """Return the whole page."""
    sections: list[str] = []
    contents: list[str] = []
    documented: dict[Any, str] = {}
    anchors = _Anchors()
    anchors.of("API reference")
    for name, summary in MODULES:
        module = importlib.import_module(name)
        contents.append(f"- [{name}](#{anchors.of(name)})")
        index: dict[str, str] = {}
        entries: list[str] = []
        for public in _public_names(module):
            entry = _entry(module, public, documented)
            headings = re.findall(r"^####? (.+)$", entry, re.MULTILINE)
            anchor, *_ = [anchors.of(heading) for heading in headings]
            index[public] = f"[{public}](#{anchor})"
            entries.append(entry)
        sections += [
            f"## {name}",
            summary or _prose(module.__doc__ or ""),
            _index(name, index),
            *_introduction(name, anchors),
            *entries,
        ]
    head = (
        "# API reference\n\n"
        f"Generated from the docstrings by `{COMMAND}`; edit those, not this page.\n\n" + "\n".join(contents)
    )
    return "\n\n".join([head, *sections]) + "\n"


def _introduction(module: str, anchors: _Anchors) -> list[str]:
    """Return the tree of errors for the façade; nothing for other modules."""
    if module != "kapsa.runtime":
        return []
    anchors.of("Errors")
    return ["### Errors", _prose(importlib.import_module("kapsa.runtime.errors").__doc__ or "")]


def _index(module: str, links: dict[str, str]) -> str:
    """Return the links to the entries of a module; those of the façade by the room that they come from."""
    if module != "kapsa.runtime":
        return " · ".join(links.values())
    rooms: dict[str, list[str]] = {}
    for name, link in links.items():
        rooms.setdefault(_rooms()[name], []).append(link)
    return "\n".join(f"- {room}: {' · '.join(rooms[room])}" for room in sorted(rooms))


@functools.cache
def _rooms() -> dict[str, str]:
    """Return the room that each name of the façade is imported from."""
    file = importlib.import_module("kapsa.runtime").__file__
    assert file is not None
    imports = (node for node in _tree(file).body if isinstance(node, ast.ImportFrom))
    return {each.name: str(node.module).split(".")[2] for node in imports for each in node.names}


class _Anchors:
    """The anchors of a page's headings, in order. A repeated heading is numbered."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def of(self, heading: str) -> str:
        """Return the anchor of the next heading with this text."""
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        number = self._seen[anchor] = self._seen.get(anchor, -1) + 1
        return f"{anchor}-{number}" if number else anchor


def _public_names(module: Any) -> list[str]:
    hidden = INTERNAL.get(module.__name__, set())
    return sorted((name for name in module.__all__ if name not in hidden), key=str.lower)


def _entry(module: Any, name: str, documented: dict[Any, str]) -> str:
    thing = getattr(module, name)
    thing = getattr(thing, "__wrapped__", thing)
    if inspect.ismodule(thing):
        functions = (getattr(thing, each) for each in thing.__all__)
        members = [_member(_node_of(each), name, _docstring(each, each.__name__)) for each in functions]
        return "\n\n".join([f"### {name}", _prose(thing.__doc__ or ""), *members])
    if inspect.isclass(thing) or inspect.isfunction(thing):
        if (earlier := documented.get(thing)) is not None:
            return f"### {name}\n\nSee `{earlier}.{name}` above."
        documented[thing] = module.__name__
        return _class(thing, name) if inspect.isclass(thing) else _function(thing, name)
    definition, docstring = _variable(module, name)
    return f"### {name}\n\n{_fence(definition)}\n\n{_prose(docstring)}"


def _class(cls: type, name: str) -> str:
    node = _node_of(cls)
    parts = [f"### {name}", _class_signature(cls, node), _prose(_docstring(cls, name))]
    start = _constructor(cls) if name not in MADE_BY_THE_RUNTIME else None
    if start is not None and (docstring := ast.get_docstring(start)):
        parts.append(_prose(docstring))
    properties, methods = [], []
    for child, docstring in _members(cls, name):
        if _decorated(child, "property"):
            properties.append(_property(child, docstring))
        else:
            methods.append(_member(child, name, docstring, _overloads(cls, child.name)))
    if attributes := [*_attributes(cls), *properties]:
        parts.append("\n".join(attributes))
    parts += methods
    return "\n\n".join(part for part in parts if part)


def _members(cls: type, name: str) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, str]]:
    """Yield the public methods and properties in source order, those of bases in this project included."""
    seen: set[str] = set()
    for base in _described_here(cls):
        for child in _node_of(base).body:
            if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) or child.name.startswith("_"):
                continue
            if child.name in seen | INTERNAL_MEMBERS.get(name, set()) or _is_overload(child):
                continue
            seen.add(child.name)
            docstring = ast.get_docstring(child) or _inherited_docstring(cls, child.name)
            if docstring is None and _decorated(child, "property"):
                docstring = ""  # the name and the type suffice
            if docstring is None:
                if base is not cls or name in IMPLEMENTATIONS:
                    continue
                raise Undocumented(f"{cls.__module__}.{name}.{child.name} has no docstring")
            yield child, docstring


def _property(child: ast.FunctionDef | ast.AsyncFunctionDef, docstring: str) -> str:
    returns = f": {ast.unparse(child.returns)}" if child.returns else ""
    line = f"- `{child.name}{returns}`"
    return f"{line}: {_prose(docstring, one_line=True)}" if docstring else line


def _member(
    child: ast.FunctionDef | ast.AsyncFunctionDef,
    owner: str,
    docstring: str,
    overloads: Sequence[ast.FunctionDef | ast.AsyncFunctionDef] = (),
) -> str:
    signatures = "\n".join(_signature(each) for each in overloads or [child])
    return f"#### {owner}.{child.name}\n\n{_fence(signatures)}\n\n{_prose(docstring)}"


def _overloads(cls: type, name: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return the overloads of a method: they carry the types, its implementation says Any."""
    for base in _lineage(cls):
        children = [child for child in _node_of(base).body if getattr(child, "name", "") == name]
        if children:
            return [child for child in children if _is_overload(child)]
    return []


def _constructor(cls: type) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    constructors = (_method(_node_of(base), "__init__") for base in _lineage(cls))
    return next((each for each in constructors if each is not None), None)


def _function(function: Any, name: str) -> str:
    node = _node_of(function)
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    return f"### {name}\n\n{_fence(_signature(node))}\n\n{_prose(_docstring(function, name))}"


# -- reading the source ----------------------------------------------------------------------------------------


@functools.cache
def _tree(file: str) -> ast.Module:
    return ast.parse(Path(file).read_text(encoding="utf-8"))


def _node_of(thing: Any) -> Any:
    """Return the definition of a class or function in its module."""
    module = sys.modules[thing.__module__]
    assert module.__file__ is not None
    for node in _tree(module.__file__).body:
        if getattr(node, "name", "") == thing.__name__ and not _is_overload(node):
            return node
    raise LookupError(f"{thing.__module__}.{thing.__name__} is not defined at the top of its module")


def _lineage(cls: type) -> list[type]:
    """Return a class and its bases in this project. A TypedDict has none at run time, but its source does."""
    bases: list[Any] = list(cls.__mro__)
    if typing.is_typeddict(cls):
        module = sys.modules[cls.__module__]
        bases += [getattr(module, ast.unparse(base), object) for base in _node_of(cls).bases]
    return [base for base in bases if base.__module__.startswith("kapsa.")]


def _described_here(cls: type) -> list[type]:
    """Return a class and those of its bases that have no entry of their own."""
    return [base for base in _lineage(cls) if base is cls or base.__name__ not in _exported()]


def _docstring(thing: Any, name: str) -> str:
    docstring = ast.get_docstring(_node_of(thing))
    if not docstring:
        raise Undocumented(f"{thing.__module__}.{name} has no docstring")
    return docstring


def _inherited_docstring(cls: type, method: str) -> str | None:
    nodes = (_method(_node_of(base), method) for base in _lineage(cls)[1:])
    return next((text for node in nodes if node is not None and (text := ast.get_docstring(node))), None)


def _method(node: Any, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    for child in node.body:
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and child.name == name:
            return child
    return None


def _attributes(cls: type) -> Iterator[str]:
    """Yield the public attributes: those of the class body, and those of `__init__` that have a docstring."""
    for base in _described_here(cls):
        node = _node_of(base)
        yield from _attributes_in(node.body, cls, documented_only=False)
        if (start := _method(node, "__init__")) is not None:
            yield from _attributes_in(start.body, cls, documented_only=True)


def _attributes_in(body: list[ast.stmt], cls: type, *, documented_only: bool) -> Iterator[str]:
    for statement, following in zip(body, [*body[1:], None], strict=True):
        name = _assigned_name(statement)
        if name is None or name.startswith("_"):
            continue
        docstring = _text_of(following)
        if docstring is None and documented_only:
            continue
        annotation = getattr(statement, "annotation", None)
        value = getattr(statement, "value", None)
        declared = f": {ast.unparse(annotation)}" if annotation is not None else ""
        default = ""
        if value is not None and not documented_only and len(ast.unparse(value)) < 60:
            default = f" = {ast.unparse(value)}"
        line = f"- `{' '.join((name + declared + default).split())}`"
        yield f"{line}: {_prose(docstring, one_line=True)}" if docstring else line


def _assigned_name(statement: ast.stmt) -> str | None:
    target: ast.expr
    if isinstance(statement, ast.AnnAssign):
        target = statement.target
    elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
    else:
        return None
    if isinstance(target, ast.Name):
        return target.id
    if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
        return target.attr
    return None


def _text_of(statement: ast.stmt | None) -> str | None:
    value = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return inspect.cleandoc(value.value)
    return None


def _variable(module: Any, name: str) -> tuple[str, str]:
    """Return the definition of a module's variable and the docstring below it, following imports to its
    module."""
    body = _tree(module.__file__).body
    for node in body:
        if isinstance(node, ast.ImportFrom) and any(each.name == name for each in node.names):
            return _variable(importlib.import_module(str(node.module)), name)
    for statement, following in zip(body, [*body[1:], None], strict=True):
        if _assigned_name(statement) == name and (docstring := _text_of(following)):
            value = getattr(statement, "value", None)
            # As the source has it: ruff formats this page, too.
            written = ast.get_source_segment(inspect.getsource(module), value) if value is not None else None
            return f"{name} = {written}" if written else name, docstring
    raise Undocumented(f"{module.__name__}.{name} has no docstring")


def _decorated(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> bool:
    return any(ast.unparse(each).rpartition(".")[2] == name for each in node.decorator_list)


def _is_overload(node: Any) -> bool:
    return not isinstance(node, ast.ClassDef) and _decorated(node, "overload")


# -- signatures ------------------------------------------------------------------------------------------------


def _class_signature(cls: type, node: ast.ClassDef) -> str:
    start = _constructor(cls)
    bases = [ast.unparse(base) for base in node.bases]
    hidden = {base.__name__ for base in _lineage(cls)} - _exported()
    shown = [
        base
        for base in bases
        if not re.match(r"_|Generic\[|(msgspec\.Struct|Protocol|TypedDict)$", base)
        and base.partition("[")[0] not in hidden
    ]
    heading = f"Extends {', '.join(f'`{base}`' for base in shown)}." if shown else ""
    if (
        start is None
        or cls.__name__ in MADE_BY_THE_RUNTIME
        or issubclass(cls, BaseException)
        or not _parameters(start.args)
    ):
        return heading
    fence = _fence(_signature(start, name=cls.__name__, skip_return=True))
    return f"{heading}\n\n{fence}" if heading else fence


def _signature(
    node: ast.FunctionDef | ast.AsyncFunctionDef, *, name: str = "", skip_return: bool = False
) -> str:
    """Return the signature on one line if it fits, else with one parameter a line."""
    parameters = _parameters(node.args)
    prefix = "" if name else ("async def " if _returns_awaitable(node) else "def ")
    returns = f" -> {ast.unparse(node.returns).strip(chr(39))}" if node.returns and not skip_return else ""
    head = f"{prefix}{name or node.name}("
    line = f"{head}{', '.join(parameters)}){returns}"
    if len(line) <= WIDTH:
        return line
    return "\n".join([head, *(f"    {each}," for each in parameters), f"){returns}"])


def _returns_awaitable(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    if not isinstance(node, ast.AsyncFunctionDef):
        return False
    return not _decorated(node, "asynccontextmanager")


@functools.cache
def _exported() -> set[str]:
    """Return all names on the page."""
    return {name for module, _ in MODULES for name in importlib.import_module(module).__all__}


def _parameters(arguments: ast.arguments) -> list[str]:
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(arguments.defaults)) + list(
        arguments.defaults
    )
    made = [
        _parameter(each, default)
        for each, default in zip(plain, defaults, strict=True)
        if each.arg not in ("self", "cls")
    ]
    if arguments.vararg is not None:
        made.append(f"*{_parameter(arguments.vararg, None)}")
    elif arguments.kwonlyargs:
        made.append("*")
    made += [
        _parameter(each, default)
        for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    if arguments.kwarg is not None:
        made.append(f"**{_parameter(arguments.kwarg, None)}")
    return made


def _parameter(argument: ast.arg, default: ast.expr | None) -> str:
    annotation = f": {ast.unparse(argument.annotation).strip(chr(39))}" if argument.annotation else ""
    if default is None:
        return f"{argument.arg}{annotation}"
    equals = " = " if annotation else "="
    return f"{argument.arg}{annotation}{equals}{ast.unparse(default)}"


def _fence(code: str) -> str:
    return f'{FENCE}python norun="a signature"\n{code}\n{FENCE}'


# -- prose -----------------------------------------------------------------------------------------------------


def _prose(docstring: str, *, one_line: bool = False) -> str:
    """Return a docstring as Markdown: parameters become a list, examples a block."""
    text = re.sub(r":\w+:`~?([^`]*)`", lambda role: f"`{role[1].lstrip('.')}`", inspect.cleandoc(docstring))
    text = text.replace("``", "`")
    if one_line:
        return " ".join(text.split())
    blocks: list[str] = []
    for block in re.split(r"\n{2,}", text.strip("\n")):
        if block.strip() in ("", "::"):
            continue
        if block.startswith((":param", ":raises")):
            blocks.append(_parameter_list(block))
        elif block.startswith(" ") or _is_code(block):
            body = textwrap.dedent(block)
            blocks.append(f"{FENCE}text\n{body}\n{FENCE}")
        else:
            blocks.append(block)
    return _joined_code(blocks)


def _is_code(block: str) -> bool:
    """Return whether a block is an example or a table, whose lines must stay apart."""
    lines = block.splitlines()
    return block.startswith((">>>", "class ")) or bool(
        re.match(r"[\w.]+(\([^)]*\))? = \S", lines[0]) or any(re.search(r"\S {2,}\S", line) for line in lines)
    )


def _joined_code(blocks: list[str]) -> str:
    """Join blocks of code that only an empty line separates."""
    joined: list[str] = []
    for block in blocks:
        if joined and block.startswith(f"{FENCE}text\n") and joined[-1].startswith(f"{FENCE}text\n"):
            joined[-1] = joined[-1].removesuffix(f"\n{FENCE}") + "\n\n" + block.removeprefix(f"{FENCE}text\n")
        else:
            joined.append(block)
    return "\n\n".join(joined)


def _parameter_list(block: str) -> str:
    entries = re.split(r"^:(?:param )?", block, flags=re.MULTILINE)[1:]
    lines = []
    for entry in entries:
        name, _, text = entry.partition(":")
        name = name.removeprefix("raises ")
        lines.append(f"- `{name.strip()}`: {' '.join(text.split())}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
