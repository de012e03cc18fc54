"""The texts in the values of a chart, which helm quotes in its errors and which may be secret."""

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["texts_in"]


def texts_in(values: Any) -> Iterator[str]:
    """Yield each text in values, at any depth."""
    if isinstance(values, Mapping):
        for value in values.values():
            yield from texts_in(value)
    elif isinstance(values, list):
        for value in values:
            yield from texts_in(value)
    elif isinstance(values, str):
        yield values
