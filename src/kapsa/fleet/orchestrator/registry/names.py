"""Rules for the names and labels in requests, which Kubernetes and Helm must accept too."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from kapsa.fleet.domain.errors import InvalidField, InvalidInput

__all__ = ["check_labels", "check_name", "check_values"]

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_KEY = re.compile(r"(?:[a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_VALUE = re.compile(r"(?:[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_MOST_LABELS = 64
_LARGEST_VALUES = 512 * 1024


def check_name(field: str, name: str, *, longest: int = 63) -> None:
    """Raise InvalidInput unless this is a name that Kubernetes accepts as a label."""
    if len(name) > longest or not _LABEL.fullmatch(name):
        message = (
            f"must be lower-case letters, digits and dashes, at most {longest}, "
            f"with a letter or digit at both ends, got {name[:80]!r}"
        )
        raise InvalidInput(f"{field} {message}", InvalidField(f"/{field}", message))


def check_labels(labels: Mapping[str, str]) -> None:
    """Raise InvalidInput unless these are labels as Kubernetes has them."""
    if len(labels) > _MOST_LABELS:
        raise _invalid("labels", f"has {len(labels)} entries, more than {_MOST_LABELS}")
    for key, value in labels.items():
        name = key.rpartition("/")[2]
        if len(key) > 316 or len(name) > 63 or not _KEY.fullmatch(key):
            raise _invalid("labels", f"has the key {key[:80]!r}, which is not a label key")
        if len(value) > 63 or not _VALUE.fullmatch(value):
            raise _invalid("labels", f"has the value {value[:80]!r} for {key}, which is not a label value")


def check_values(field: str, values: Mapping[str, Any]) -> None:
    """Raise InvalidInput if Helm values are too large."""
    size = len(msgspec.json.encode(values))
    if size > _LARGEST_VALUES:
        raise _invalid(field, f"is {size // 1024} KB; the limit is {_LARGEST_VALUES // 1024} KB")


def _invalid(field: str, message: str) -> InvalidInput:
    return InvalidInput(f"{field} {message}", InvalidField(f"/{field}", message))
