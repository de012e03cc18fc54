"""Writes docs/environments/reference.md and settings.md from the models; `--check` reports stale pages.

The kinds come from the CRDs that the operator installs, so that the page matches the API server's validation.
"""

from __future__ import annotations

import json
import sys
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from kapsa.environments.resources import DomainPool, Environment, PreviewEnvironment, Project, Registry
from kapsa.environments.settings import PREFIX, Settings
from kapsa.runtime import custom_resource_definitions, field_descriptions
from kapsa.runtime.generate.docstrings import class_description

ROOT = Path(__file__).resolve().parents[1]
DIRECTORY = ROOT / "docs" / "environments"
COMMAND = ".venv/bin/python tools/environments_reference.py"
KINDS = (Project, Environment, DomainPool, Registry, PreviewEnvironment)
"""The kinds in the order of the page."""
LONGEST_PATTERN = 60
HIDDEN_STATUS = ("conditions", "observedGeneration")
"""Fields that the status of every kind has; listed once."""


def main() -> int:
    pages = render()
    if "--check" in sys.argv[1:]:
        stale = [name for name, text in pages.items() if not _is_written(DIRECTORY / name, text)]
        for name in stale:
            print(f"docs/environments/{name} is out of date: run `{COMMAND}`", file=sys.stderr)
        return 1 if stale else 0
    for name, text in pages.items():
        (DIRECTORY / name).write_text(text, encoding="utf-8")
        print(f"docs/environments/{name}")
    return 0


def render() -> dict[str, str]:
    """Return the pages by name."""
    return {"reference.md": kinds_page(), "settings.md": settings_page()}


def _is_written(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


def _made(title: str) -> str:
    return f"# {title}\n\nGenerated from the models by `{COMMAND}`; edit the models, not this page."


# -- kinds -----------------------------------------------------------------------------------------------------


def kinds_page() -> str:
    definitions = {each["spec"]["names"]["kind"]: each for each in custom_resource_definitions(KINDS)}
    about = (
        "Each status also has `conditions`, whose reasons the [runbook](runbook.md) explains, and "
        "`observedGeneration`, the generation of the spec that it refers to. "
        "`kubectl explain` prints the same as this page: `kubectl explain project.spec.source`."
    )
    contents = "\n".join(f"- [{kind.kind}](#{kind.kind.lower()}): {_summary(kind)}" for kind in KINDS)
    sections = [section for kind in KINDS for section in _kind(definitions[kind.kind])]
    return "\n\n".join([_made("Reference of the kinds"), about, contents, *sections]) + "\n"


def _summary(kind: type) -> str:
    text = class_description(kind).split("\n\n")[0].replace("\n", " ")
    return text[:1].lower() + text[1:]


def _kind(definition: Mapping[str, Any]) -> Iterator[str]:
    spec = definition["spec"]
    names, version = spec["names"], spec["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    yield f"## {names['kind']}"
    short = f", short `{'`, `'.join(names['shortNames'])}`" if names.get("shortNames") else ""
    scope = "namespaced" if spec["scope"] == "Namespaced" else "cluster-scoped"
    yield f"`{spec['group']}/{version['name']}`, {scope}{short}. {schema['description']}"
    columns = [
        each["name"] for each in version.get("additionalPrinterColumns", ()) if not each.get("priority")
    ]
    if columns:
        yield f"`kubectl get {names['plural']}` shows {', '.join(columns)}."
    for part in ("spec", "status"):
        hidden = HIDDEN_STATUS if part == "status" else ()
        rows = list(_rows(schema["properties"][part], "", hidden))
        if rows:
            head = "| field | type | description |\n|---|---|---|"
            yield f"### {names['kind']} {part}\n\n{head}\n" + "\n".join(rows)
    rules = list(_rules(schema["properties"]["spec"], ""))
    if rules:
        yield f"### Rules for a {names['kind']}\n\n" + "\n".join(rules)


def _rows(schema: Mapping[str, Any], path: str, hidden: tuple[str, ...] = ()) -> Iterator[str]:
    required = set(schema.get("required", ()))
    for name, field in schema.get("properties", {}).items():
        if not path and name in hidden:
            continue
        where = f"{path}{name}"
        yield f"| `{where}` | {_type(field)} | {_what(field, required=name in required)} |"
        yield from _rows(field, f"{where}.")
        if (items := field.get("items")) is not None:
            yield from _rows(items, f"{where}[].")


def _type(field: Mapping[str, Any]) -> str:
    if "enum" in field:
        return " or ".join(f"`{value}`" for value in field["enum"])
    if field.get("x-kubernetes-int-or-string"):
        return "quantity" if "pattern" in field else "integer or string"
    kind = field.get("type", "anything")
    if kind == "array":
        return f"list of {_type(field['items'])}"
    if kind == "object" and (values := field.get("additionalProperties")):
        return f"map of {_type(values) if isinstance(values, dict) else 'anything'}"
    if field.get("format") == "date-time":
        return "time"
    return str(kind)


def _what(field: Mapping[str, Any], *, required: bool) -> str:
    parts = [str(field.get("description", "")).replace("\n", " ")]
    if required:
        parts.append("**Required.**")
    if field.get("default") not in (None, {}, [], ""):
        parts.append(f"Default: `{_shown(field['default'])}`.")
    parts += _limits(field)
    return _cell(" ".join(part for part in parts if part))


def _limits(field: Mapping[str, Any]) -> Iterator[str]:
    low, high = field.get("minimum"), field.get("maximum")
    if low is not None and high is not None:
        yield f"From {low} to {high}."
    elif low is not None:
        yield f"At least {low}."
    elif high is not None:
        yield f"At most {high}."
    if field.get("maxItems"):
        yield f"At most {field['maxItems']}."
    if field.get("maxLength", 10_000) <= 2048:
        yield f"At most {field['maxLength']} characters."
    pattern = field.get("pattern", "")
    if pattern and len(pattern) <= LONGEST_PATTERN and not field.get("x-kubernetes-int-or-string"):
        yield f"Matches `{pattern}`."


def _rules(schema: Mapping[str, Any], path: str) -> Iterator[str]:
    for rule in schema.get("x-kubernetes-validations", ()):
        where = f"{path.rstrip('.')}{rule.get('fieldPath', '')}".lstrip(".")
        yield f"- `{where}`: {rule['message']}" if where else f"- {rule['message']}"
    for name, field in schema.get("properties", {}).items():
        yield from _rules(field, f"{path}{name}.")
        if (items := field.get("items")) is not None:
            yield from _rules(items, f"{path}{name}[].")


# -- settings --------------------------------------------------------------------------------------------------


def settings_page() -> str:
    about = (
        "The operator is configured by environment variables. An invalid value stops it at the start with one line that names "
        "the variable. In the chart, set them in `operator.settings`, by these names without `KAPSA_`."
    )
    descriptions = field_descriptions(Settings)
    hints = typing.get_type_hints(Settings, include_extras=True)
    rows = []
    for field in msgspec.structs.fields(Settings):
        default = _default(field.default)
        what = _cell(f"{descriptions[field.name]} {_choices(hints[field.name])}".strip())
        rows.append(f"| `{PREFIX}{field.name.upper()}` | {default} | {what} |")
    table = "| variable | default | description |\n|---|---|---|\n" + "\n".join(rows)
    return "\n\n".join([_made("Settings"), about, table]) + "\n"


def _default(value: Any) -> str:
    if value is None or value in ("", ()):
        return "none"
    if isinstance(value, tuple):
        return f"`{','.join(value)}`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, float):
        return f"`{value:g}`"
    return f"`{value}`"


def _choices(hint: Any) -> str:
    if typing.get_origin(hint) is typing.Literal:
        return f"One of {', '.join(f'`{value}`' for value in typing.get_args(hint))}."
    return ""


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _cell(text: str) -> str:
    """Return the text for a cell of a table. A bar has to be escaped even in code."""
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    sys.exit(main())
