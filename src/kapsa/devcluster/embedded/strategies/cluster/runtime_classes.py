"""RuntimeClasses: validation."""

from __future__ import annotations

from typing import Any, ClassVar

from kapsa.devcluster.embedded.strategies.generic import rules
from kapsa.devcluster.embedded.strategies.generic.builtin import CheckedStrategy, Object
from kapsa.devcluster.embedded.strategies.generic.checks import LABEL, fields, given, present
from kapsa.devcluster.embedded.strategies.pods.containers import validate_resources
from kapsa.devcluster.embedded.strategies.pods.scheduling import validate_toleration
from kapsa.schemas.field_errors import FieldError, duplicate
from kapsa.schemas.go_format import GoStruct

__all__ = ["RuntimeClassStrategy"]

_IDENTITY = ("key", "operator", "value", "effect")


def _overhead(overhead: Object, path: str) -> list[FieldError]:
    return validate_resources({"limits": overhead.get("podFixed")}, path)


def _tolerations(tolerations: list[Object] | None, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: list[tuple[Any, ...]] = []
    for index, toleration in enumerate(tolerations or ()):
        where = f"{path}[{index}]"
        errors += validate_toleration(toleration, where)
        key = tuple(toleration.get(field) or "" for field in _IDENTITY)
        if key in seen:
            shown = GoStruct({field.capitalize(): value for field, value in zip(_IDENTITY, key, strict=True)})
            shown["TolerationSeconds"] = toleration.get("tolerationSeconds")
            errors.append(duplicate(where, shown))
        seen.append(key)
    return errors


class RuntimeClassStrategy(CheckedStrategy):
    """Strategy of the runtimes that pods may select."""

    checks: ClassVar = {
        "handler": present(LABEL),
        "overhead": given(_overhead),
        "scheduling": given(fields(nodeSelector=rules.labels, tolerations=_tolerations)),
    }
    fixed = ("handler",)
