"""The Pod Security levels that the labels of a namespace set for enforcement, audit and warnings."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from kapsa.schemas import field_errors
from kapsa.schemas.field_errors import FieldError

__all__ = ["LATEST", "Level", "NamespacePolicy", "policy_of"]

LATEST = 1 << 30
"""The minor version that `latest` stands for."""

_STRICTNESS = {"privileged": 0, "baseline": 1, "restricted": 2}
_PREFIX = "pod-security.kubernetes.io/"
_VERSION = re.compile(r"v1\.([0-9]|[1-9][0-9]*)")


class Level(msgspec.Struct, frozen=True):
    """A level in a version of the Pod Security Standards."""

    name: str = "privileged"
    minor: int = LATEST

    def __str__(self) -> str:
        return f"{self.name}:{'latest' if self.minor == LATEST else f'v1.{self.minor}'}"

    @property
    def is_privileged(self) -> bool:
        """True if the level allows everything."""
        return self.name == "privileged"

    def is_stricter_than(self, other: Level) -> bool:
        """Return whether this level allows less than another one."""
        return _STRICTNESS[self.name] > _STRICTNESS[other.name]


class NamespacePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The levels of a namespace."""

    enforce: Level = Level()
    audit: Level = Level()
    warn: Level = Level()

    @property
    def is_privileged(self) -> bool:
        """True if nothing is forbidden, audited or warned about."""
        return self.enforce.is_privileged and self.audit.is_privileged and self.warn.is_privileged


def policy_of(labels: Mapping[str, str]) -> tuple[NamespacePolicy, list[FieldError]]:
    """Return the policy of a namespace with these labels, and the errors in them.

    An unreadable level is enforced as the strictest one, and neither audited nor warned about.
    """
    problems: list[FieldError] = []
    enforce = _level(labels, "enforce", "restricted", problems)
    audit = _level(labels, "audit", "privileged", problems)
    warn = _level(labels, "warn", "privileged", problems)
    set_by_level = labels.get(f"{_PREFIX}enforce") in _STRICTNESS
    if f"{_PREFIX}warn" not in labels and set_by_level and enforce.is_stricter_than(warn):
        minor = warn.minor if f"{_PREFIX}warn-version" in labels else enforce.minor
        warn = Level(enforce.name, minor)
    return NamespacePolicy(enforce=enforce, audit=audit, warn=warn), problems


def _level(labels: Mapping[str, str], mode: str, fallback: str, problems: list[FieldError]) -> Level:
    name, version = labels.get(f"{_PREFIX}{mode}"), labels.get(f"{_PREFIX}{mode}-version")
    level = "privileged" if name is None else name
    if level not in _STRICTNESS:
        level = fallback
        problems.append(_invalid(mode, name or "", "must be one of privileged, baseline, restricted"))
    minor = LATEST
    if version is not None and version != "latest":
        match = _VERSION.fullmatch(version)
        if match is None:
            problems.append(_invalid(f"{mode}-version", version, 'must be "latest" or "v1.x"'))
        else:
            minor = int(match[1])
    return Level(level, minor)


def _invalid(label: str, value: str, detail: str) -> FieldError:
    return field_errors.invalid(f"metadata.labels[{_PREFIX}{label}]", value, detail)
