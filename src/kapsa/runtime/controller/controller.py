"""Controllers as people declare them: what is watched, what is owned, and what to do about it.

A controller is a class; its attributes are the single source for watches, RBAC and tests. Nothing is registered
anywhere: an `Operator` takes instances.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar

import msgspec

from kapsa.runtime.cache.store import Index, Key, StoredObject, Transform
from kapsa.runtime.controller.predicates import Predicate
from kapsa.runtime.controller.workqueue import Backoff
from kapsa.runtime.generate.rbac import ControllerRights, GroupResource, PolicyRule
from kapsa.runtime.resources.attribute_names import reject_misspelt
from kapsa.runtime.resources.kind import Kind, kind_of
from kapsa.runtime.resources.metadata import GroupVersionKind
from kapsa.runtime.resources.resource import CustomResource
from kapsa.runtime.resources.selector import LabelSelector

if TYPE_CHECKING:
    from kapsa.runtime.cache.cache import Cache
    from kapsa.runtime.controller.context import Context

__all__ = ["Controller", "Owns", "Reads", "Requeue", "TerminalError", "Watch"]

R = TypeVar("R")

Concerned: TypeAlias = Iterable[Key | tuple[str, str]]
"""Resources, as (namespace, name)."""
Mapper: TypeAlias = Callable[[StoredObject], Concerned] | Callable[[StoredObject, "Cache"], Concerned]
"""Which resources an object concerns: from the object alone, or from the object and what the operator knows."""


class Requeue(msgspec.Struct, frozen=True):
    """Come back later. Returned from reconcile(); an exception backs off instead."""

    after: float
    """Seconds until the next run. An event for the resource in between runs it earlier."""

    def __post_init__(self) -> None:
        if not isinstance(self.after, int | float):
            raise TypeError(f"Requeue(after={self.after!r}): say it in seconds")
        if self.after < 0:
            raise ValueError(f"Requeue(after={self.after}): no run can start in the past")


class TerminalError(Exception):
    """Retrying cannot help: the resource is left alone until somebody changes it. Raised from reconcile().

    Its text is shown to people in an event, so it must hold no secret.
    """


class Owns(msgspec.Struct, frozen=True):
    """A kind of children, when the kind's name alone is not all there is to say."""

    kind: Kind
    predicates: tuple[Predicate, ...] = ()
    labels: LabelSelector = None
    """Watch only children with these labels."""
    metadata_only: bool = False
    """Keep their metadata only. Their spec and status cannot be read then, nor drift be seen."""
    transform: Transform | None = None
    deletes: bool = False
    """Whether the controller deletes children itself, and so needs the right. Children go with their owner anyway."""


class Watch(msgspec.Struct, frozen=True):
    """Another kind that concerns our resources, and how to find out which."""

    kind: Kind
    map: Mapper
    """Called for the old and for the new object: a resource that is no longer concerned runs too.

    With a second parameter it is handed the cache, to look for the resources that refer to the object; `indexes` of
    the controller make that quick.
    """
    predicates: tuple[Predicate, ...] = ()
    labels: LabelSelector = None
    fields: str = ""
    metadata_only: bool = False
    transform: Transform | None = None
    optional: bool = False
    """Whether the operator works without this kind: while the cluster does not serve it, there are none."""


class Reads(msgspec.Struct, frozen=True):
    """A kind that reconcile reads from the cache, and whose changes wake nobody."""

    kind: Kind
    labels: LabelSelector = None
    fields: str = ""
    metadata_only: bool = False
    transform: Transform | None = None
    optional: bool = False
    """Whether the operator works without this kind: while the cluster does not serve it, there are none."""


class Controller(Generic[R]):
    """Brings the cluster to what its resources ask for. Subclass it with the resource's class and `reconcile`."""

    resource: ClassVar[Kind]
    """The kind this controller is about. Taken from `Controller[MyApp]`; set it for kinds without a class."""
    name: str = ""
    """In metrics and logs. The class's name without "Controller" unless set."""
    owns: Sequence[Kind | Owns] = ()
    """Kinds of children. A child's change runs the resource that its controller reference names."""
    watches: Sequence[Watch] = ()
    """Other kinds that concern our resources."""
    reads: Sequence[Kind | Reads] = ()
    """Kinds that are read from the cache without causing runs."""
    predicates: Sequence[Predicate] = ()
    """Which changes of the resource itself cause a run: those that all predicates agree to."""
    labels: LabelSelector = None
    """Only resources with these labels are seen."""
    max_concurrent_reconciles: int = 1
    """How many resources are reconciled at a time; never two runs of the same one."""
    reconcile_timeout: float | None = 60.0
    """Seconds after which a run is cancelled and counts as failed."""
    retry_backoff: Backoff = Backoff()
    """How long to wait after each failure in a row of one resource."""
    resync: float | None = None
    """Seconds after which every resource runs again though nothing changed. None: never, the watch is enough."""
    finalizer: str = ""
    """The finalizer's name, if `finalize` is defined; `<group>/<controller>` unless set."""
    indexes: typing.Mapping[str, Index] = {}
    """More ways to find resources of this kind: name to a function of the object."""
    rules: Sequence[PolicyRule] = ()
    """Rights beyond what the rest declares, such as `rule_for("v1/Secret", "get")`."""

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
                f"{type(self).__name__} says no kind: subclass Controller[MyResource], or set "
                "resource = 'apps/v1/Deployment'"
            )
        self.gvk: GroupVersionKind = kind_of(self.resource)
        if not self.name:
            self.name = (type(self).__name__.removesuffix("Controller") or self.gvk.kind).lower()
        if self.has_finalize and not self.finalizer:
            self.finalizer = f"{self.gvk.group or 'kapsa'}/{self.name}"
        if self.max_concurrent_reconciles < 1:
            raise ValueError(f"{self.name}: max_concurrent_reconciles must be at least 1")

    @property
    def has_finalize(self) -> bool:
        """Whether the controller cleans up, and therefore adds its finalizer."""
        return type(self).finalize is not Controller.finalize

    @property
    def owned(self) -> list[Owns]:
        """`owns`, in the one form that says everything."""
        return [each if isinstance(each, Owns) else Owns(each) for each in self.owns]

    @property
    def read(self) -> list[Reads]:
        """`reads`, in the one form that says everything."""
        return [each if isinstance(each, Reads) else Reads(each) for each in self.reads]

    def rights(self) -> ControllerRights:
        """What this controller may do to the cluster, from what it declares."""
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

    async def reconcile(self, resource: R, ctx: Context[R]) -> Requeue | None:
        """Bring the cluster to what this resource asks for.

        None waits for the next event, `Requeue(after=...)` comes back, an exception is retried with back-off, a
        `TerminalError` waits until somebody changes the resource. Called again at any time with the same state: it
        must not matter.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no reconcile")

    async def finalize(self, resource: R, ctx: Context[R]) -> Requeue | None:
        """Clean up what the garbage collector does not: defining it adds the finalizer.

        Called while the resource is being deleted, until it returns None. Then the finalizer goes.
        """
        raise NotImplementedError


def _rbac_kind(kind: Kind) -> GroupVersionKind | type[CustomResource[Any, Any]]:
    if isinstance(kind, type) and issubclass(kind, CustomResource):
        return kind
    return kind_of(kind)


def check_declaration(controller: Any) -> None:
    """Refuse a declaration that could not work, now instead of at the first event. `Operator` asks for it."""
    if not isinstance(controller, Controller):
        name = controller.__name__ if isinstance(controller, type) else type(controller).__name__
        raise TypeError(f"{controller!r} is no controller: an operator takes instances, such as {name}()")
    name = type(controller).__name__
    for attribute in ("owns", "watches", "reads", "predicates", "rules"):
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
    for method in ("reconcile", *(["finalize"] if controller.has_finalize else [])):
        _check_method(controller, method)


def _check_mapper(name: str, watch: Watch) -> None:
    if not callable(watch.map):
        raise TypeError(f"{name}.watches: the map of {watch.kind} must be a function, not {watch.map!r}")
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
        raise TypeError(f"{type(controller).__name__} defines no {name}")
    plain = inspect.isfunction(method) and not hasattr(method, "__wrapped__")
    if plain and not inspect.iscoroutinefunction(method):
        raise TypeError(f"{called} must be asynchronous: async def {name}(self, resource, ctx)")
    try:
        inspect.signature(getattr(controller, name)).bind(None, None)
    except TypeError:
        raise TypeError(
            f"{called} must take the resource and the context: async def {name}(self, resource, ctx)"
        ) from None


def takes_cache(mapper: Callable[..., Concerned]) -> bool:
    """Whether a watch's mapping function asks for the cache beside the object.

    A parameter with a default does not count: it is how a function made in a loop remembers its variable.
    """
    asked = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(mapper).parameters.values()
    return sum(each.kind in asked and each.default is each.empty for each in parameters) == 2
