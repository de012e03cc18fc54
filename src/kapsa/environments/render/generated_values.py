"""Generated values of a chart, such as passwords from `randAlphaNum`: detected, and kept once they are deployed.

A chart with such functions renders to something else each time. It is rendered twice, and the values that
differ are generated ones. `helm upgrade` keeps them by `lookup`, which has no cluster to look into here.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kapsa.adapters.manifests.manifest import Manifest, display_name
from kapsa.environments.ports import GeneratedValue

__all__ = ["generated_values", "has_generators", "random_names", "settle", "value_at", "with_plain_data"]

_GENERATORS = re.compile(
    rb"\b(rand(AlphaNum|Alpha|Numeric|Ascii|Bytes|Int)|uuidv4|gen(PrivateKey|CA|SelfSignedCert|SignedCert)\w*"
    rb"|htpasswd|bcrypt|encryptAES|shuffle|now)\b"
)
_LARGEST_FILE = 1024 * 1024


def has_generators(chart: Path) -> bool:
    """Return whether a chart may generate values. A packed subchart counts, since it is not looked into."""
    for file in chart.rglob("*"):
        if file.suffix == ".tgz":
            return True
        if file.is_file() and file.suffix in (".yaml", ".yml", ".tpl", ".txt", ".json"):
            with file.open("rb") as content:
                if _GENERATORS.search(content.read(_LARGEST_FILE)):
                    return True
    return False


def with_plain_data(manifest: Manifest) -> Manifest:
    """Return a Secret with `stringData` moved to `data`, as the API server stores it; others unchanged."""
    texts = manifest.get("stringData")
    if manifest.get("kind") != "Secret" or not isinstance(texts, dict):
        return manifest
    data = manifest.get("data") if isinstance(manifest.get("data"), dict) else {}
    encoded = {key: base64.b64encode(str(text).encode()).decode() for key, text in texts.items()}
    kept = {key: value for key, value in manifest.items() if key != "stringData"}
    return {**kept, "data": {**(data or {}), **encoded}}


def generated_values(first: Sequence[Manifest], second: Sequence[Manifest]) -> tuple[GeneratedValue, ...]:
    """Return where two renderings of the same inputs differ."""
    others = {_identity(each): each for each in second}
    return tuple(
        GeneratedValue(*_identity(each), path)
        for each in first
        if (other := others.get(_identity(each))) is not None
        for path in _differences(each, other, ())
    )


def random_names(first: Sequence[Manifest], second: Sequence[Manifest]) -> list[str]:
    """Return a warning for each object whose name is generated: it cannot be kept."""
    named = {_identity(each) for each in second}
    return [
        f"{display_name(each)} has a generated name, and is replaced whenever the chart is rendered again"
        for each in first
        if _identity(each) not in named
    ]


def settle(
    objects: Sequence[Manifest],
    generated: Sequence[GeneratedValue],
    choose: Callable[[GeneratedValue], Any],
) -> dict[GeneratedValue, Any]:
    """Set each generated value to the one that `choose` returns, unless it is None. Return the values in use.

    The objects are changed in place.
    """
    by_identity = {_identity(each): each for each in objects}
    values: dict[GeneratedValue, Any] = {}
    for each in generated:
        manifest = by_identity.get((each.kind, each.name))
        if manifest is None:
            continue
        chosen, fresh = choose(each), value_at(manifest, each.path)
        if isinstance(chosen, type(fresh)):
            _put(manifest, each.path, chosen)
        values[each] = value_at(manifest, each.path)
    return values


def value_at(manifest: Any, path: Sequence[str | int]) -> Any:
    """Return the value at a path of an object; None if there is none."""
    for step in path:
        if isinstance(manifest, dict) and isinstance(step, str):
            manifest = manifest.get(step)
        elif isinstance(manifest, list) and isinstance(step, int) and step < len(manifest):
            manifest = manifest[step]
        else:
            return None
    return manifest


def _put(manifest: Any, path: Sequence[str | int], value: Any) -> None:
    value_at(manifest, path[:-1])[path[-1]] = value


def _differences(first: Any, second: Any, path: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    if isinstance(first, dict) and isinstance(second, dict):
        for key in first:
            if key in second:
                yield from _differences(first[key], second[key], (*path, key))
    elif isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        for number, (one, other) in enumerate(zip(first, second, strict=True)):
            yield from _differences(one, other, (*path, number))
    elif first != second and path:
        yield path


def _identity(manifest: Manifest) -> tuple[str, str]:
    kind = f"{manifest.get('apiVersion')}/{manifest.get('kind')}"
    return kind, str((manifest.get("metadata") or {}).get("name"))
