"""The controller that collects the rules of labelled ClusterRoles in the ClusterRoles that aggregate them."""

from __future__ import annotations

from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.codec.stored_form import decode
from kapsa.devcluster.embedded.controllers.machinery.kinds import Object
from kapsa.devcluster.embedded.controllers.machinery.queue import Key, KeyQueue
from kapsa.devcluster.embedded.kinds.bootstrap_objects import aggregated_roles
from kapsa.devcluster.embedded.kinds.labels import matches
from kapsa.devcluster.embedded.storage.store import Collection, StoreChange
from kapsa.devcluster.embedded.verbs.client import InProcessClient
from kapsa.devcluster.embedded.verbs.commit import commit_template

_GROUP, _RESOURCE = "rbac.authorization.k8s.io", "clusterroles"
_ALL: Key = ("", "")
_NO_RULES = b'"rules":null'


def aggregate(role: Object, roles: list[Object]) -> list[Object]:
    """Return the rules that a role aggregates from others, which are in the order of their names."""
    rules: list[Object] = []
    for selector in role["aggregationRule"].get("clusterRoleSelectors") or ():
        for other in roles:
            if other["metadata"]["name"] == role["metadata"]["name"]:
                continue
            if matches(selector, other["metadata"].get("labels") or {}):
                rules += [rule for rule in other.get("rules") or () if rule not in rules]
    return rules


class RoleAggregationController:
    """Controller that aggregates again when any ClusterRole changes."""

    name = "clusterrole-aggregation-controller"

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._client = InProcessClient(backend, manager=self.name)
        self._collection = backend.store.collection(_GROUP, _RESOURCE)
        self.queue = KeyQueue(self.name, self._process)

    def start(self) -> None:
        """Aggregate the default roles, from data: nothing needs their schema yet."""
        for role, template in aggregated_roles(self._backend.now()):
            stored = self._collection.get(role.key)
            if stored is not None and _NO_RULES in stored.body:
                commit_template(self._backend, role, template, stored.uid)

    def follow(self, collection: Collection, change: StoreChange) -> None:
        """Enqueue all roles when one changes."""
        if collection is self._collection:
            self.queue.add(_ALL)

    async def _process(self, key: Key) -> None:
        roles = [decode(stored) for stored in self._collection.current()]
        info = self._client.resource(_GROUP, "v1", _RESOURCE)
        for role in roles:
            if role.get("aggregationRule") is None:
                continue
            rules = aggregate(role, roles)
            if rules != (role.get("rules") or []):
                role["rules"] = rules
                await self._client.update(info, role)
