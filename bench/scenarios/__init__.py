"""The scenarios: each does one piece of work with every peer and returns what it measured."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.results import Measurement

Work = Callable[[int, Path], Awaitable[list[Measurement]]]
"""Does the work once at size n, with a directory for its files."""


class Extra(NamedTuple):
    """Work beside that of every round."""

    what: str
    work: Work


class Scenario(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A named piece of work that can be run alone."""

    name: str
    about: str
    sizes: Sequence[int]
    """The sizes of a whole run, so that growth can be seen."""
    run: Work
    alone: int = 0
    """The size when it is run alone: what takes less than two minutes. The largest of `sizes` if 0."""
    once: dict[int, Extra] = {}
    """What is measured only once in a whole run, by size, since it explains more than it compares."""
    late: dict[int, Extra] = {}
    """What is measured after everything else, by size: what takes longest, and can best be spared."""
    needs_go: bool = True

    @property
    def default_size(self) -> int:
        return self.alone or max(self.sizes)


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
