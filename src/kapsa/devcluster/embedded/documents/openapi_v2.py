"""OpenAPI version 2 from version 3, for clients that support nothing newer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["to_v2"]

Document = dict[str, Any]
_V3, _V2 = "#/components/schemas/", "#/definitions/"
_NOT_IN_V2 = ("oneOf", "anyOf", "not", "nullable")
_METHODS = ("get", "put", "post", "delete", "patch")


def to_v2(documents: Iterable[Document], info: Document) -> Document:
    """Join the documents of all group-versions in one swagger document."""
    paths: Document = {}
    schemas: Document = {}
    for document in documents:
        paths |= {path: _item(item) for path, item in document["paths"].items()}
        for name, schema in document["components"]["schemas"].items():
            if name not in schemas:
                schemas[name] = _schema(schema)
    return {"swagger": "2.0", "info": info, "paths": paths, "definitions": dict(sorted(schemas.items()))}


def _item(item: Document) -> Document:
    operations = {method: _operation(item[method]) for method in _METHODS if method in item}
    return {**operations, "parameters": [_parameter(parameter) for parameter in item.get("parameters", ())]}


def _operation(operation: Document) -> Document:
    converted = {key: value for key, value in operation.items() if key not in ("requestBody", "responses")}
    parameters = [_parameter(parameter) for parameter in operation.get("parameters", ())]
    body = operation.get("requestBody")
    if body is not None:
        content = body["content"]
        schema = _schema(next(iter(content.values()))["schema"])
        parameters.insert(
            0, {"name": "body", "in": "body", "required": body.get("required", False), "schema": schema}
        )
        converted["consumes"] = list(content)
    converted["parameters"] = parameters
    converted["produces"] = ["application/json", "application/yaml"]
    converted["responses"] = {code: _response(response) for code, response in operation["responses"].items()}
    return converted


def _response(response: Document) -> Document:
    converted = {"description": response["description"]}
    content = response.get("content")
    if content is None:
        return converted
    return {**converted, "schema": _schema(next(iter(content.values()))["schema"])}


def _parameter(parameter: Document) -> Document:
    rest = {key: value for key, value in parameter.items() if key != "schema"}
    return {**rest, **parameter["schema"]}


def _schema(schema: Document) -> Document:
    """Convert one node: rename references, drop keys that version 2 does not have, unwrap a lone allOf."""
    converted = {key: value for key, value in schema.items() if key not in _NOT_IN_V2}
    wrapped = converted.pop("allOf", None)
    if wrapped is not None and len(wrapped) == 1 and "$ref" in wrapped[0]:
        converted.pop("default", None)
        converted |= wrapped[0]
    if "oneOf" in schema and "type" not in converted:
        converted["type"] = "string"
    if "$ref" in converted:
        converted["$ref"] = _V2 + converted["$ref"].removeprefix(_V3)
    if "properties" in converted:
        converted["properties"] = {name: _schema(child) for name, child in converted["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(converted.get(key), dict):
            converted[key] = _schema(converted[key])
    return converted
