"""The rights that Helm needs for a manifest, asked for one by one."""

from collections.abc import Iterable

from kapsa.fleet.domain.rollout.plans import PreflightProblem
from kapsa.fleet.domain.rollout.releases import ReleaseRef
from kapsa.runtime import ApiResource, Client, Grant, PolicyRule, missing_rules

__all__ = ["missing_rights"]

_VERBS = ("get", "create", "patch", "delete")
_RECORDS = ("get", "list", "create", "update", "patch", "delete")


async def missing_rights(
    client: Client,
    release: ReleaseRef,
    resources: Iterable[tuple[ApiResource, str]],
    missing_namespaces: Iterable[str] = (),
) -> list[PreflightProblem]:
    """Return a problem for each right that Helm needs and the manager does not have.

    `resources` are those of the manifest with their namespaces. An account with all rights is asked once.
    """
    everything = Grant(None, (PolicyRule(group="*", resources=("*",), verbs=("*",)),))
    if not await missing_rules(client, [everything]):
        return []
    grants = [_grant("", "secrets", _RECORDS, release.namespace)]
    if any(missing_namespaces):
        grants.append(_grant("", "namespaces", ("create", "patch"), ""))
    asked = {(each.group, each.plural, namespace if each.namespaced else "") for each, namespace in resources}
    grants += [_grant(group, plural, _VERBS, namespace) for group, plural, namespace in sorted(asked)]
    return [
        PreflightProblem("Rights", f"the account of this manager lacks {missing}")
        for missing in await missing_rules(client, grants)
    ]


def _grant(group: str, resource: str, verbs: tuple[str, ...], namespace: str) -> Grant:
    rule = PolicyRule(group=group, resources=(resource,), verbs=verbs, namespaced=bool(namespace))
    return Grant(namespace or None, (rule,))
