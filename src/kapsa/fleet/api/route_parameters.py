"""The parameters of a route, read from the signature of its handler."""

import functools
from collections.abc import Iterator
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
def query_parameters(handler: HTTPRouteHandler) -> frozenset[str]:
    """Return the names of the query parameters of a route."""
    return frozenset(
        name for name, definition, _ in parameter_fields(handler) if definition.param_type.value == "query"
    )
