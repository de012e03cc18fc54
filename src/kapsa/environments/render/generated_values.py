"""Generated values of a chart, such as passwords from `randAlphaNum`: detected, and kept once they are deployed.

A chart with such functions renders to something else each time. It is rendered twice, and the values that
differ are generated ones. `helm upgrade` keeps them by `lookup`, which has no cluster to look into here.
"""

from __future__ import annotations

import base64
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from kapsa.adapters.manifests.manifest import Manifest, display_name
from kapsa.environments.ports import GeneratedValue
from kapsa.environments.render.generated_segments import Spans, random_spans, segments_in, with_segments

__all__ = [
    "ValueAddress",
    "generated_values",
    "has_generators",
    "kept_values",
    "random_names",
    "renewed_values",
    "settle",
    "value_at",
    "with_plain_data",
]

ValueAddress: TypeAlias = tuple[str, str, tuple[str | int, ...]]
"""The kind and the name of an object, and the path of a value in it."""
_SECRET = "v1/Secret"  # noqa: S105 - a kind

_GENERATORS = re.compile(
    rb"\b(rand(AlphaNum|Alpha|Numeric|Ascii|Bytes|Int)|uuidv4|gen(PrivateKey|CA|SelfSignedCert|SignedCert)\w*"
    rb"|htpasswd|bcrypt|encryptAES|shuffle|now)\b"
)
_LARGEST_FILE = 1024 * 1024
_DISTINCTIVE = 8
"""The length from which a random text is hardly anywhere by chance."""
_MOST_REPLACED = 200
"""The number of random texts that are looked for inside each other one."""


class _UnrecognizedError(Exception):
    """A deployed value whose random segments are not recognized."""


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
        GeneratedValue(*_identity(each), path, _spans(each, other, path))
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


def renewed_values(objects: Sequence[Manifest], generated: Sequence[GeneratedValue]) -> list[str]:
    """Return a warning for each generated value that no Secret has: each commit generates it again.

    Annotations are left out: a checksum is to change.
    """
    by_identity = {_identity(each): each for each in objects}
    texts = {
        each: _segments(_text(by_identity[each.kind, each.name], each.path), each.spans) for each in generated
    }
    kept = dict.fromkeys((text for each in generated if each.kind == _SECRET for text in texts[each]), "")
    return [
        f"{display_name(by_identity[each.kind, each.name])} has a generated value, {_dotted(each.path)}, that "
        "changes with each commit: to keep it, generate it in a Secret too"
        for each in generated
        if each.kind != _SECRET
        and "annotations" not in each.path
        and (not texts[each] or any(_replaced(text, kept) == text for text in texts[each]))
    ]


def kept_values(
    objects: Sequence[Manifest], generated: Sequence[GeneratedValue], deployed: Mapping[ValueAddress, Any]
) -> tuple[dict[ValueAddress, Any], list[str]]:
    """Return what generated values are to be instead, and warnings, from values that are deployed and stay.

    Of a deployed Secret only the random segments stay; the settings around them are those of the rendering.
    Where such a segment occurs in another generated value, it is the same there.
    """
    by_identity = {_identity(each): each for each in objects}
    kept: dict[ValueAddress, Any] = {}
    replacements: dict[str, str] = {}
    warnings: list[str] = []
    present = [each for each in generated if (each.kind, each.name) in by_identity]
    for each in present:
        live, manifest = deployed.get(each.address), by_identity[each.kind, each.name]
        if live is None:
            continue
        kept[each.address] = live
        if each.kind == _SECRET:
            try:
                kept[each.address] = _kept_secret(live, manifest, each, replacements)
            except _UnrecognizedError:
                warnings.append(
                    f"{display_name(manifest)} keeps {_dotted(each.path)} as it is deployed, since its generated "
                    "part cannot be recognized: generate that part in a key of its own"
                )
    for each in present:
        fresh = _text(by_identity[each.kind, each.name], each.path)
        if each.address not in kept and fresh is not None:
            spans = each.spans or ((0, len(fresh)),)
            segments = [_replaced(text, replacements) for text in _segments(fresh, spans)]
            kept[each.address] = _encoded(with_segments(fresh, spans, segments), each)
    return kept, warnings


def settle(
    objects: Sequence[Manifest], generated: Sequence[GeneratedValue], kept: Mapping[ValueAddress, Any]
) -> dict[ValueAddress, Any]:
    """Set each generated value to the one that is kept, if there is one. Return the values in use.

    The objects are changed in place.
    """
    by_identity = {_identity(each): each for each in objects}
    values: dict[ValueAddress, Any] = {}
    for each in generated:
        manifest = by_identity.get((each.kind, each.name))
        if manifest is None:
            continue
        chosen, fresh = kept.get(each.address), value_at(manifest, each.path)
        if isinstance(chosen, type(fresh)):
            _put(manifest, each.path, chosen)
        values[each.address] = value_at(manifest, each.path)
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


def _spans(one: Manifest, other: Manifest, path: tuple[str | int, ...]) -> Spans:
    first, second = _text(one, path), _text(other, path)
    return random_spans(first, second) if first is not None and second is not None else ()


def _text(manifest: Manifest, path: tuple[str | int, ...]) -> str | None:
    """Return the text at a path, decoded if it is a value of a Secret; None for any other value."""
    return _decoded(value_at(manifest, path), GeneratedValue(*_identity(manifest), path))


def _decoded(value: Any, generated: GeneratedValue) -> str | None:
    if not isinstance(value, str) or not _is_encoded(generated):
        return value if isinstance(value, str) else None
    try:
        return base64.b64decode(value, validate=True).decode()
    except ValueError:
        return None


def _encoded(text: str, generated: GeneratedValue) -> str:
    return base64.b64encode(text.encode()).decode() if _is_encoded(generated) else text


def _is_encoded(generated: GeneratedValue) -> bool:
    return generated.kind == _SECRET and generated.path[0] == "data"


def _segments(text: str | None, spans: Spans) -> list[str]:
    if text is None:
        return []
    return [text[start:end] for start, end in spans] if spans else [text]


def _kept_secret(
    live: Any, manifest: Manifest, generated: GeneratedValue, replacements: dict[str, str]
) -> Any:
    """Return a rendered value with the random segments of the deployed one. Add these to the replacements."""
    before, fresh, spans = _decoded(live, generated), _text(manifest, generated.path), generated.spans
    if before is None or fresh is None:
        return live
    segments = segments_in(before, fresh, spans) if spans else (before,)
    if segments is None:
        raise _UnrecognizedError
    replacements |= zip(_segments(fresh, spans), segments, strict=True)
    return _encoded(with_segments(fresh, spans, segments), generated) if spans else live


def _replaced(text: str, replacements: Mapping[str, str]) -> str:
    """Return a random segment with those of the Secrets replaced. A short one is not looked for inside."""
    if text in replacements:
        return replacements[text]
    for fresh, kept in itertools.islice(replacements.items(), _MOST_REPLACED):
        if len(fresh) >= _DISTINCTIVE:
            text = text.replace(fresh, kept)
    return text


def _dotted(path: Sequence[str | int]) -> str:
    return ".".join(map(str, path))


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
