"""The parameters of a route, read from the signature of its handler."""

import functools
from collections.abc import Iterator, Mapping
from typing import Any

from litestar.handlers import HTTPRouteHandler
from litestar.params import ParameterKwarg
from litestar.typing import FieldDefinition

__all__ = ["parameter_fields", "query_parameters"]


def parameter_fields(handler: HTTPRouteHandler) -> Iterator[tuple[str, ParameterKwarg, FieldDefinition]]:
    """Yield the name, the definition and the field of each declared parameter."""
    for field in handler.parsed_fn_signature.parameters.values():
        definition: Any = field.kwarg_definition
        if isinstance(definition, ParameterKwarg):
            yield definition.name or field.name, definition, field


@functools.cache
def query_parameters(handler: HTTPRouteHandler) -> Mapping[str, bool]:
    """Return the query parameters of a route, each with whether it is optional and not a text."""
    return {
        name: field.is_optional
        for name, definition, field in parameter_fields(handler)
        if definition.param_type.value == "query"
    }
