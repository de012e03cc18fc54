"""The status of ValidatingAdmissionPolicies: warnings about expressions that do not fit the types they see."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING

import msgspec

from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.codec.stored_form import decode
from kapsa.devcluster.embedded.controllers.machinery.executor import Executor
from kapsa.devcluster.embedded.controllers.machinery.kinds import VALIDATING_POLICY, Object
from kapsa.devcluster.embedded.controllers.machinery.plan import UpdateStatus
from kapsa.devcluster.embedded.controllers.machinery.queue import Key, KeyQueue
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.embedded.storage.store import Collection, StoreChange

if TYPE_CHECKING:
    from kapsa.devcluster.embedded.expressions.type_checks import CheckedKind

__all__ = ["PolicyStatusController"]

_MOST_KINDS = 10


class PolicyStatusController:
    """Controller that checks each new generation of a policy once."""

    name = "validatingadmissionpolicy-status"

    def __init__(self, backend: Backend, executor: Executor) -> None:
        self._backend = backend
        self._executor = executor
        self._policies = backend.store.collection(VALIDATING_POLICY.group, VALIDATING_POLICY.resource)
        self.queue = KeyQueue(self.name, self._process)

    def start(self) -> None:
        """Enqueue all policies."""
        for stored in self._policies.current():
            self.queue.add(("", stored.name))

    def follow(self, collection: Collection, change: StoreChange) -> None:
        """Enqueue a policy that changes."""
        if collection is self._policies and change.type != "DELETED":
            self.queue.add(("", change.object.name))

    async def _process(self, key: Key) -> None:
        stored = self._policies.get(key[1])
        if stored is None:
            return
        policy = decode(stored)
        generation = policy["metadata"].get("generation", 0)
        status = policy.get("status") or {}
        if generation <= status.get("observedGeneration", 0):
            return
        # Imported with the first policy: a server without any starts sooner.
        from kapsa.devcluster.embedded.expressions.type_checks import expression_warnings

        params = policy["spec"].get("paramKind")
        warnings = expression_warnings(
            policy["spec"], self._matched_kinds(policy["spec"]), params and self._params_kind(params)
        )
        checked = {"expressionWarnings": warnings} if warnings else {}
        status = {**status, "observedGeneration": generation, "typeChecking": checked}
        await self._executor.do(UpdateStatus(VALIDATING_POLICY, {**policy, "status": status}))

    def _matched_kinds(self, spec: Object) -> list[CheckedKind]:
        """Return the kinds that the rules of a policy name, without those with wildcards."""
        infos: list[ResourceInfo] = []
        for rule in (spec.get("matchConstraints") or {}).get("resourceRules") or ():
            for info in self._resources(rule):
                if info not in infos:
                    infos.append(info)
                if len(infos) == _MOST_KINDS:
                    break
        kinds = [kind for kind in map(self._checked_kind, infos) if kind is not None]
        return sorted(kinds, key=lambda kind: kind[:3])

    def _resources(self, rule: Object) -> Iterator[ResourceInfo]:
        groups, versions = rule.get("apiGroups") or (), rule.get("apiVersions") or ()
        if any("*" in each for each in (*groups, *versions)):
            return
        plain = [each for each in rule.get("resources") or () if "*" not in each and "/" not in each]
        for group, version, resource in product(sorted(groups), sorted(versions), sorted(plain)):
            for info in self._backend.registry.versions_of(group, resource):
                if info.version == version:
                    yield info

    def _params_kind(self, kind: Object) -> CheckedKind | None:
        group, _, version = kind["apiVersion"].rpartition("/")
        info = self._backend.registry.find_kind(group, version, kind["kind"])
        return None if info is None else self._checked_kind(info)

    def _checked_kind(self, info: ResourceInfo) -> CheckedKind | None:
        from kapsa.devcluster.embedded.expressions.type_checks import CheckedKind

        schema = info.schema
        if schema is None:
            return None
        if info.is_custom:
            # Its own schema has only the names of the metadata; expressions see all of it.
            common = self._backend.registry.get("", "v1", "configmaps").schema
            assert common is not None
            shared = {field: common.properties[field] for field in ("apiVersion", "kind", "metadata")}
            schema = msgspec.structs.replace(schema, properties={**schema.properties, **shared})
        return CheckedKind(info.group, info.version, info.kind, schema)
