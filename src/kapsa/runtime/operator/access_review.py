"""The rights check at start: one SelfSubjectAccessReview for each declared right."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec

from kapsa.runtime.client.client import Client
from kapsa.runtime.generate.rbac import Grant

__all__ = ["MissingRule", "missing_rules"]

_CONCURRENCY = 8
_ANY_NAME = ("",)


class MissingRule(msgspec.Struct, frozen=True):
    """A declared right that was not granted, as the rule that would grant it."""

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
    """Return the declared rights that are not granted. Raises `ClientError` if the server does not answer."""
    limit = asyncio.Semaphore(_CONCURRENCY)

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

    async def denied_names(
        namespace: str | None, group: str, resource: str, verb: str, names: tuple[str, ...]
    ) -> tuple[str, ...]:
        return tuple([name for name in names if not await allowed(namespace, group, resource, verb, name)])

    declared = [
        (grant.namespace, rule.group, resource, verb, rule.names or _ANY_NAME)
        for grant in grants
        for rule in grant.rules
        for resource in rule.resources
        for verb in rule.verbs
    ]
    answers = await asyncio.gather(*(denied_names(*right) for right in declared), return_exceptions=True)
    missing: dict[tuple[str | None, str, str, tuple[str, ...]], list[str]] = {}
    for (namespace, group, resource, verb, _), names in zip(declared, answers, strict=True):
        if isinstance(names, BaseException):
            raise names
        if names:
            missing.setdefault((namespace, group, resource, names), []).append(verb)
    return [
        MissingRule(group, resource, tuple(verbs), namespace, () if names == _ANY_NAME else names)
        for (namespace, group, resource, names), verbs in missing.items()
    ]
