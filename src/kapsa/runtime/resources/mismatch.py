"""Stored resources that do not fit their model, reported with the path of the field."""

from __future__ import annotations

import re

import msgspec

__all__ = ["ModelMismatch", "mismatch"]

_MISSING = re.compile(r"Object missing required field `([^`]*)`")
_PATH = re.compile(r" - at `\$([^`]*)`$")


class ModelMismatch(ValueError):  # noqa: N818 - a noun, like the errors in errors.py
    """A stored resource does not fit its class, for instance because an older schema accepted it."""

    def __init__(self, resource: str, field: str, problem: str) -> None:
        super().__init__(
            f"{resource} does not fit its model: {field}: {problem}. "
            "Correct the stored resource, or make the model accept what older versions stored."
        )
        self.resource = resource
        """Kind, namespace and name."""
        self.field = field
        """The path of the field, such as spec.backup.schedule."""
        self.problem = problem


def mismatch(resource: str, part: str, error: msgspec.ValidationError) -> ModelMismatch:
    """Return the error for msgspec's error, whose path starts at the decoded part of the resource."""
    problem = str(error)
    path = part
    if match := _PATH.search(problem):
        problem = problem[: match.start()]
        path = (part + match[1]).lstrip(".")
    if missing := _MISSING.match(problem):
        path, problem = f"{path}.{missing[1]}".lstrip("."), "required, but missing"
    return ModelMismatch(resource, path, problem)
