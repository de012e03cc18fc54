"""Resource quantities (`100m`, `1Gi`): their value and their canonical form."""

from __future__ import annotations

import re
from decimal import Decimal

_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BY_EXPONENT = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_FORM = re.compile(r"^([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))([eE][+-]?[0-9]+|[KMGTPE]i|[numkMGTPE]?)$")

# Far beyond the largest quantity that Kubernetes stores, 2^63 - 1, and cheap to compute with.
_MAX_LENGTH = 1000
_MAX_EXPONENT = 1000

MESSAGE = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


def parse(text: str | int | float) -> Decimal:
    """Return the value of a quantity.

    Raises ValueError, with kube-apiserver's message, for anything else.
    """
    number, suffix = _split(text)
    if suffix in _BINARY:
        return number * _BINARY[suffix]
    if suffix in _DECIMAL:
        return number.scaleb(_DECIMAL[suffix])
    return number.scaleb(int(suffix[1:]))


def _split(text: str | int | float) -> tuple[Decimal, str]:
    text = str(text)
    match = _FORM.match(text) if len(text) <= _MAX_LENGTH else None
    if match is None:
        raise ValueError(MESSAGE)
    number, suffix = match.groups()
    if suffix[1:].lstrip("+-").isdigit() and abs(int(suffix[1:])) > _MAX_EXPONENT:
        raise ValueError(MESSAGE)
    return Decimal(number), suffix


def canonical(text: str | int | float) -> str:
    """Return the form that is stored: with the largest suffix of the same family that leaves no fraction."""
    _, suffix = _split(text)
    value = parse(text)
    # Nothing finer than a nano is stored: it is rounded away from zero, as kube-apiserver does.
    nanos = value.scaleb(9)
    if nanos != nanos.to_integral_value():
        value = (nanos.to_integral_value(rounding="ROUND_UP")).scaleb(-9)
    return _rendered(value, suffix)


def add(first: str, second: str) -> str:
    """Return the sum of two quantities, in the form of the first that is not zero."""
    number, suffix = _split(first)
    return _rendered(parse(first) + parse(second), suffix if number else _split(second)[1])


def subtract(first: str, second: str) -> str:
    """Return the difference of two quantities, in the form of the first."""
    return _rendered(parse(first) - parse(second), _split(first)[1])


def _rendered(value: Decimal, suffix: str) -> str:
    if suffix in _BINARY and value == value.to_integral_value() and abs(value) >= 1024:
        return _binary(int(value))
    return _decimal(value, exponent_form=suffix[:1] in ("e", "E") and suffix not in ("E", "Ei"))


def _binary(value: int) -> str:
    for suffix, size in reversed(_BINARY.items()):
        if value % size == 0:
            return f"{value // size}{suffix}"
    return str(value)


def _decimal(value: Decimal, *, exponent_form: bool) -> str:
    if not value:
        return "0"
    for exponent in sorted(_BY_EXPONENT, reverse=True):
        shifted = value.scaleb(-exponent)
        if shifted == shifted.to_integral_value():
            if exponent_form:
                return f"{int(shifted)}e{exponent}" if exponent else str(int(shifted))
            return f"{int(shifted)}{_BY_EXPONENT[exponent]}"
    return str(value)
