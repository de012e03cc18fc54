"""Asks the API server, at start, whether this process has the rights it declares, and names each one it lacks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec

from kapsa.runtime.client.client import Client
from kapsa.runtime.generate.rbac import Grant

__all__ = ["MissingRule", "missing_rules"]

_AT_A_TIME = 8
_ANY_NAME = ("",)


class MissingRule(msgspec.Struct, frozen=True):
    """A right that was declared and not granted, as the rule that would grant it."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    namespace: str | None
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        rule = f'{{apiGroups: ["{self.group}"], resources: ["{self.resource}"], verbs: {_yaml(self.verbs)}'
        if self.names:
            rule += f", resourceNames: {_yaml(self.names)}"
        where = "a ClusterRole" if self.namespace is None else f"a Role in namespace {self.namespace}"
        return f"{rule}}} in {where}"


def _yaml(values: Iterable[str]) -> str:
    return "[" + ", ".join(f'"{value}"' for value in values) + "]"


async def missing_rules(client: Client, grants: Iterable[Grant]) -> list[MissingRule]:
    """What is declared and not granted. Raises ClientError if the server cannot be asked."""
    limit = asyncio.Semaphore(_AT_A_TIME)

    async def allowed(namespace: str | None, group: str, resource: str, verb: str, name: str) -> bool:
        plural, _, subresource = resource.partition("/")
        attributes = {"verb": verb, "group": group, "resource": plural}
        if subresource:
            attributes["subresource"] = subresource
        if namespace:
            attributes["namespace"] = namespace
        if name:
            attributes["name"] = name
        review: dict[str, Any] = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        async with limit:
            answer = await client.create(review)
        return bool((answer.get("status") or {}).get("allowed"))

    async def lacked(
        namespace: str | None, group: str, resource: str, verb: str, names: tuple[str, ...]
    ) -> tuple[str, ...]:
        return tuple([name for name in names if not await allowed(namespace, group, resource, verb, name)])

    asked = [
        (grant.namespace, rule.group, resource, verb, rule.names or _ANY_NAME)
        for grant in grants
        for rule in grant.rules
        for resource in rule.resources
        for verb in rule.verbs
    ]
    answers = await asyncio.gather(*(lacked(*right) for right in asked), return_exceptions=True)
    lacking: dict[tuple[str | None, str, str, tuple[str, ...]], list[str]] = {}
    for (namespace, group, resource, verb, _), names in zip(asked, answers, strict=True):
        if isinstance(names, BaseException):
            raise names
        if names:
            lacking.setdefault((namespace, group, resource, names), []).append(verb)
    return [
        MissingRule(group, resource, tuple(verbs), namespace, () if names == _ANY_NAME else names)
        for (namespace, group, resource, names), verbs in lacking.items()
    ]
