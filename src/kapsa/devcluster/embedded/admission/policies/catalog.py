"""The policies of one kind with their bindings, and which of them apply to a request."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, NamedTuple

from kapsa.devcluster.embedded.admission.policies.parameters import (
    ParameterError,
    parameter_kind,
    parameters_of,
)
from kapsa.devcluster.embedded.admission.webhook_match import Invocation, ReviewedRequest, invocation_of
from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.codec.stored_form import decode
from kapsa.devcluster.embedded.storage.store import Collection, StoreChange

if TYPE_CHECKING:
    from kapsa.devcluster.embedded.admission.policies.programs import PolicyPrograms

__all__ = ["BoundPolicy", "PolicyCatalog", "PolicyUse", "UseProblem", "namespace_of"]

Object = dict[str, Any]
_GROUP = "admissionregistration.k8s.io"


class BoundPolicy(NamedTuple):
    """A policy that has bindings."""

    name: str
    spec: Object
    bindings: tuple[Object, ...]
    programs: PolicyPrograms

    @property
    def ignores_failures(self) -> bool:
        return self.spec.get("failurePolicy") == "Ignore"


class PolicyUse(NamedTuple):
    """A policy that applies to a request through a binding, with one of the binding's parameters."""

    policy: BoundPolicy
    binding: Object
    invocation: Invocation
    parameter: Object | None

    @property
    def binding_name(self) -> str:
        return str(self.binding["metadata"]["name"])

    @property
    def identity(self) -> str:
        """A name of this use among all uses of one request."""
        meta = (self.parameter or {}).get("metadata") or {}
        parts = (self.policy.name, self.binding_name, meta.get("namespace", ""), meta.get("name", ""))
        return "/".join(parts)


class UseProblem(NamedTuple):
    """A policy that applies and cannot be used, in the words of the real server."""

    policy: BoundPolicy
    binding: str
    """Name of the binding, "" if the policy itself is wrong."""
    message: str


class PolicyCatalog:
    """The policies and bindings in the store, compiled when the first request needs them."""

    def __init__(self, backend: Backend, policies: str, bindings: str) -> None:
        """Watch two resources of the group admissionregistration.k8s.io."""
        self._backend = backend
        self._policies = backend.store.collection(_GROUP, policies)
        self._bindings = backend.store.collection(_GROUP, bindings)
        self._bound: list[BoundPolicy] | None = None
        backend.store.listeners.append(self._follow)

    def _follow(self, collection: Collection, change: StoreChange) -> None:
        if collection is self._policies or collection is self._bindings:
            self._bound = None

    def bound(self) -> list[BoundPolicy]:
        """Return the policies that have bindings, by name."""
        if self._bound is None:
            self._bound = self._compiled()
        return self._bound

    def _compiled(self) -> list[BoundPolicy]:
        bindings = [decode(stored) for stored in self._bindings.current()]
        if not bindings:
            return []
        # Imported with the first binding.
        from kapsa.devcluster.embedded.admission.policies.programs import PolicyPrograms

        compiled = []
        for stored in self._policies.current():
            chosen = tuple(each for each in bindings if each["spec"].get("policyName") == stored.name)
            if chosen:
                spec = decode(stored)["spec"]
                compiled.append(BoundPolicy(stored.name, spec, chosen, PolicyPrograms(spec)))
        return compiled

    async def uses(self, reviewed: ReviewedRequest) -> AsyncIterator[PolicyUse | UseProblem]:
        """Yield the uses of policies for a request, and what is wrong with those that cannot be used."""
        for policy in self.bound():
            invocation = await self._matched(reviewed, policy.spec.get("matchConstraints") or {})
            if invocation is None:
                continue
            try:
                kind = parameter_kind(self._backend, policy.spec.get("paramKind"))
            except ParameterError as error:
                yield UseProblem(policy, "", f"failed to configure policy: {error}")
                continue
            for binding in policy.bindings:
                if not await self._is_bound(reviewed, binding):
                    continue
                name = binding["metadata"]["name"]
                reference = binding["spec"].get("paramRef")
                try:
                    parameters = parameters_of(self._backend, kind, reference, reviewed.namespace)
                except ParameterError as error:
                    yield UseProblem(policy, name, f"failed to configure binding: {error}")
                    continue
                for parameter in parameters:
                    yield PolicyUse(policy, binding, invocation, parameter)

    async def _is_bound(self, reviewed: ReviewedRequest, binding: Object) -> bool:
        match = binding["spec"].get("matchResources")
        return match is None or await self._matched(reviewed, match) is not None

    async def _matched(self, reviewed: ReviewedRequest, match: Object) -> Invocation | None:
        """Return the object in the version that the rules match; None if they do not match."""
        excluded = match.get("excludeResourceRules")
        if excluded:
            rules = {"rules": _for_name(excluded, reviewed), "matchPolicy": match.get("matchPolicy")}
            if await invocation_of(self._backend, reviewed, rules) is not None:
                return None
        named = _for_name(match.get("resourceRules") or _EVERY_RULE, reviewed)
        return await invocation_of(self._backend, reviewed, {**match, "rules": named})


_EVERY_RULE = [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]


def _for_name(rules: list[Object], reviewed: ReviewedRequest) -> list[Object]:
    return [rule for rule in rules if not rule.get("resourceNames") or reviewed.name in rule["resourceNames"]]


def namespace_of(backend: Backend, reviewed: ReviewedRequest) -> Object | None:
    """Return the namespace of a request's object; None for a cluster-scoped one."""
    if not reviewed.namespace or (reviewed.info.group, reviewed.info.resource) == ("", "namespaces"):
        return None
    stored = backend.store.collection("", "namespaces").get(reviewed.namespace)
    return None if stored is None else decode(stored)
