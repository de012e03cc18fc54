"""Crashes of a manager at a chosen operation: a port call or a transaction, at a chosen moment of it."""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import msgspec

from kapsa.fleet.infrastructure.postgres.database import Database
from tests.fleet.helm_double import Interruption

# Calls in which Helm, or the database, can be cut off half-way.
DIVISIBLE = frozenset({"upgrade", "rollback", "uninstall", "transaction"})


class Crash(BaseException):
    """The end of a process: nothing in it runs after this."""


class CrashMoment(enum.StrEnum):
    """The moment of an operation at which the process ends."""

    BEFORE = "before it"
    HALF_WAY = "half-way through it"
    """Helm is killed and leaves a pending record; a transaction is not committed."""
    EFFECT = "after its effect and before the answer"
    ANSWER = "after the answer"


class CrashPoint(msgspec.Struct, frozen=True):
    """One moment of the n-th operation of a run."""

    number: int
    operation: str
    moment: CrashMoment

    def __str__(self) -> str:
        return f"{self.moment} #{self.number} {self.operation}"


class CrashPlan:
    """A process that ends at a point, or that runs to its end and counts its operations."""

    def __init__(self, point: CrashPoint | None = None) -> None:
        self.point = point
        self.operations: list[str] = []
        self.crashed = False
        self.crash_after: int | None = None
        """End before the operation with this number, whatever it is."""

    def points(self) -> list[CrashPoint]:
        """Return every point of a run that was counted."""
        return [
            CrashPoint(number, operation, moment)
            for number, operation in enumerate(self.operations)
            for moment in CrashMoment
            if moment is not CrashMoment.HALF_WAY or operation in DIVISIBLE
        ]

    @asynccontextmanager
    async def interrupt(self, operation: str) -> AsyncIterator[Interruption]:
        """Run one operation of the process, and end the process in it if this is the point."""
        if self.crashed:
            raise Crash
        number = len(self.operations)
        self.operations.append(operation)
        moment = self.point.moment if self.point is not None and self.point.number == number else None
        if moment is CrashMoment.BEFORE or number == self.crash_after:
            self.die()
        try:
            yield _Interruption(self, moment)
        except Exception:
            if moment is CrashMoment.EFFECT:
                self.die()
            self.crashed = self.crashed or moment is CrashMoment.ANSWER
            raise
        if moment is CrashMoment.EFFECT:
            self.die()
        self.crashed = self.crashed or moment is CrashMoment.ANSWER

    def die(self) -> None:
        self.crashed = True
        raise Crash


class _Interruption(Interruption):
    def __init__(self, plan: CrashPlan, moment: CrashMoment | None) -> None:
        self._plan = plan
        self._moment = moment

    async def cut_off(self) -> None:
        if self._moment is CrashMoment.HALF_WAY:
            self._plan.die()


class CrashingTransactions:
    """The transactions of a process that may end in one of them."""

    def __init__(self, database: Database, plan: CrashPlan) -> None:
        self._database = database
        self._plan = plan

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        async with (
            self._plan.interrupt("transaction") as interruption,
            self._database.transaction() as connection,
        ):
            yield connection
            await interruption.cut_off()

    async def now(self) -> datetime:
        return await self._database.now()
