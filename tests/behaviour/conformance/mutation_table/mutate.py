"""Mutations of valid objects: each breaks one field in a way that a schema alone does not notice."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

HERE = Path(__file__).parent
EXPECTED = HERE / "expected.json"
LONG = "x" * 300
TEXTS = ("", "Bad_Value!", LONG, " a")
NUMBERS = (-1, 0, 70000, 2**31 - 1)
NAMESPACE = "mutations"
_PANICS = {(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs", "spec.completions removed")}
"""Mutations with no comparable response: the real server ends the connection."""
_EXAMPLES = re.compile(r",? \(e\.g\. .*$", re.DOTALL)

FieldPath = tuple[str | int, ...]


_ENDS = "and must start and end with an alphanumeric character"
_COMMON = {
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, "
    f"'-' or '.', {_ENDS}": "<subdomain>",
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or "
    f"'-', {_ENDS}": "<label>",
    f"name part must consist of alphanumeric characters, '-', '_' or '.', {_ENDS}": "<key>",
    "a valid label must be an empty string or consist of alphanumeric characters, "
    f"'-', '_' or '.', {_ENDS}": "<value>",
}
"""Texts that the recording abbreviates, because they occur a thousand times."""


class Mutation(msgspec.Struct, frozen=True):
    """A change of one field of an object: its path, its name in the table, and the new value."""

    path: FieldPath
    change: str
    value: Any = None

    @property
    def name(self) -> str:
        return f"{'.'.join(map(str, self.path))} {self.change}"

    def apply(self, obj: dict[str, Any]) -> dict[str, Any]:
        """Return a copy of the object with the change."""
        changed = copy.deepcopy(obj)
        holder: Any = changed
        for step in self.path[:-1]:
            holder = holder[step]
        if self.change == "removed":
            del holder[self.path[-1]]
        else:
            holder[self.path[-1]] = self.value
        return changed


class Subject(msgspec.Struct, frozen=True):
    """A valid object and the collection that it is created in."""

    collection: str
    object: dict[str, Any]

    @property
    def mutations(self) -> list[Mutation]:
        return [each for each in _mutations(self.object) if (self.collection, each.name) not in _PANICS]


def subjects() -> dict[str, Subject]:
    """Return a valid object of each kind, by the name it has in the table."""
    table: dict[str, Subject] = {}
    for path in sorted((HERE / "objects").glob("*.yaml")):
        for name, entry in yaml.safe_load(path.read_text()).items():
            body = {key: value for key, value in entry.items() if key != "in"}
            body["metadata"] = {"name": "zz", **body.get("metadata", {})}
            # YAML aliases make parts of the object one; a mutation must change only one of them.
            table[name] = Subject(entry["in"].replace("{ns}", NAMESPACE), json.loads(json.dumps(body)))
    return table


def _mutations(value: Any, path: FieldPath = ()) -> Iterator[Mutation]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield Mutation((*path, key), "removed")
            if isinstance(item, dict) and item and all(isinstance(each, str) for each in item.values()):
                yield Mutation((*path, key), "with a bad key", {"Bad Key!": next(iter(item.values()))})
            yield from _mutations(item, (*path, key))
    elif isinstance(value, list):
        yield Mutation(path, "emptied", [])
        if value:
            yield Mutation(path, "with a duplicate", [*value, value[0]])
        for index, item in enumerate(value):
            yield from _mutations(item, (*path, index))
    elif isinstance(value, bool):
        yield Mutation(path, "negated", not value)
    elif isinstance(value, int):
        yield from (Mutation(path, f"= {number}", number) for number in NUMBERS if number != value)
    elif isinstance(value, str):
        yield from (Mutation(path, f"= {json.dumps(_short(text))}", text) for text in TEXTS)


def outcome(status: int, answer: Any) -> Any:
    """Return what a client can rely on in the response to a mutation: nothing more if it was accepted."""
    if status < 300:
        return status
    causes = (answer.get("details") or {}).get("causes")
    if not causes:
        return [status, _short(answer.get("message", ""))]
    # Go visits maps in random order, so the order of the causes is not comparable.
    return [status, *sorted(_short(f"{cause.get('field', '')}: {cause['message']}") for cause in causes)]


def _short(text: str) -> str:
    # Messages about names end in long examples and a regular expression, which other tests compare.
    return _EXAMPLES.sub("", text.replace(LONG, "x*300"))


def expected() -> dict[str, dict[str, Any]]:
    """Return the real server's refusals, by kind and mutation. What is not listed was accepted."""
    table: dict[str, Any] = json.loads(EXPECTED.read_text())
    texts = {mark: text for text, mark in _COMMON.items()}
    return {kind: _map_texts(refusals, _expand, texts) for kind, refusals in table.items()}


def record(table: dict[str, dict[str, Any]]) -> None:
    """Write the real server's refusals: one line per mutation, so that a diff shows which ones changed."""
    kinds = []
    for kind, refusals in table.items():
        short = _map_texts(refusals, _abbreviate, _COMMON)
        rows = [f" {json.dumps(name)}: {json.dumps(result)}" for name, result in short.items()]
        kinds.append(f"{json.dumps(kind)}: {{\n" + ",\n".join(rows) + "\n}")
    EXPECTED.write_text("{\n" + ",\n".join(kinds) + "\n}\n")


def _map_texts(
    refusals: dict[str, Any], change: Callable[[str, str, dict[str, str]], str], texts: dict[str, str]
) -> dict[str, Any]:
    return {
        name: [status, *(change(text, _field(name), texts) for text in results)]
        for name, (status, *results) in refusals.items()
    }


def _field(name: str) -> str:
    """Return the path of a mutation as the server writes it: `a[0].b` for `a.0.b`."""
    return re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", name.partition(" ")[0])


def _abbreviate(text: str, field: str, texts: dict[str, str]) -> str:
    for long, mark in texts.items():
        text = text.replace(long, mark)
    return f"@{text.removeprefix(field)}" if text.startswith(field) else text


def _expand(text: str, field: str, texts: dict[str, str]) -> str:
    for mark, long in texts.items():
        text = text.replace(mark, long)
    return f"{field}{text.removeprefix('@')}" if text.startswith("@") else text
