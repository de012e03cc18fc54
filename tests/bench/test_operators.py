"""A reading that the machine's host disturbed is taken again."""

from __future__ import annotations

import pytest

from bench.scenarios.operators import STOLEN, Values, undisturbed


def reading(wall: float, stolen: float) -> Values:
    return {"wall s": wall, "writes per s": 1 / wall, STOLEN: stolen}


async def taken(*readings: Values, attempts: int) -> tuple[Values, int]:
    """The reading that counts, and how many were taken."""
    left = list(readings)

    async def read() -> Values:
        return left.pop(0)

    return await undisturbed(read, "kapsa", attempts), len(readings) - len(left)


async def test_an_undisturbed_reading_counts_at_once() -> None:
    assert await taken(reading(1, 0.5), reading(2, 0), attempts=3) == (reading(1, 0.5), 1)


async def test_a_disturbed_reading_is_taken_again_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert await taken(reading(9, 40), reading(1, 1), reading(2, 0), attempts=3) == (reading(1, 1), 2)
    assert "the host took 40 %" in "".join(capsys.readouterr())


async def test_when_every_reading_was_disturbed_the_least_disturbed_counts_not_the_fastest() -> None:
    assert await taken(reading(1, 9), reading(5, 4), reading(3, 8), attempts=3) == (reading(5, 4), 3)


async def test_what_takes_minutes_is_read_once() -> None:
    assert await taken(reading(9, 40), reading(1, 0), attempts=1) == (reading(9, 40), 1)
