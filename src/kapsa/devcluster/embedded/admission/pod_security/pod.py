"""A pod as the Pod Security checks read it, and the words of their violations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

__all__ = ["SecuredPod", "Violation", "containers_named", "plural", "quoted"]

Object = dict[str, Any]


class Violation(msgspec.Struct, frozen=True):
    """One forbidden property of a pod."""

    reason: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.reason} ({self.detail})" if self.detail else self.reason


class SecuredPod:
    """The security contexts of a pod and of its containers."""

    def __init__(self, metadata: Object, spec: Object) -> None:
        self.annotations: dict[str, str] = metadata.get("annotations") or {}
        self.spec = spec
        self.context: Object = spec.get("securityContext") or {}
        self.containers: list[tuple[str, Object, Object]] = [
            (container.get("name", ""), container, container.get("securityContext") or {})
            for field in ("initContainers", "containers", "ephemeralContainers")
            for container in spec.get(field) or ()
        ]
        """The name of each container, the container, and its security context."""

    @property
    def is_windows(self) -> bool:
        """True if the pod declares that it runs on Windows."""
        return (self.spec.get("os") or {}).get("name") == "windows"

    @property
    def has_own_users(self) -> bool:
        """True if the pod runs in a user namespace."""
        return self.spec.get("hostUsers") is False

    def names(self, violates: Callable[[Object], bool]) -> list[str]:
        """Return the names of the containers whose security context violates a rule."""
        return [name for name, _, context in self.containers if violates(context)]

    def setters(self, violates: Callable[[Object], bool]) -> list[str]:
        """Return what violates a rule explicitly: the pod, and its containers by name."""
        pod = ["pod"] if violates(self.context) else []
        names = self.names(violates)
        return [*pod, *([containers_named(names)] if names else [])]


def containers_named(names: list[str]) -> str:
    """Return `container "a"` or `containers "a", "b"`."""
    return f"{plural('container', names)} {quoted(names)}"


def plural(word: str, items: list[str]) -> str:
    """Return the word in the singular or the plural, by the number of items."""
    return word if len(items) == 1 else f"{word}s"


def quoted(items: Iterable[str]) -> str:
    """Return the items in quotes, separated by commas."""
    return ", ".join(f'"{item}"' for item in items)
