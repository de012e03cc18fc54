"""What a controller wants done: an ordered list of writes and events, made by pure functions."""

from __future__ import annotations

import msgspec

from kapsa.devcluster.embedded.controllers.machinery.kinds import Kind, Object


class Note(msgspec.Struct, frozen=True):
    """An Event to record. `{name}` and `{error}` in the message are filled in when the write is done."""

    about: Object
    reason: str
    message: str
    type: str = "Normal"
    component: str = ""
    """Source component, when it is not the controller that executes the plan."""


class Create(msgspec.Struct, frozen=True):
    kind: Kind
    object: Object
    done: Note | None = None
    failed: Note | None = None
    exists_ok: bool = False


class Update(msgspec.Struct, frozen=True):
    kind: Kind
    object: Object
    done: Note | None = None


class UpdateStatus(msgspec.Struct, frozen=True):
    kind: Kind
    object: Object


class Delete(msgspec.Struct, frozen=True):
    """Delete this very object: its uid is sent as a precondition; an object already gone is fine."""

    kind: Kind
    object: Object
    done: Note | None = None
    failed: Note | None = None
    grace: int | None = None
    propagation: str | None = None


class RecordEvent(msgspec.Struct, frozen=True):
    """Only an Event."""

    note: Note


Action = Create | Update | UpdateStatus | Delete | RecordEvent


class WritePlan(msgspec.Struct):
    """Actions in order, and when to look again even if nothing changes."""

    actions: list[Action] = msgspec.field(default_factory=list)
    again: float | None = None

    def do(self, *actions: Action) -> None:
        self.actions.extend(actions)

    def look_again(self, seconds: float) -> None:
        """Come back after this many seconds, or earlier when another wish is earlier."""
        seconds = max(seconds, 0.0)
        self.again = seconds if self.again is None else min(self.again, seconds)

    def join(self, other: WritePlan) -> None:
        self.actions.extend(other.actions)
        if other.again is not None:
            self.look_again(other.again)
