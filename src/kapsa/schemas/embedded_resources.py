"""Resources inside resources (`x-kubernetes-embedded-resource`): their type and object metadata."""

from __future__ import annotations

import re
from typing import Any
from weakref import WeakKeyDictionary

from kapsa.schemas import field_errors
from kapsa.schemas.field_errors import FieldError
from kapsa.schemas.schema import Schema, walk

_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_DNS_1035_TEXT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    "character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for "
    "validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DNS_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and "
    "end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)

_has_embedded: WeakKeyDictionary[Schema, bool] = WeakKeyDictionary()


def validate_embedded(schema: Schema, obj: dict[str, Any], path: str = "") -> list[FieldError]:
    """Validate the embedded resources in `obj`, whose own path is `path`."""
    has_embedded = _has_embedded.get(schema)
    if has_embedded is None:
        _has_embedded[schema] = has_embedded = any(node.embedded_resource for node in walk(schema))
    errors: list[FieldError] = []
    if has_embedded:
        _walk(schema, obj, path, errors)
    return errors


def _walk(schema: Schema, value: Any, path: str, errors: list[FieldError]) -> None:
    if isinstance(value, dict):
        if schema.embedded_resource:
            _check_resource(value, path, errors)
        for key, item in value.items():
            child = schema.properties.get(key)
            if child is not None:
                _walk(child, item, _child(path, key), errors)
            elif schema.additional is not None:
                _walk(schema.additional, item, f"{path}[{key}]", errors)
    elif isinstance(value, list) and schema.items is not None:
        for index, item in enumerate(value):
            _walk(schema.items, item, f"{path}[{index}]", errors)


def _child(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _check_resource(value: dict[str, Any], path: str, errors: list[FieldError]) -> None:
    for key in ("apiVersion", "kind"):
        name = _child(path, key)
        if key not in value:
            errors.append(field_errors.required(name))
        elif not isinstance(value[key], str):
            errors.append(field_errors.invalid(name, value[key], "must be a string"))
        elif not value[key]:
            errors.append(field_errors.invalid(name, value[key], "must not be empty"))
    api_version, kind, metadata = value.get("apiVersion"), value.get("kind"), value.get("metadata")
    if isinstance(api_version, str) and api_version.count("/") > 1:
        text = f"unexpected GroupVersion string: {api_version}"
        errors.append(field_errors.invalid(_child(path, "apiVersion"), api_version, text))
    if isinstance(kind, str) and kind and _DNS_1035.fullmatch(kind.lower()) is None:
        text = f"may have mixed case, but should otherwise match: {_DNS_1035_TEXT}"
        errors.append(field_errors.invalid(_child(path, "kind"), kind, text))
    if isinstance(metadata, dict):
        _check_metadata(metadata, _child(path, "metadata"), errors)


def _check_metadata(metadata: dict[str, Any], path: str, errors: list[FieldError]) -> None:
    name, namespace = metadata.get("name"), metadata.get("namespace")
    if isinstance(name, str):
        errors += [field_errors.invalid(f"{path}.name", name, text) for text in _path_segment_faults(name)]
    if isinstance(namespace, str) and namespace and _DNS_LABEL.fullmatch(namespace) is None:
        errors.append(field_errors.invalid(f"{path}.namespace", namespace, _DNS_LABEL_TEXT))


def _path_segment_faults(name: str) -> list[str]:
    if name in (".", ".."):
        return [f"may not be '{name}'"]
    return [f"may not contain '{part}'" for part in ("/", "%") if part in name]
