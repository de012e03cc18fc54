"""The scenarios: each does one piece of work with every peer and returns what it measured."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from bench.results import Measurement


class Scenario(msgspec.Struct, frozen=True):
    """A named piece of work that can be run alone."""

    name: str
    about: str
    sizes: Sequence[int]
    """The sizes of a whole run, so that growth can be seen."""
    run: Callable[[int, Path], Awaitable[list[Measurement]]]
    needs_go: bool = True


def scenarios() -> dict[str, Scenario]:
    """All of them, in the order of the page."""
    from bench.scenarios import cache, environments, noop, operators, rest, servers

    found = (
        *operators.SCENARIOS,
        noop.SCENARIO,
        rest.SCENARIO,
        cache.SCENARIO,
        *servers.SCENARIOS,
        environments.SCENARIO,
    )
    return {scenario.name: scenario for scenario in found}
