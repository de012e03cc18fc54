"""Checks names and prose against the project's plain English. `make check` runs it; it must report nothing.

    python tools/english.py [PATH ...]

Rules, each with the word that a finding starts with:

    opening     A docstring opens with a verb (functions) or a noun phrase (classes, modules, attributes), never with
                What, Who, How, Whether, That and the like, and a class not with a statement (Reads objects).
    imperative  A function's docstring opens with an imperative verb: not with an article or a pronoun, and not
                with another form of a verb (Returns, Returning, Returned).
    word        Words that a native reader stumbles over, in docstrings, comments, messages and pages.
    name        Names that say nothing of what they hold.
    module      A module is named by a noun, not by a gerund or a participle.
    markup      Code is set in single backticks, imports are absolute.
    twice       A public class name exists once.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PROSE = {".go", ".html", ".md", ".sh", ".tpl", ".txt", ".yaml", ".tmpl", ".toml"}
PROSE_NAMES = {"Dockerfile", "Makefile", "run"}
# What tools write from the code, and tables of measurements.
GENERATED = ("charts/kapsa/files/", "constraints.txt")

OPENINGS = {
    *(
        "What",
        "Whatever",
        "Who",
        "Whom",
        "Whoever",
        "Whose",
        "How",
        "Whether",
        "That",
        "Why",
        "Where",
        "When",
        "Which",
    ),
}
ARTICLES = {
    *(
        "A",
        "All",
        "An",
        "Any",
        "Each",
        "Every",
        "Everything",
        "It",
        "Its",
        "No",
        "Nothing",
        "One",
        "Only",
        "Our",
    ),
    *("Some", "The", "These", "This", "Those"),
}
INFLECTED = re.compile(r"[A-Z][a-z]+([^s]s|ing|ed)")
# Imperatives that end like another form.
IMPERATIVES = {"Bring", "Embed", "Exceed", "Feed", "Proceed", "Seed", "Shed", "Speed"}
# The openings of statements: these verbs, unless "of" makes them plurals; and any word in -s before a determiner.
STATEMENTS = {
    *(
        "Accepts",
        "Adds",
        "Allocates",
        "Applies",
        "Brings",
        "Builds",
        "Calls",
        "Collects",
        "Completes",
        "Computes",
    ),
    *(
        "Creates",
        "Decompresses",
        "Deletes",
        "Does",
        "Fetches",
        "Finds",
        "Gets",
        "Gives",
        "Grows",
        "Handles",
        "Has",
    ),
    *(
        "Holds",
        "Is",
        "Issues",
        "Keeps",
        "Lends",
        "Lets",
        "Logs",
        "Makes",
        "Maps",
        "Merges",
        "Needs",
        "Observes",
    ),
    *(
        "Opens",
        "Owns",
        "Parses",
        "Provides",
        "Reads",
        "Receives",
        "Records",
        "Rejects",
        "Represents",
        "Returns",
    ),
    *("Runs", "Scales", "Scans", "Sends", "Serves", "Stores", "Takes", "Turns", "Uses", "Waits", "Writes"),
}
DETERMINERS = {"a", "all", "an", "any", "each", "every", "its", "no", "nothing", "one", "the", "their"}
WORDS = re.compile(
    r"\b(told|tells?|telling|hears?|heard|anew|whom|whoever|worth while|beside|so many|and away with|as it stands there"
    r"|each of them|(?<!there )(?:is|are|was|were) no (?!longer\b|more\b|less\b|later\b|other\b)[a-z]+)\b",
    re.IGNORECASE,
)
NAMES = {"told", "place", "found", "known", "wanted"}
GERUND = re.compile(r"(^|_)[a-z]+(ing|ied)$|^(stored|written|applied|told|begun|taken)$")
# Kubernetes' own nouns, and pytest's habit.
NOUNS = {"autoscaling", "defaulting", "networking", "pruning", "testing", "tracing", "scheduling"}
MARKUP = re.compile(r"(?<!`)``[^`]+``(?!`)|:(?:class|meth|func|mod|attr|raises?|param)\b[^:]*:")

# Files that list what is banned: this one and its test.
BANNING = {Path(__file__).resolve(), ROOT / "tests" / "test_english.py"}


class Finding(NamedTuple):
    """A line to rewrite, and the rule that it breaks."""

    path: Path
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.rule}: {self.text}"


def main(arguments: list[str]) -> int:
    """Print the findings of the given files and folders, or of the whole project."""
    paths = list(_paths(arguments))
    findings = [finding for path in paths for finding in _check(path)]
    if not arguments:
        findings += _classes_defined_twice(paths)
    for finding in findings:
        print(finding)
    print(f"{len(findings)} findings in {len(paths)} files")
    return 1 if findings else 0


def _paths(arguments: list[str]) -> Iterator[Path]:
    listed = subprocess.check_output(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *arguments],
        cwd=ROOT,
        text=True,
    )
    for name in sorted(listed.splitlines()):
        path = ROOT / name
        is_text = path.suffix in {".py", *PROSE} or path.name in PROSE_NAMES
        if is_text and path.is_file() and not name.startswith(GENERATED):
            yield path


def _check(path: Path) -> Iterator[Finding]:
    text = path.read_text()
    if path.suffix != ".py":
        yield from _words(path, enumerate(text.splitlines(), 1))
        return
    if path in BANNING:
        return
    tree = ast.parse(text)
    yield from _docstrings(path, tree)
    yield from _words(path, _prose(text))
    yield from _names(path, tree)
    yield from _markup(path, tree, text)
    if path.is_relative_to(ROOT / "src") and GERUND.search(path.stem) and path.stem not in NOUNS:
        yield Finding(path, 1, "module", f"{path.stem} is not a noun")


def _docstrings(path: Path, tree: ast.Module) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for text, line, is_docstring in _texts_in(node):
            opening = re.match(r"[\w'-]+", text.strip())
            word = opening.group() if opening else ""
            is_statement = is_docstring and isinstance(node, ast.ClassDef) and _is_statement(text)
            if word in OPENINGS or is_statement:
                yield Finding(path, line, "opening", text.strip().splitlines()[0])
            elif is_docstring and not _is_imperative(word) and _is_called(path, node):
                yield Finding(path, line, "imperative", text.strip().splitlines()[0])


def _texts_in(
    node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef,
) -> Iterator[tuple[str, int, bool]]:
    """Yield the docstrings right below a node, those of attributes included."""
    for index, statement in enumerate(node.body):
        value = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield value.value, statement.lineno, index == 0


def _is_imperative(word: str) -> bool:
    return word not in ARTICLES and (word in IMPERATIVES or not INFLECTED.fullmatch(word))


def _is_statement(text: str) -> bool:
    """Return whether a text opens with a verb in the third person."""
    first, second = [*re.findall(r"[\w'-]+", text)[:2], "", ""][:2]
    is_plural_or_verb = INFLECTED.fullmatch(first) is not None and first.endswith("s")
    return (first in STATEMENTS and second != "of") or (is_plural_or_verb and second in DETERMINERS)


def _is_called(path: Path, node: ast.AST) -> bool:
    """Return whether a node is a function that people call: not a property, not a test's fixture."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or path.is_relative_to(ROOT / "tests"):
        return False
    return not any(
        "property" in ast.unparse(each) or "fixture" in ast.unparse(each) for each in node.decorator_list
    )


def _prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of comments and strings."""
    middle = getattr(tokenize, "FSTRING_MIDDLE", None)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING, middle):
            for offset, line in enumerate(token.string.splitlines()):
                yield token.start[0] + offset, line


def _words(path: Path, lines: Iterable[tuple[int, str]]) -> Iterator[Finding]:
    for number, line in lines:
        for match in WORDS.finditer(line):
            yield Finding(path, number, "word", f"{match.group()!r} in {line.strip()[:110]}")


def _names(path: Path, tree: ast.Module) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            name = node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = node.name
        else:
            continue
        if name.strip("_").lower() in NAMES:
            yield Finding(path, getattr(node, "lineno", 1), "name", name)


def _markup(path: Path, tree: ast.Module, text: str) -> Iterator[Finding]:
    for number, line in _prose(text):
        for match in MARKUP.finditer(line):
            yield Finding(path, number, "markup", match.group())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            yield Finding(path, node.lineno, "markup", "a relative import")


def _classes_defined_twice(paths: list[Path]) -> Iterator[Finding]:
    places: dict[str, list[tuple[Path, int]]] = defaultdict(list)
    for path in paths:
        if path.suffix == ".py" and path.is_relative_to(ROOT / "src"):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append((path, node.lineno))
    for name, definitions in sorted(places.items()):
        for path, line in definitions[1:]:
            first, _ = definitions[0]
            yield Finding(path, line, "twice", f"{name} is also a class of {first.relative_to(ROOT)}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
