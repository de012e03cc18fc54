"""Field errors in the words of k8s.io/apimachinery, as `Status.details.causes` and messages carry them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from kapsa.schemas.go_format import format_float, marshal, quote

NOT_FOUND = "FieldValueNotFound"
REQUIRED = "FieldValueRequired"
DUPLICATE = "FieldValueDuplicate"
INVALID = "FieldValueInvalid"
NOT_SUPPORTED = "FieldValueNotSupported"
FORBIDDEN = "FieldValueForbidden"
TOO_LONG = "FieldValueTooLong"
TOO_MANY = "FieldValueTooMany"
INTERNAL = "InternalError"
TYPE_INVALID = "FieldValueTypeInvalid"

_TITLES = {
    NOT_FOUND: "Not found",
    REQUIRED: "Required value",
    DUPLICATE: "Duplicate value",
    INVALID: "Invalid value",
    NOT_SUPPORTED: "Unsupported value",
    FORBIDDEN: "Forbidden",
    TOO_LONG: "Too long",
    TOO_MANY: "Too many",
    INTERNAL: "Internal error",
    TYPE_INVALID: "Invalid value",
}
OMITTED: Any = type("Omitted", (), {"__repr__": lambda self: "<omitted>"})()
"""A placeholder for a value that is too large to show."""
_WITHOUT_VALUE = frozenset({REQUIRED, FORBIDDEN, TOO_LONG, INTERNAL})


class FieldError(msgspec.Struct, frozen=True):
    """An error of one field. `str()` returns the line that kube-apiserver prints."""

    reason: str
    field: str
    value: Any = ""
    detail: str = ""

    @property
    def message(self) -> str:
        """The error without its field: the `message` of a Status cause."""
        title = _TITLES[self.reason]
        if self.reason not in _WITHOUT_VALUE and self.value is not OMITTED:
            title = f"{title}: {render_value(self.value)}"
        return f"{title}: {self.detail}" if self.detail else title

    @property
    def cause(self) -> dict[str, str]:
        """The entry of `Status.details.causes`."""
        return {"reason": self.reason, "message": self.message, "field": self.field}

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def invalid(field: str, value: Any, detail: str) -> FieldError:
    return FieldError(INVALID, field, value, detail)


def required(field: str, detail: str = "") -> FieldError:
    return FieldError(REQUIRED, field, "", detail)


def forbidden(field: str, detail: str) -> FieldError:
    return FieldError(FORBIDDEN, field, "", detail)


def duplicate(field: str, value: Any) -> FieldError:
    return FieldError(DUPLICATE, field, value)


def not_supported(field: str, value: Any, supported: Iterable[str]) -> FieldError:
    names = [quote(name) for name in supported]
    return FieldError(NOT_SUPPORTED, field, value, "supported values: " + ", ".join(names) if names else "")


def too_long(field: str, maximum: int) -> FieldError:
    unit = "byte" if maximum == 1 else "bytes"
    return FieldError(TOO_LONG, field, "<value omitted>", f"may not be more than {maximum} {unit}")


def too_many(field: str, actual: int, maximum: int) -> FieldError:
    unit = "item" if maximum == 1 else "items"
    return FieldError(TOO_MANY, field, actual, f"must have at most {maximum} {unit}")


def aggregate(errors: Sequence[FieldError]) -> str:
    """Join errors into one message: a single one bare, several in brackets, each text once."""
    texts = list(dict.fromkeys(map(str, errors)))
    return texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"


def render_value(value: Any) -> str:
    """Format an invalid value as kube-apiserver does: scalars plain, strings quoted, the rest as JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, float):
        return format_float(value)
    if isinstance(value, int):
        return str(value)
    return marshal(value)
