"""Validation rules that many kinds share: numbers, ports, labels, selectors, int-or-percent."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from kapsa.devcluster.embedded.kinds import names
from kapsa.schemas.field_errors import FieldError, invalid, not_supported, render_value, required

_PERCENT = re.compile(r"^[0-9]+%$")


class PrintedError(FieldError, frozen=True):
    """An error about a Go struct. Its message prints the value with the names and order of the Go fields."""

    shown: str = ""

    @property
    def message(self) -> str:
        plain = FieldError(self.reason, self.field, self.value, self.detail).message
        return plain.replace(render_value(self.value), self.shown, 1)


def printed(error: FieldError, *fields: tuple[str, Any]) -> FieldError:
    """Return the error with its value printed as a Go struct of these fields."""
    body = ",".join(f'"{name}":{json.dumps(value, separators=(",", ":"))}' for name, value in fields)
    return PrintedError(error.reason, error.field, error.value, error.detail, f"{{{body}}}")


def non_negative(value: Any, path: str) -> list[FieldError]:
    if value is None or not isinstance(value, int) or value >= 0:
        return []
    return [invalid(path, value, "must be greater than or equal to 0")]


def port_number(value: Any, path: str) -> list[FieldError]:
    if isinstance(value, int) and 1 <= value <= 65535:
        return []
    return [invalid(path, value or 0, "must be between 1 and 65535, inclusive")]


def port_name_problems(name: str) -> list[str]:
    problems = []
    if len(name) > 15:
        problems.append("must be no more than 15 characters")
    if not re.fullmatch(r"[a-z0-9-]+", name):
        problems.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search(r"[a-z]", name):
        problems.append("must contain at least one letter (a-z)")
    if "--" in name:
        problems.append("must not contain consecutive hyphens")
    if name.startswith("-") or name.endswith("-"):
        problems.append("must not begin or end with a hyphen")
    return problems


def port_name(name: str, path: str) -> list[FieldError]:
    return [invalid(path, name, problem) for problem in port_name_problems(name)]


def port_number_or_name(value: Any, path: str) -> list[FieldError]:
    return port_name(value, path) if isinstance(value, str) else port_number(value, path)


def dns_label(value: str, path: str) -> list[FieldError]:
    return [invalid(path, value, problem) for problem in names.dns1123_label(value)]


def dns_subdomain(value: str, path: str) -> list[FieldError]:
    return [invalid(path, value, problem) for problem in names.dns1123_subdomain(value)]


def one_of(value: Any, path: str, supported: tuple[str, ...]) -> list[FieldError]:
    if not value:
        return [required(path)]
    return [] if value in supported else [not_supported(path, value, sorted(supported))]


def labels(values: Mapping[str, str] | None, path: str) -> list[FieldError]:
    errors = []
    for key, value in (values or {}).items():
        errors += [invalid(path, key, problem) for problem in names.label_key(key)]
        errors += [invalid(path, value, problem) for problem in names.label_value(value)]
    return errors


def label_selector(selector: Mapping[str, Any], path: str) -> list[FieldError]:
    errors = labels(selector.get("matchLabels"), f"{path}.matchLabels")
    for index, expression in enumerate(selector.get("matchExpressions") or ()):
        errors += _requirement(expression, f"{path}.matchExpressions[{index}]")
    return errors


def _requirement(expression: Mapping[str, Any], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    operator, values = expression.get("operator"), expression.get("values") or []
    if operator in ("In", "NotIn"):
        if not values:
            errors.append(required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            errors.append(FieldError("FieldValueForbidden", f"{path}.values", "", detail))
    else:
        errors.append(invalid(f"{path}.operator", operator or "", "not a valid selector operator"))
    key = expression.get("key") or ""
    errors += [invalid(f"{path}.key", key, problem) for problem in names.label_key(key)]
    for index, value in enumerate(values):
        errors += [invalid(f"{path}.values[{index}]", value, problem) for problem in names.label_value(value)]
    return errors


def positive_int_or_percent(value: Any, path: str) -> list[FieldError]:
    if isinstance(value, str):
        if _PERCENT.match(value):
            return []
        detail = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
        return [invalid(path, value, detail)]
    return non_negative(value, path)


def int_or_percent(value: Any) -> int:
    """Return the number of an int-or-percent value, without the percent sign."""
    if isinstance(value, str):
        return int(value[:-1]) if _PERCENT.match(value) else 0
    return int(value or 0)


def at_most_all(value: Any, path: str) -> list[FieldError]:
    if isinstance(value, str) and _PERCENT.match(value) and int(value[:-1]) > 100:
        return [invalid(path, value, "must not be greater than 100%")]
    return []
