"""Declarations of a controller: the kinds it owns, watches and reads."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import msgspec

from kapsa.runtime.cache.cache import Cache
from kapsa.runtime.cache.informer import Selection
from kapsa.runtime.cache.object_parser import Transform
from kapsa.runtime.cache.store import Index
from kapsa.runtime.controller.predicates import Predicate
from kapsa.runtime.resources.kind import Kind
from kapsa.runtime.resources.metadata import GroupVersionKind
from kapsa.runtime.resources.selector import LabelSelector
from kapsa.runtime.resources.stored_object import Key, StoredObject

__all__ = ["Declared", "Keys", "Mapper", "Owns", "Reads", "Watch", "takes_cache"]

Keys: TypeAlias = Iterable[Key | tuple[str, str]]
"""Resources, as (namespace, name)."""
Mapper: TypeAlias = Callable[[StoredObject], Keys] | Callable[[StoredObject, Cache], Keys]
"""A function from an object to the resources it concerns.

It may take the operator's cache as a second parameter.
"""


class Owns(msgspec.Struct, frozen=True):
    """A kind of children, with options that its name alone does not express."""

    kind: Kind
    predicates: tuple[Predicate, ...] = ()
    labels: LabelSelector = None
    """Watch only children with these labels."""
    metadata_only: bool = False
    """Cache their metadata only. Their spec and status cannot be read then, and drift is not detected."""
    transform: Transform | None = None
    indexes: Mapping[str, Index] = {}
    """Lookups of these objects: name to a function from an object to its values, for `ctx.find`."""
    deletes: bool = False
    """True if the controller deletes children itself and needs the right to.

    Children go with their owner anyway.
    """


class Watch(msgspec.Struct, frozen=True):
    """Another kind whose changes run our resources: those that track the object, and those of `map`."""

    kind: Kind
    map: Mapper | None = None
    """Called for the old and for the new object: a resource that is no longer concerned runs too.

    With a second parameter it gets the cache, to look up the resources that refer to the object; `indexes` of
    the controller make that quick.
    """
    predicates: tuple[Predicate, ...] = ()
    labels: LabelSelector = None
    fields: str = ""
    metadata_only: bool = False
    transform: Transform | None = None
    indexes: Mapping[str, Index] = {}
    """Lookups of these objects: name to a function from an object to its values, for `ctx.find`."""
    optional: bool = False
    """True if the operator works without this kind.

    While it is not served, it counts as having no objects.
    """


class Reads(msgspec.Struct, frozen=True):
    """A kind that reconcile reads from the cache, and whose changes cause no run."""

    kind: Kind
    labels: LabelSelector = None
    fields: str = ""
    metadata_only: bool = False
    transform: Transform | None = None
    indexes: Mapping[str, Index] = {}
    """Lookups of these objects: name to a function from an object to its values, for `ctx.find`."""
    optional: bool = False
    """True if the operator works without this kind.

    While it is not served, it counts as having no objects.
    """


class Declared(msgspec.Struct, frozen=True):
    """A controller's declaration as its runs need it, resolved once."""

    name: str
    """The controller's name in logs and metrics."""
    title: str
    """The name of the controller's class, for error messages."""
    kind: Kind
    gvk: GroupVersionKind
    owned: tuple[Kind, ...]
    kept: frozenset[GroupVersionKind]
    """Owned kinds that the controller declares not to delete."""
    scopes: Mapping[GroupVersionKind, frozenset[Selection]]
    """The selections that the controller declares of each kind. Its reads see the objects of these only."""
    trackable: frozenset[GroupVersionKind]
    """Watched kinds: an object of one can be read with `track=True`."""


def takes_cache(mapper: Callable[..., Keys]) -> bool:
    """Return whether a mapping function takes the cache in addition to the object.

    A parameter with a default does not count: it is how a function made in a loop captures its variable.
    """
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(mapper).parameters.values()
    return sum(each.kind in positional and each.default is each.empty for each in parameters) == 2
