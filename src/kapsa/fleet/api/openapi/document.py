"""The OpenAPI document, made from the routes: their signatures, their rules in `opt`, and the examples.

Schemas are msgspec's own, which decodes the bodies: the document and the decoder cannot disagree.
"""

import inspect
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from litestar import Response
from litestar.handlers import HTTPRouteHandler
from litestar.routes import HTTPRoute
from litestar.types import Empty

from kapsa import __version__
from kapsa.fleet.api.access import RouteAccess, access_of
from kapsa.fleet.api.middleware.idempotency import IDEMPOTENCY_HEADER
from kapsa.fleet.api.openapi.examples import example_of
from kapsa.fleet.api.problems import PROBLEM_RESPONSES, PROBLEM_TYPE, Problem
from kapsa.fleet.api.route_parameters import parameter_fields

__all__ = ["build_document", "response_type"]

_REFERENCE = "#/components/schemas/{name}"
_DESCRIPTION = (
    "Rolls operators (Helm charts with CRDs) out over many clusters. Errors are problem documents (RFC 9457), "
    "durations are ISO 8601, lists are paged with cursors, and every POST accepts an `Idempotency-Key`. "
    "No text may have the character U+0000."
)
_LIMITS = {
    "ge": "minimum",
    "le": "maximum",
    "min_length": "minLength",
    "max_length": "maxLength",
    "pattern": "pattern",
}


def build_document(routes: Iterable[Any]) -> dict[str, Any]:
    """Return the document of an application with these routes."""
    operations = list(_operations(routes))
    schemas, components = _schemas(operations)
    paths: dict[str, dict[str, Any]] = {}
    for path, method, handler, rules in operations:
        operation = _operation(path, method, handler, rules, schemas)
        paths.setdefault(path, {})[method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "Kapsa fleet manager", "version": __version__, "description": _DESCRIPTION},
        "servers": [{"url": "/"}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": components,
            "responses": {str(status): _problem(status, schemas) for status in PROBLEM_RESPONSES},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
            },
        },
    }


def response_type(handler: HTTPRouteHandler) -> Any:
    """Return the type of the body of a route's response; None if it has none that a schema describes."""
    annotation = handler.parsed_fn_signature.return_type.annotation
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        annotation = typing.get_args(annotation)[0]  # the other one is a stream
    if typing.get_origin(annotation) is Response:
        annotation = typing.get_args(annotation)[0]
    return None if annotation in (None, type(None), bytes, str) else annotation


Operation = tuple[str, str, HTTPRouteHandler, RouteAccess]


def _operations(routes: Iterable[Any]) -> Iterator[Operation]:
    for route in routes:
        if not isinstance(route, HTTPRoute):
            continue
        for method, (handler, _) in sorted(route.route_handler_map.items()):
            rules = access_of(handler.opt)
            if rules is not None and handler.resolve_include_in_schema():
                yield route.path_format, method, handler, rules


def _schemas(operations: list[Operation]) -> tuple[Mapping[Any, Any], dict[str, Any]]:
    kinds: list[Any] = [Problem]
    for _, _, handler, _ in operations:
        for kind in (_body_type(handler), response_type(handler)):
            if kind is not None and kind not in kinds:
                kinds.append(kind)
        kinds += [
            field.annotation for _, _, field in parameter_fields(handler) if field.annotation not in kinds
        ]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
    return dict(zip((_key(kind) for kind in kinds), schemas, strict=True)), components


def _key(kind: Any) -> str:
    return repr(kind)


def _body_type(handler: HTTPRouteHandler) -> Any:
    field = handler.parsed_data_field
    return None if field is None else field.annotation


def _operation(
    path: str, method: str, handler: HTTPRouteHandler, rules: RouteAccess, schemas: Mapping[Any, Any]
) -> dict[str, Any]:
    summary, description = _texts(handler)
    operation: dict[str, Any] = {
        "operationId": handler.operation_id or handler.handler_name,
        "summary": summary,
        "description": description,
        "tags": [_tag(path)],
        "x-kapsa-roles": sorted(rules.roles),
        "x-kapsa-audit": rules.audit.value,
        "security": [{"bearer": []}] if rules.authenticated else [],
        "parameters": list(_parameters(method, handler, rules, schemas)),
        "responses": _responses(path, method, handler, rules, schemas),
    }
    if rules.rate_limit is not None:
        limit = rules.rate_limit
        operation["x-kapsa-rate-limit"] = {
            "requests": limit.requests,
            "seconds": limit.period.total_seconds(),
            "class": limit.name,
        }
    if (body := _body_type(handler)) is not None:
        content = {"schema": schemas[_key(body)], **_example(body)}
        operation["requestBody"] = {"required": True, "content": {"application/json": content}}
    return operation


def _texts(handler: HTTPRouteHandler) -> tuple[str, str]:
    text = inspect.getdoc(handler.fn) or ""
    return text.split("\n")[0].removesuffix("."), " ".join(text.split())


def _tag(path: str) -> str:
    parts = [part for part in path.split("/") if part]
    return parts[2] if parts[:2] == ["api", "v1"] and len(parts) > 2 else "manager"


def _parameters(
    method: str, handler: HTTPRouteHandler, rules: RouteAccess, schemas: Mapping[Any, Any]
) -> Iterator[dict[str, Any]]:
    for name, definition, field in parameter_fields(handler):
        limits = {key: getattr(definition, key) for key in _LIMITS if getattr(definition, key) is not None}
        schema = {**_without_null(schemas[_key(field.annotation)])}
        schema |= {_LIMITS[key]: value for key, value in limits.items()} | (definition.schema_extra or {})
        if field.default not in (Empty, None, inspect.Parameter.empty):
            schema["default"] = msgspec.to_builtins(field.default)
        location = definition.param_type.value
        yield {
            "name": name,
            "in": location,
            "required": location == "path" or field.is_required,
            "schema": schema,
            "description": definition.description or "",
        }
    if method == "POST" and rules.authenticated:
        yield {
            "name": IDEMPOTENCY_HEADER,
            "in": "header",
            "required": False,
            "schema": {"type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[ -~]+$"},
            "description": "The same key with the same request has one effect and one response, for a day.",
        }


def _without_null(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of a parameter that may be left out: it cannot be null."""
    options = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    return options[0] if len(options) == 1 else schema


def _responses(
    path: str, method: str, handler: HTTPRouteHandler, rules: RouteAccess, schemas: Mapping[Any, Any]
) -> dict[str, Any]:
    success: dict[str, Any] = {"description": "Success."}
    kind = response_type(handler)
    stream = handler.opt.get("stream")
    if kind is not None:
        success["content"] = {"application/json": {"schema": schemas[_key(kind)], **_example(kind)}}
    elif media := handler.opt.get("media_type"):
        success["content"] = {media: {"schema": {"type": "string"}}}
    if stream:
        success.setdefault("content", {})[stream] = {"schema": {"type": "string"}}
    if handler.opt.get("etag"):
        success["headers"] = {
            "ETag": {"description": "The version of the object.", "schema": {"type": "string"}}
        }
    responses = {str(handler.status_code): success}
    for status in sorted(_error_statuses(path, method, handler, rules)):
        responses[str(status)] = {"$ref": f"#/components/responses/{status}"}
    return responses


def _error_statuses(path: str, method: str, handler: HTTPRouteHandler, rules: RouteAccess) -> set[int]:
    statuses = {400, 500, *handler.opt.get("statuses", ())}
    if rules.authenticated:
        statuses |= {401, 403}
    if "{" in path:
        statuses.add(404)
    if rules.rate_limit is not None:
        statuses.add(429)
    if method != "GET":
        statuses |= {409}
    if method == "POST":
        statuses |= {413, 422}
    if handler.parsed_data_field is not None:
        statuses |= {413, 415}
    if any(name == "If-Match" for name, _, _ in parameter_fields(handler)):
        statuses.add(412)
    return statuses


def _problem(status: int, schemas: Mapping[Any, Any]) -> dict[str, Any]:
    example = example_of(Problem)
    response: dict[str, Any] = {
        "description": PROBLEM_RESPONSES[status],
        "content": {
            PROBLEM_TYPE: {
                "schema": schemas[_key(Problem)],
                "example": {**example, "status": status, "detail": PROBLEM_RESPONSES[status]},
            }
        },
    }
    if status == 429:
        response["headers"] = {
            "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "string"}, "required": True}
        }
    if status == 401:
        response["headers"] = {
            "WWW-Authenticate": {
                "description": "The challenge.",
                "schema": {"type": "string"},
                "required": True,
            }
        }
    return response


def _example(kind: Any) -> dict[str, Any]:
    return {"example": example_of(kind)}
