"""Branches (allOf, anyOf, oneOf, not), compared as sets: their order does not count.

A branch may restrict values but not describe structure, so a branch accepts more than another exactly if it
restricts less. Whether it does is searched for with a bound, since branches nest: past it, the answer is no.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from kapsa.fleet.domain.crds.cel_tokens import tokens
from kapsa.fleet.domain.crds.changes import NodeChange, breaking, kinds, safe
from kapsa.fleet.domain.crds.definitions import SchemaNode
from kapsa.fleet.domain.crds.facets import canonical, facet_changes
from kapsa.fleet.domain.crds.findings import ChangeRule, ChangeSeverity

__all__ = ["branch_changes"]

_MOST_STEPS = 500
"""Comparisons of two branches that the search may do for one node."""
_INT_OR_STRING = [SchemaNode(type="integer"), SchemaNode(type="string")]
_OPEN = SchemaNode()
_Branches = Sequence[SchemaNode] | None


def branch_changes(old: SchemaNode, new: SchemaNode) -> Iterator[NodeChange]:
    """Yield the changes of the branches of a node."""
    search = _Search(_MOST_STEPS)
    for name, accepted in search.changed(_meaningful(old), _meaningful(new)):
        if accepted:
            yield safe(ChangeRule.BRANCHES_RELAXED, f"{name} accepts everything that it accepted before")
        else:
            text = f"{name} may reject what it accepted before"
            yield breaking(ChangeRule.BRANCHES_NARROWED, text, validates=True)


def _meaningful(node: SchemaNode) -> SchemaNode:
    """Return the node without the branches that only repeat x-kubernetes-int-or-string."""
    if not node.int_or_string:
        return node
    if node.any_of == _INT_OR_STRING:
        node = msgspec.structs.replace(node, any_of=None)
    if node.all_of and node.all_of[0].any_of == _INT_OR_STRING:
        first = msgspec.structs.replace(node.all_of[0], any_of=None)
        rest = [branch for branch in (first, *node.all_of[1:]) if branch != _OPEN]
        node = msgspec.structs.replace(node, all_of=rest or None)
    return node


def _key(node: SchemaNode) -> bytes:
    """Return bytes that are equal for branches that differ in order alone."""
    return msgspec.json.encode(_ordered(node), order="deterministic")


def _ordered(node: SchemaNode) -> SchemaNode:
    changes: dict[str, Any] = {}
    if node.required:
        changes["required"] = sorted(set(node.required))
    if node.enum:
        changes["enum"] = sorted(node.enum, key=canonical)
    for name in ("all_of", "any_of", "one_of"):
        if getattr(node, name):
            changes[name] = sorted((_ordered(branch) for branch in getattr(node, name)), key=_encoded)
    for name in ("not_", "items", "additional"):
        if isinstance(getattr(node, name), SchemaNode):
            changes[name] = _ordered(getattr(node, name))
    if node.properties:
        changes["properties"] = {key: _ordered(child) for key, child in node.properties.items()}
    return msgspec.structs.replace(node, **changes) if changes else node


def _encoded(node: SchemaNode) -> bytes:
    return msgspec.json.encode(node, order="deterministic")


class _Search:
    """A bounded search for an answer to: does one branch accept everything that another accepts?"""

    def __init__(self, steps: int) -> None:
        self._left = steps
        self._keys: dict[int, bytes] = {}

    def changed(self, old: SchemaNode, new: SchemaNode) -> Iterator[tuple[str, bool]]:
        """Yield each junctor that changed, and whether it still accepts what it accepted before."""
        if old.all_of != new.all_of:
            yield from self._all_of(self._by_key(old.all_of), self._by_key(new.all_of))
        if old.any_of != new.any_of:
            yield from self._any_of(self._by_key(old.any_of), self._by_key(new.any_of))
        if old.one_of != new.one_of:
            # Exactly one branch must hold: a further one can exclude an old one, and so can a copy.
            keys = [sorted(self._key(branch) for branch in node.one_of or ()) for node in (old, new)]
            if keys[0] != keys[1]:
                yield "oneOf", not keys[1]
        if old.not_ != new.not_ and (
            old.not_ is None or new.not_ is None or self._key(old.not_) != self._key(new.not_)
        ):
            # What must not hold now must not have held before.
            yield (
                "not",
                new.not_ is None or (old.not_ is not None and self._accepts_more(new.not_, old.not_)),
            )

    def _key(self, node: SchemaNode) -> bytes:
        """Return the key of a branch, computed once: the same branch is met again and again."""
        key = self._keys.get(id(node))
        if key is None:
            self._keys[id(node)] = key = _key(node)
        return key

    def _by_key(self, branches: _Branches) -> dict[bytes, SchemaNode]:
        return {self._key(branch): branch for branch in branches or ()}

    def _all_of(
        self, old: dict[bytes, SchemaNode], new: dict[bytes, SchemaNode]
    ) -> Iterator[tuple[str, bool]]:
        """Check that each branch that must hold now is implied by one that had to hold before."""
        if old.keys() != new.keys():
            added = [branch for key, branch in new.items() if key not in old]
            yield (
                "allOf",
                all(any(self._accepts_more(before, after) for before in old.values()) for after in added),
            )

    def _any_of(
        self, old: dict[bytes, SchemaNode], new: dict[bytes, SchemaNode]
    ) -> Iterator[tuple[str, bool]]:
        """Check that each branch that could hold implies one that may hold now; without branches all is accepted."""
        if old.keys() != new.keys():
            removed = [branch for key, branch in old.items() if key not in new]
            kept = bool(old) and all(
                any(self._accepts_more(before, after) for after in new.values()) for before in removed
            )
            yield "anyOf", not new or kept

    def _accepts_more(self, old: SchemaNode, new: SchemaNode) -> bool:
        """Return whether the branch `new` accepts every value that the branch `old` accepts."""
        if old == new or new == _OPEN:
            return True
        self._left -= 1
        if self._left < 0 or not kinds(old) <= kinds(new):
            return False
        if not set(new.required or ()) <= set(old.required or ()):
            return False
        if any(change.severity is ChangeSeverity.BREAKING for change in facet_changes(old, new)):
            return False
        if not all(accepted for _, accepted in self.changed(old, new)):
            return False
        before = {tokens(rule.rule) for rule in old.rules or ()}
        return {tokens(rule.rule) for rule in new.rules or ()} <= before and self._parts_accept_more(old, new)

    def _parts_accept_more(self, old: SchemaNode, new: SchemaNode) -> bool:
        before = old.properties or {}
        if not all(
            self._accepts_more(before.get(name, _OPEN), child)
            for name, child in (new.properties or {}).items()
        ):
            return False
        if old.additional != new.additional and new.additional is not None:
            return False  # not permitted in a branch; such a CRD is not structural
        return new.items is None or self._accepts_more(old.items or _OPEN, new.items)
