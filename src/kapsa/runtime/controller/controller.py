"""Controllers as people write them: classes that declare what they watch and own, and reconcile resources.

The class's attributes are the single source for watches, RBAC and tests. Nothing is registered globally: an
`Operator` takes instances.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from kapsa.runtime.cache.informer import Selection
from kapsa.runtime.cache.store import Index
from kapsa.runtime.controller.context import Context
from kapsa.runtime.controller.declarations import Declared, Owns, Reads, Watch, takes_cache
from kapsa.runtime.controller.outcomes import Requeue
from kapsa.runtime.controller.predicates import Predicate
from kapsa.runtime.controller.sources import EventSource
from kapsa.runtime.controller.work.workqueue import Backoff
from kapsa.runtime.generate.rbac import ControllerRights, GroupResource, PolicyRule
from kapsa.runtime.resources.attribute_names import reject_misspelt
from kapsa.runtime.resources.kind import Kind, kind_of
from kapsa.runtime.resources.metadata import GroupVersionKind
from kapsa.runtime.resources.resource import CustomResource
from kapsa.runtime.resources.selector import LabelSelector, selector_text

__all__ = ["Controller", "check_declaration"]

R = TypeVar("R")


class Controller(Generic[R]):
    """A controller that brings the cluster to the state its resources declare.

    Subclass it with the resource's class and `reconcile`.
    """

    resource: ClassVar[Kind]
    """The kind that this controller reconciles.

    Taken from `Controller[MyApp]`; set it for kinds without a class.
    """
    name: str = ""
    """Its name in metrics and logs. The class's name without "Controller" unless set."""
    owns: Sequence[Kind | Owns] = ()
    """Kinds of children. A child's change runs the resource that its controller reference names."""
    watches: Sequence[Watch] = ()
    """Other kinds whose changes run our resources."""
    reads: Sequence[Kind | Reads] = ()
    """Kinds that are read from the cache without causing runs."""
    sources: Sequence[EventSource] = ()
    """Sources of events outside the cluster that wake resources: a `Channel`, a `Polling`, or one of your own."""
    predicates: Sequence[Predicate] = ()
    """Conditions on a change of the resource itself: it causes a run if all of them are true."""
    labels: LabelSelector = None
    """Only resources with these labels are watched."""
    max_concurrent_reconciles: int = 1
    """Resources that are reconciled at a time; never two runs of the same one."""
    reconcile_timeout: float | None = 60.0
    """Seconds after which a run is cancelled and counts as failed."""
    max_staleness: float | None = 300.0
    """Seconds for which a broken watch may lag behind before the controller stops acting on its cache.

    None: it goes on, which is safe for a controller that only applies children by name.
    """
    retry_backoff: Backoff = Backoff()
    """The wait after each failure in a row of one resource."""
    resync: float | None = None
    """Seconds after which every resource runs again although nothing has changed. None: never."""
    finalizer: str = ""
    """The finalizer's name, if `finalize` is defined; `<group>/<controller>` unless set."""
    indexes: typing.Mapping[str, Index] = {}
    """Lookups of resources of this kind: name to a function from an object to its values."""
    rules: Sequence[PolicyRule] = ()
    """Rights beyond those that follow from the rest, such as `rule_for("v1/Secret", "get")`."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        reject_misspelt(cls, (*Controller.__annotations__, "reconcile", "finalize"))
        if "resource" in cls.__dict__:
            return
        for base in cls.__dict__.get("__orig_bases__", ()):
            if typing.get_origin(base) is Controller:
                (argument,) = typing.get_args(base)
                if isinstance(argument, type) and argument not in (dict, Any):
                    cls.resource = argument

    def __init__(self) -> None:
        if not hasattr(self, "resource"):
            raise TypeError(
                f"{type(self).__name__} has no kind: subclass Controller[MyResource], or set "
                "resource = 'apps/v1/Deployment'"
            )
        self.gvk: GroupVersionKind = kind_of(self.resource)
        if not self.name:
            self.name = (type(self).__name__.removesuffix("Controller") or self.gvk.kind).lower()
        if self.has_finalize and not self.finalizer:
            self.finalizer = f"{self.gvk.group or 'kapsa'}/{self.name}"
        if self.max_staleness is not None and self.max_staleness <= 0:
            raise ValueError(f"{self.name}: max_staleness must be positive or None, got {self.max_staleness}")
        if self.max_concurrent_reconciles < 1:
            raise ValueError(
                f"{self.name}: max_concurrent_reconciles must be at least 1, got {self.max_concurrent_reconciles}"
            )

    @property
    def has_finalize(self) -> bool:
        """True if the controller cleans up, and therefore adds its finalizer."""
        return type(self).finalize is not Controller.finalize

    @property
    def owned(self) -> list[Owns]:
        """`owns`, with each kind as an `Owns`."""
        return [each if isinstance(each, Owns) else Owns(each) for each in self.owns]

    @property
    def read(self) -> list[Reads]:
        """`reads`, with each kind as a `Reads`."""
        return [each if isinstance(each, Reads) else Reads(each) for each in self.reads]

    @property
    def declared(self) -> Declared:
        """The declaration as the runs of this controller need it."""
        return Declared(
            name=self.name,
            title=type(self).__name__,
            kind=self.resource,
            gvk=self.gvk,
            owned=tuple(each.kind for each in self.owned),
            kept=frozenset(kind_of(each.kind) for each in self.owned if not each.deletes),
            scopes=self._scopes(),
            trackable=frozenset(kind_of(watch.kind) for watch in self.watches),
        )

    def _scopes(self) -> dict[GroupVersionKind, frozenset[Selection]]:
        scopes: dict[GroupVersionKind, set[Selection]] = {
            self.gvk: {(selector_text(self.labels), "", False)},
        }
        for owned in self.owned:
            selection = (selector_text(owned.labels), "", owned.metadata_only)
            scopes.setdefault(kind_of(owned.kind), set()).add(selection)
        others: list[Watch | Reads] = [*self.watches, *self.read]
        for other in others:
            selection = (selector_text(other.labels), other.fields, other.metadata_only)
            scopes.setdefault(kind_of(other.kind), set()).add(selection)
        return {gvk: frozenset(selections) for gvk, selections in scopes.items()}

    def rights(self) -> ControllerRights:
        """Return the rights that follow from the declaration."""
        return ControllerRights(
            resource=GroupResource.of(_rbac_kind(self.resource)),
            status=isinstance(self.resource, type) and issubclass(self.resource, CustomResource),
            finalizer=self.has_finalize,
            owns=tuple(GroupResource.of(_rbac_kind(each.kind)) for each in self.owned if each.deletes),
            keeps=tuple(GroupResource.of(_rbac_kind(each.kind)) for each in self.owned if not each.deletes),
            watches=tuple(
                GroupResource.of(_rbac_kind(kind))
                for kind in [*(watch.kind for watch in self.watches), *(read.kind for read in self.read)]
            ),
            rules=tuple(self.rules),
        )

    async def reconcile(self, resource: R, ctx: Context[R], /) -> Requeue | None:
        """Bring the cluster to the state that this resource declares.

        None waits for the next event, `Requeue(after=...)` runs it again later, an exception is retried with
        back-off, a `TerminalError` waits until the resource is changed. It is called again at any time with
        the same state, and must be idempotent.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define reconcile")

    async def finalize(self, resource: R, ctx: Context[R], /) -> Requeue | None:
        """Clean up what the garbage collector does not. Defining it adds the finalizer.

        Called while the resource is being deleted, until it returns None. Then the finalizer is removed.
        """
        raise NotImplementedError


def _rbac_kind(kind: Kind) -> GroupVersionKind | type[CustomResource[Any, Any]]:
    if isinstance(kind, type) and issubclass(kind, CustomResource):
        return kind
    return kind_of(kind)


def check_declaration(controller: Any) -> None:
    """Raise TypeError or ValueError for a declaration that cannot work, before the first event."""
    if not isinstance(controller, Controller):
        name = controller.__name__ if isinstance(controller, type) else type(controller).__name__
        raise TypeError(f"{controller!r} is not a controller: pass an instance, such as {name}()")
    name = type(controller).__name__
    for attribute in ("owns", "watches", "reads", "sources", "predicates", "rules"):
        value = getattr(controller, attribute)
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise TypeError(f"{name}.{attribute} must be a tuple or list: write {attribute} = (...,)")
    for attribute, declared in (
        ("owns", controller.owned),
        ("watches", controller.watches),
        ("reads", controller.read),
    ):
        for each in declared:
            try:
                kind_of(each.kind)
            except (TypeError, ValueError) as error:
                raise type(error)(f"{name}.{attribute}: {error}") from None
    for watch in controller.watches:
        _check_mapper(name, watch)
    for source in controller.sources:
        if isinstance(source, type) or not callable(getattr(source, "run", None)):
            raise TypeError(
                f"{name}.sources: {source!r} is not a source: pass an instance, such as Channel()"
            )
    for method in ("reconcile", *(["finalize"] if controller.has_finalize else [])):
        _check_method(controller, method)


def _check_mapper(name: str, watch: Watch) -> None:
    if watch.map is None:
        return
    if not callable(watch.map):
        raise TypeError(f"{name}.watches: the map of {watch.kind} must be a function, got {watch.map!r}")
    if not takes_cache(watch.map):
        try:
            inspect.signature(watch.map).bind(None)
        except TypeError:
            raise TypeError(
                f"{name}.watches: the map of {watch.kind} must take the object, or the object and the cache"
            ) from None


def _check_method(controller: Controller[Any], name: str) -> None:
    method = getattr(type(controller), name)
    called = f"{type(controller).__name__}.{name}"
    if method is getattr(Controller, name):
        raise TypeError(f"{type(controller).__name__} does not define {name}")
    plain = inspect.isfunction(method) and not hasattr(method, "__wrapped__")
    if plain and not inspect.iscoroutinefunction(method):
        raise TypeError(f"{called} must be asynchronous: async def {name}(self, resource, ctx)")
    try:
        inspect.signature(getattr(controller, name)).bind(None, None)
    except TypeError:
        raise TypeError(
            f"{called} must take the resource and the context: async def {name}(self, resource, ctx)"
        ) from None
