"""The stored Roles and bindings, indexed by subject and brought up to date when they are used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from kapsa.devcluster.embedded.authorization.rules import RoleRule, parse_rules
from kapsa.devcluster.embedded.codec.stored_form import decode
from kapsa.devcluster.embedded.kinds import names
from kapsa.devcluster.embedded.storage.store import Collection, CompactedError, ObjectStore, Stored
from kapsa.devcluster.wire.exchange import RequestUser

__all__ = ["Binding", "RbacIndex", "RoleReference", "split_account"]

GROUP = "rbac.authorization.k8s.io"
_ACCOUNT_PREFIX = "system:serviceaccount:"
Object = dict[str, Any]
Subject = tuple[str, str]
"""Kind and name; a ServiceAccount is the User that its tokens authenticate as."""


class RoleReference(msgspec.Struct, frozen=True):
    """The role that a binding refers to."""

    kind: str
    name: str
    namespace: str = ""
    """Namespace of the binding; empty for a ClusterRoleBinding."""


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """A RoleBinding or ClusterRoleBinding."""

    name: str
    namespace: str = ""
    role: RoleReference
    subjects: tuple[tuple[Subject, str], ...]
    """Each subject with its description in reasons, in order."""

    def describe(self, user: RequestUser) -> str:
        """Return the binding and its first subject that is the user, as reasons name them."""
        subject = next(text for subject, text in self.subjects if _is(user, subject))
        kind, name = (
            ("RoleBinding", f"{self.name}/{self.namespace}")
            if self.namespace
            else ("ClusterRoleBinding", self.name)
        )
        return f'{kind} "{name}" of {self.role.kind} "{self.role.name}" to {subject}'


class RbacIndex:
    """Roles by name, and bindings by namespace and subject."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._revision = -1
        self._roles: dict[str, tuple[RoleRule, ...]] = {}
        self._cluster_roles: dict[str, tuple[RoleRule, ...]] = {}
        self._bindings: dict[str, Binding] = {}
        self._cluster_bindings: dict[str, Binding] = {}
        self._subjects: dict[tuple[str, Subject], dict[str, Binding]] = {}
        self._sources = [
            _Source(store.collection(GROUP, "clusterroles"), self._put_cluster_role, self._clear_roles),
            _Source(store.collection(GROUP, "roles"), self._put_role, self._clear_roles),
            _Source(store.collection(GROUP, "clusterrolebindings"), self._put_binding, self._clear_bindings),
            _Source(store.collection(GROUP, "rolebindings"), self._put_binding, self._clear_bindings),
        ]

    def refresh(self) -> bool:
        """Apply the changes since the last call. Return whether there were any."""
        if self._store.revision == self._revision:
            return False
        self._revision = self._store.revision
        changed = False
        for source in self._sources:
            if source.position != source.collection.end:
                source.catch_up()
                changed = True
        return changed

    def rules_of(self, role: RoleReference) -> tuple[RoleRule, ...] | None:
        """Return the rules of a role, or None if it does not exist."""
        if role.kind == "ClusterRole":
            return self._cluster_roles.get(role.name)
        return self._roles.get(f"{role.namespace}/{role.name}")

    def bindings_of(self, user: RequestUser, namespace: str) -> Iterator[Binding]:
        """Yield the bindings of a user in all namespaces, then those in the given one, each once."""
        for scope in ("", namespace) if namespace else ("",):
            seen: set[str] = set()
            for subject in (("User", user.username), *(("Group", group) for group in user.groups)):
                for key, binding in self._subjects.get((scope, subject), {}).items():
                    if key not in seen:
                        seen.add(key)
                        yield binding

    # Following the store

    def _put_role(self, key: str, stored: Stored | None) -> None:
        _put_rules(self._roles, key, stored)

    def _put_cluster_role(self, key: str, stored: Stored | None) -> None:
        _put_rules(self._cluster_roles, key, stored)

    def _clear_roles(self, key: str) -> None:
        (self._roles if key == "roles" else self._cluster_roles).clear()

    def _put_binding(self, key: str, stored: Stored | None) -> None:
        # A key with a slash is that of a namespaced binding.
        bindings = self._bindings if "/" in key else self._cluster_bindings
        old = bindings.pop(key, None)
        if old is not None:
            for subject, _ in old.subjects:
                self._subjects[old.namespace, subject].pop(key, None)
        if stored is None:
            return
        binding = bindings[key] = _binding(stored)
        for subject, _ in binding.subjects:
            self._subjects.setdefault((binding.namespace, subject), {})[key] = binding

    def _clear_bindings(self, resource: str) -> None:
        bindings = self._bindings if resource == "rolebindings" else self._cluster_bindings
        for key in list(bindings):
            self._put_binding(key, None)


class _Source:
    """One collection, and how far its changes are indexed."""

    def __init__(
        self,
        collection: Collection,
        put: Callable[[str, Stored | None], None],
        clear: Callable[[str], None],
    ) -> None:
        self.collection = collection
        self.position = -1
        self._put = put
        self._clear = clear

    def catch_up(self) -> None:
        collection = self.collection
        try:
            changes = collection.read(self.position) if self.position >= 0 else None
        except CompactedError:
            changes = None
        if changes is None:
            self._clear(collection.key[1])
            for stored in collection.current():
                self._put(stored.key, stored)
        else:
            for key in {change.object.key for change in changes}:
                self._put(key, collection.get(key))
        self.position = collection.end


def _put_rules(roles: dict[str, tuple[RoleRule, ...]], key: str, stored: Stored | None) -> None:
    if stored is None:
        roles.pop(key, None)
    else:
        roles[key] = parse_rules(decode(stored).get("rules"))


def _binding(stored: Stored) -> Binding:
    obj = decode(stored)
    reference = obj["roleRef"]
    return Binding(
        name=stored.name,
        namespace=stored.namespace,
        role=RoleReference(reference.get("kind", ""), reference.get("name", ""), stored.namespace),
        subjects=tuple(_subject(each, stored.namespace) for each in obj.get("subjects") or ()),
    )


def _subject(subject: Object, namespace: str) -> tuple[Subject, str]:
    kind, name = subject.get("kind", ""), subject.get("name", "")
    if kind != "ServiceAccount":
        return (kind, name), f'{kind} "{name}"'
    namespace = subject.get("namespace") or namespace
    return ("User", f"{_ACCOUNT_PREFIX}{namespace}:{name}"), f'ServiceAccount "{name}/{namespace}"'


def _is(user: RequestUser, subject: Subject) -> bool:
    kind, name = subject
    return name in user.groups if kind == "Group" else kind == "User" and name == user.username


def split_account(username: str) -> tuple[str, str] | None:
    """Return namespace and name of the ServiceAccount that a username is of, or None."""
    if not username.startswith(_ACCOUNT_PREFIX):
        return None
    parts = username.removeprefix(_ACCOUNT_PREFIX).split(":")
    if len(parts) != 2 or names.dns1123_label(parts[0]) or names.dns1123_subdomain(parts[1]):
        return None
    return parts[0], parts[1]
