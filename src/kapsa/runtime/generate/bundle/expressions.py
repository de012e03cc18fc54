"""Helm expressions inside manifests that are Python data, and their text in a template."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kapsa.runtime.generate.bundle.facts import UnbundlableError
from kapsa.runtime.generate.manifest import to_yaml

__all__ = ["expression", "template", "value"]

# Private-use characters, which stand for the braces until the YAML is written. Braces that a manifest has itself,
# such as those in a description, are then distinct from ours.
_OPEN, _CLOSE = "\ue000", "\ue001"


def expression(code: str) -> str:
    """Return a scalar that Helm replaces by the result of `code`."""
    return f"{_OPEN}{code}{_CLOSE}"


def value(path: str) -> str:
    """Return the value of the chart at a path, of any type. JSON is YAML, so no content can break the manifest."""
    return expression(f"toJson .Values.{path}")


def template(manifests: Iterable[Mapping[str, Any]], *, condition: str = "") -> str:
    """Return manifests as a template, which renders them only while `condition` holds."""
    listed = list(manifests)
    for manifest in listed:
        _check(manifest, f"{manifest['kind']} {manifest['metadata']['name']}")
    text = to_yaml(listed).replace("{{", '{{ "{{" }}').replace(_OPEN, "{{ ").replace(_CLOSE, " }}")
    return f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n" if condition else text


def _check(part: Any, owner: str) -> None:
    """Reject text that holds one of our markers in another way than `expression` writes it."""
    if isinstance(part, Mapping):
        for key, each in part.items():
            _check(key, owner)
            _check(each, owner)
    elif isinstance(part, list | tuple):
        for each in part:
            _check(each, owner)
    elif isinstance(part, str) and (_OPEN in part or _CLOSE in part):
        whole = part.startswith(_OPEN) and part.endswith(_CLOSE)
        if not whole or part.count(_OPEN) > 1 or part.count(_CLOSE) > 1:
            raise UnbundlableError(
                f"{owner} contains the character U+E000 or U+E001, which is reserved in charts: remove it"
            )
