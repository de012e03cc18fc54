"""A vocabulary of checks: functions of a value and its path, which tables of fields combine.

A check returns the errors of a value, which is None if the field is absent. `given` and `filled` skip absent
values as kube-apiserver skips nil pointers and zero values; without either, a check sees the zero value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from kapsa.devcluster.embedded.kinds import names
from kapsa.schemas.field_errors import FieldError, duplicate, invalid, not_supported, required, too_many

__all__ = [
    "LABEL",
    "LABEL_KEY",
    "LABEL_VALUE",
    "SEGMENT",
    "SUBDOMAIN",
    "Check",
    "absolute_path",
    "at_least",
    "at_most",
    "between",
    "child",
    "domain_prefixed_path",
    "each",
    "every",
    "fields",
    "filled",
    "given",
    "needed",
    "no_backsteps",
    "one_of",
    "present",
    "problems",
    "relative_path",
    "unique",
]

Check = Callable[[Any, str], list[FieldError]]
"""Takes a value and its path; returns the errors."""

_LARGEST_INT = 2**31 - 1
_URL_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"


def child(path: str, field: str) -> str:
    """Return the path of a field in the object at a path, which is empty for the whole object."""
    return f"{path}.{field}" if path else field


def fields(**checks: Check) -> Check:
    """Return a check of an object by its fields, in this order. An absent object has no fields."""

    def check(value: Any, path: str) -> list[FieldError]:
        obj = value or {}
        errors: list[FieldError] = []
        for name, one in checks.items():
            errors += one(obj.get(name), child(path, name))
        return errors

    return check


def every(*checks: Check) -> Check:
    """Return a check that makes all of these."""

    def check(value: Any, path: str) -> list[FieldError]:
        return [error for one in checks for error in one(value, path)]

    return check


def each(*checks: Check) -> Check:
    """Return a check of each item of a list."""
    one = every(*checks)

    def check(value: Any, path: str) -> list[FieldError]:
        return [error for index, item in enumerate(value or ()) for error in one(item, f"{path}[{index}]")]

    return check


def given(*checks: Check) -> Check:
    """Return a check that skips an absent value, as kube-apiserver does for a pointer."""
    one = every(*checks)
    return lambda value, path: [] if value is None else one(value, path)


def filled(*checks: Check) -> Check:
    """Return a check that skips an absent or empty value."""
    one = every(*checks)
    return lambda value, path: one(value, path) if value else []


def present(*checks: Check, detail: str = "") -> Check:
    """Return a check that an absent or empty value fails, and that makes these checks of another."""
    one = every(*checks)
    return lambda value, path: one(value, path) if value else [required(path, detail)]


def needed(*names: str) -> Check:
    """Return a check that these fields of an object are not empty."""
    return fields(**dict.fromkeys(names, present()))


def one_of(*supported: str) -> Check:
    """Return a check that a value is one of these."""

    def check(value: Any, path: str) -> list[FieldError]:
        return [] if value in supported else [not_supported(path, value or "", supported)]

    return check


def problems(find: Callable[[str], Iterable[str]]) -> Check:
    """Return a check by a function that lists the problems of a text."""
    return lambda value, path: [invalid(path, value or "", problem) for problem in find(value or "")]


def between(low: int, high: int = _LARGEST_INT, detail: str = "") -> Check:
    """Return a check that a number is in a range, both ends included."""
    text = detail or f"must be between {low} and {high}, inclusive"
    return lambda value, path: [] if low <= (value or 0) <= high else [invalid(path, value or 0, text)]


def at_least(low: int, detail: str = "") -> Check:
    """Return a check that a number is not below a bound."""
    text = detail or ("must be greater than zero" if low == 1 else f"must be greater than or equal to {low}")
    return lambda value, path: [] if (value or 0) >= low else [invalid(path, value or 0, text)]


def at_most(count: int, *checks: Check) -> Check:
    """Return a check that a list is not longer than this, and that makes these checks of one that is not."""
    one = every(*checks)

    def check(value: Any, path: str) -> list[FieldError]:
        length = len(value or ())
        return [too_many(path, length, count)] if length > count else one(value, path)

    return check


def unique(key: str = "", *, field: str | None = None) -> Check:
    """Return a check that no item of a list, or its field `key`, occurs twice. Empty values do not count.

    The error is reported at the item's `field`, which is `key` unless given.
    """
    where = key if field is None else field

    def check(value: Any, path: str) -> list[FieldError]:
        errors: list[FieldError] = []
        seen: set[Any] = set()
        for index, item in enumerate(value or ()):
            mark = (item or {}).get(key) if key else item
            if mark and mark in seen:
                errors.append(
                    duplicate(child(f"{path}[{index}]", where) if where else f"{path}[{index}]", mark)
                )
            seen.add(mark)
        return errors

    return check


def relative_path(value: Any, path: str) -> list[FieldError]:
    """Return the errors in a path of files that must be relative and must not leave its root."""
    target = value or ""
    rooted = [invalid(path, target, "must be a relative path")] if target.startswith("/") else []
    return rooted + no_backsteps(target, path)


def no_backsteps(value: Any, path: str) -> list[FieldError]:
    """Return the error of a path of files with a part `..`."""
    return [invalid(path, value, "must not contain '..'")] if ".." in (value or "").split("/") else []


def absolute_path(value: Any, path: str) -> list[FieldError]:
    """Return the error of a path of files that does not start at the root."""
    return [] if (value or "").startswith("/") else [invalid(path, value or "", "must be an absolute path")]


def domain_prefixed_path(value: Any, path: str) -> list[FieldError]:
    """Return the errors in a name such as `acme.io/foo`."""
    name = value or ""
    if not name:
        return [required(path)]
    domain, _, rest = name.partition("/")
    if not domain or not rest:
        return [invalid(path, name, 'must be a domain-prefixed path (such as "acme.io/foo")')]
    errors = [invalid(path, domain, problem) for problem in names.dns1123_subdomain(domain)]
    if not re.fullmatch(_URL_PATH, rest):
        errors.append(invalid(path, rest, f"Invalid path (regex used for validation is '{_URL_PATH}')"))
    return errors


SEGMENT = problems(names.path_segment)
LABEL = problems(names.dns1123_label)
SUBDOMAIN = problems(names.dns1123_subdomain)
LABEL_KEY = problems(names.label_key)
LABEL_VALUE = problems(names.label_value)
