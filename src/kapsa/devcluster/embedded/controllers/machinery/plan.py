"""Plans: ordered lists of writes and Events, made by pure functions."""

from __future__ import annotations

import msgspec

from kapsa.devcluster.embedded.controllers.machinery.kinds import Kind, Object

LARGEST_BATCH = 500
"""Pods that one plan creates or deletes, at most."""
BATCH_PAUSE = 1.0
"""Seconds between two plans of that size."""


class Note(msgspec.Struct, frozen=True):
    """An Event to record. `{name}` and `{error}` in the message are replaced once the write is done."""

    about: Object
    reason: str
    message: str
    type: str = "Normal"
    component: str = ""
    """Source component, if it is not the controller that executes the plan."""


class Create(msgspec.Struct, frozen=True):
    """Create an object."""

    kind: Kind
    object: Object
    done: Note | None = None
    failed: Note | None = None
    exists_ok: bool = False


class Update(msgspec.Struct, frozen=True):
    """Replace an object. Its resourceVersion is a precondition."""

    kind: Kind
    object: Object
    done: Note | None = None


class UpdateStatus(msgspec.Struct, frozen=True):
    """Replace an object's status."""

    kind: Kind
    object: Object


class Delete(msgspec.Struct, frozen=True):
    """Delete an object. Its uid is a precondition; an object that is already gone is not an error."""

    kind: Kind
    object: Object
    done: Note | None = None
    failed: Note | None = None
    grace: int | None = None
    propagation: str | None = None


class RecordEvent(msgspec.Struct, frozen=True):
    """Record an Event without a write."""

    note: Note


Action = Create | Update | UpdateStatus | Delete | RecordEvent


class WritePlan(msgspec.Struct):
    """Actions in order, and the delay after which to reconcile again even if nothing changes."""

    actions: list[Action] = msgspec.field(default_factory=list)
    again: float | None = None
    """Seconds until the next run; None to wait for a change."""

    def do(self, *actions: Action) -> None:
        """Append actions."""
        self.actions.extend(actions)

    def requeue_after(self, seconds: float) -> None:
        """Reconcile again after this many seconds, or earlier if an earlier time is already set."""
        seconds = max(seconds, 0.0)
        self.again = seconds if self.again is None else min(self.again, seconds)

    def join(self, other: WritePlan) -> None:
        """Append another plan."""
        self.actions.extend(other.actions)
        if other.again is not None:
            self.requeue_after(other.again)
