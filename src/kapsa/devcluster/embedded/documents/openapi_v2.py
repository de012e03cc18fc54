"""OpenAPI version 2 from version 3: for clients that know nothing newer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["to_v2"]

Document = dict[str, Any]
_V3, _V2 = "#/components/schemas/", "#/definitions/"
_NOT_IN_V2 = ("oneOf", "anyOf", "not", "nullable")
_METHODS = ("get", "put", "post", "delete", "patch")


def to_v2(documents: Iterable[Document], info: Document) -> Document:
    """All group-versions in one swagger document."""
    paths: Document = {}
    schemas: Document = {}
    for document in documents:
        paths |= {path: _item(item) for path, item in document["paths"].items()}
        for name, schema in document["components"]["schemas"].items():
            if name not in schemas:
                schemas[name] = _schema(schema)
    return {"swagger": "2.0", "info": info, "paths": paths, "definitions": dict(sorted(schemas.items()))}


def _item(item: Document) -> Document:
    found = {method: _operation(item[method]) for method in _METHODS if method in item}
    return {**found, "parameters": [_parameter(parameter) for parameter in item.get("parameters", ())]}


def _operation(operation: Document) -> Document:
    found = {key: value for key, value in operation.items() if key not in ("requestBody", "responses")}
    parameters = [_parameter(parameter) for parameter in operation.get("parameters", ())]
    body = operation.get("requestBody")
    if body is not None:
        content = body["content"]
        schema = _schema(next(iter(content.values()))["schema"])
        parameters.insert(
            0, {"name": "body", "in": "body", "required": body.get("required", False), "schema": schema}
        )
        found["consumes"] = list(content)
    found["parameters"] = parameters
    found["produces"] = ["application/json", "application/yaml"]
    found["responses"] = {code: _response(response) for code, response in operation["responses"].items()}
    return found


def _response(response: Document) -> Document:
    found = {"description": response["description"]}
    content = response.get("content")
    return found if content is None else {**found, "schema": _schema(next(iter(content.values()))["schema"])}


def _parameter(parameter: Document) -> Document:
    found = {key: value for key, value in parameter.items() if key != "schema"}
    return {**found, **parameter["schema"]}


def _schema(schema: Document) -> Document:
    """One node: references renamed, what version 2 does not know left out, a lone allOf unwrapped."""
    found = {key: value for key, value in schema.items() if key not in _NOT_IN_V2}
    wrapped = found.pop("allOf", None)
    if wrapped is not None and len(wrapped) == 1 and "$ref" in wrapped[0]:
        found.pop("default", None)
        found |= wrapped[0]
    if "oneOf" in schema and "type" not in found:
        found["type"] = "string"
    if "$ref" in found:
        found["$ref"] = _V2 + found["$ref"].removeprefix(_V3)
    if "properties" in found:
        found["properties"] = {name: _schema(child) for name, child in found["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(found.get(key), dict):
            found[key] = _schema(found[key])
    return found
