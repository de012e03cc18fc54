"""The audit of rights: compares the calls that an operator made with the rights it was granted.

    audit = Audit()
    client.observe(audit)
    ...                                       # let the operator do everything that it can
    unused = audit.verify(grants(operator.rights(), namespace="default"))

In tests, `Harness.verify_rights` does all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kapsa.runtime.client.dispatch import Call
from kapsa.runtime.generate.rbac import Grant

__all__ = ["Audit", "MissingRights"]

_ALWAYS_ALLOWED = frozenset({"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"})
"""Kubernetes allows these to every authenticated user."""
_CREATED = 201
_VERB = {"get": "read", "list": "read", "watch": "read"}
"""Each of these reveals what the others do. The server and the cache decide which of them is used."""


class MissingRights(AssertionError):  # noqa: N818 - the message of a test failure
    """The operator made calls that no rule allows."""

    def __init__(self, calls: Sequence[Call]) -> None:
        lines = "".join(f"\n  {_spelled(call)}" for call in calls)
        super().__init__(f"no rule allows these calls; declare them with owns, watches or rules:{lines}")
        self.calls = tuple(calls)


class Audit:
    """An observer of a client that records every call to which the server responded."""

    def __init__(self) -> None:
        self.calls: set[Call] = set()

    def __call__(self, call: Call, status: int, seconds: float) -> None:
        if not status or not call.resource:
            return
        self.calls.add(call)
        if call.verb == "patch" and status == _CREATED:
            # An apply that creates an object needs the right to create, too.
            self.calls.add(
                Call("create", call.group, call.resource, call.subresource, call.namespace, call.name)
            )

    def missing(self, granted: Iterable[Grant]) -> list[Call]:
        """Return the calls that no grant allows."""
        granted = list(granted)
        return sorted(
            (
                call
                for call in self.calls
                if call.resource not in _ALWAYS_ALLOWED
                and not any(grant.covers(_as_reviewed(call)) for grant in granted)
            ),
            key=_spelled,
        )

    def surplus(self, granted: Iterable[Grant]) -> list[str]:
        """Return the rights that no call used, as `verb resource.group [in namespace]`."""
        return sorted(text for grant in granted for text in _rights(grant) if not self._used(grant, text))

    def verify(self, granted: Iterable[Grant]) -> list[str]:
        """Raise `MissingRights` for calls that no grant allows. Return the rights that no call used."""
        granted = list(granted)
        if missing := self.missing(granted):
            raise MissingRights(missing)
        return self.surplus(granted)

    def _used(self, grant: Grant, text: str) -> bool:
        return any(
            text == _right(_VERB.get(call.verb, call.verb), _resource(call), call.group, grant)
            for call in self.calls
            if grant.covers(_as_reviewed(call))
        )


def _as_reviewed(call: Call) -> Call:
    """Return the call as RBAC reviews it: an object that is being created has no name yet."""
    if call.verb == "create":
        return Call(call.verb, call.group, call.resource, call.subresource, call.namespace)
    return call


def _rights(grant: Grant) -> Iterator[str]:
    """Yield each right, with get, list and watch as `read`. Skips rights that are checked without a call."""
    for rule in grant.rules:
        for resource in rule.resources:
            if not resource.endswith("/finalizers"):
                for verb in dict.fromkeys(_VERB.get(verb, verb) for verb in rule.verbs):
                    yield _right(verb, resource, rule.group, grant)


def _right(verb: str, resource: str, group: str, grant: Grant) -> str:
    where = f" in {grant.namespace}" if grant.namespace is not None else ""
    return f"{verb} {resource}{'.' if group else ''}{group}{where}"


def _resource(call: Call) -> str:
    return f"{call.resource}/{call.subresource}" if call.subresource else call.resource


def _spelled(call: Call) -> str:
    where = f" in {call.namespace}" if call.namespace else ""
    name = f" {call.name}" if call.name else ""
    return f"{call.verb} {_resource(call)}{'.' if call.group else ''}{call.group}{name}{where}"
