"""Policy rules of Roles and ClusterRoles: what they allow, and what they cover of other rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from kapsa.devcluster.wire.authorization import AccessAttributes
from kapsa.schemas.go_format import quote

__all__ = ["EVERYTHING", "RoleRule", "describe_missing", "parse_rules", "uncovered"]

Names = tuple[str, ...]


class RoleRule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule of a Role or ClusterRole."""

    verbs: Names = ()
    groups: Names = ()
    resources: Names = ()
    names: Names = ()
    paths: Names = ()

    def allows(self, request: AccessAttributes) -> bool:
        """Return whether the rule allows a request."""
        verbs = self.verbs
        if request.verb not in verbs and "*" not in verbs:
            return False
        if request.path:
            return any(_path_covers(path, request.path) for path in self.paths)
        return (
            (request.group in self.groups or "*" in self.groups)
            and self._allows_resource(request.resource, request.subresource)
            and (not self.names or request.name in self.names)
        )

    def _allows_resource(self, resource: str, subresource: str) -> bool:
        resources = self.resources
        if "*" in resources:
            return True
        if not subresource:
            return resource in resources
        return f"{resource}/{subresource}" in resources or f"*/{subresource}" in resources

    def atoms(self) -> Iterator[RoleRule]:
        """Yield the rule as equivalent rules with one verb and one resource, name or path each."""
        for group in self.groups:
            for resource in self.resources:
                for verb in self.verbs:
                    for name in self.names or ("",):
                        yield RoleRule(
                            verbs=(verb,),
                            groups=(group,),
                            resources=(resource,),
                            names=(name,) if self.names else (),
                        )
        for path in self.paths:
            for verb in self.verbs:
                yield RoleRule(verbs=(verb,), paths=(path,))

    def covers(self, atom: RoleRule) -> bool:
        """Return whether the rule allows all that a rule of `atoms` allows."""
        if atom.paths:
            if not any(_path_covers(path, atom.paths[0]) for path in self.paths):
                return False
        elif not (_has(self.groups, atom.groups[0]) and self._covers_resource(atom.resources[0])):
            return False
        if self.names and (not atom.names or atom.names[0] not in self.names):
            return False
        return _has(self.verbs, atom.verbs[0])

    def _covers_resource(self, resource: str) -> bool:
        if _has(self.resources, resource):
            return True
        _, slash, subresource = resource.partition("/")
        return bool(slash) and f"*/{subresource}" in self.resources

    def describe(self) -> str:
        """Return the rule as the real server prints it in errors."""
        parts = (
            ("APIGroups", self.groups),
            ("Resources", self.resources),
            ("NonResourceURLs", self.paths),
            ("ResourceNames", self.names),
            ("Verbs", self.verbs),
        )
        return f"{{{', '.join(f'{field}:{quoted(values)}' for field, values in parts if values)}}}"


EVERYTHING = (
    RoleRule(verbs=("*",), groups=("*",), resources=("*",)),
    RoleRule(verbs=("*",), paths=("*",)),
)
"""The rules of a cluster administrator."""


def parse_rules(rules: Sequence[dict[str, Any]] | None) -> tuple[RoleRule, ...]:
    """Return the rules of a stored Role or ClusterRole."""
    return tuple(
        RoleRule(
            verbs=tuple(rule.get("verbs") or ()),
            groups=tuple(rule.get("apiGroups") or ()),
            resources=tuple(rule.get("resources") or ()),
            names=tuple(rule.get("resourceNames") or ()),
            paths=tuple(rule.get("nonResourceURLs") or ()),
        )
        for rule in rules or ()
    )


def uncovered(owned: Sequence[RoleRule], granted: Iterable[RoleRule]) -> list[RoleRule]:
    """Return the atoms of the granted rules that none of the owned rules covers."""
    return [atom for rule in granted for atom in rule.atoms() if not any(own.covers(atom) for own in owned)]


def describe_missing(atoms: Iterable[RoleRule]) -> str:
    """Return atoms as the real server lists them: sorted, with the verbs of one resource in one line."""
    lines: list[str] = []
    verbs: dict[RoleRule, list[str]] = {}
    for atom in atoms:
        if atom.paths:
            lines.append(atom.describe())
        else:
            verbs.setdefault(msgspec.structs.replace(atom, verbs=()), []).extend(atom.verbs)
    lines += [msgspec.structs.replace(rule, verbs=tuple(each)).describe() for rule, each in verbs.items()]
    return "\n".join(sorted(set(lines)))


def quoted(values: Iterable[str]) -> str:
    """Return strings as Go prints a slice of them with `%q`."""
    return f"[{' '.join(quote(value) for value in values)}]"


def _has(values: Names, value: str) -> bool:
    return value in values or "*" in values


def _path_covers(owned: str, path: str) -> bool:
    return owned in (path, "*") or (owned.endswith("*") and path.startswith(owned.rstrip("*")))
