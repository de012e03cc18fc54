"""The scenarios: each runs the same work with all peers and returns the measurements."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.fleet.limits import Limit
from bench.results import Measurement

Work = Callable[[int, Path], Awaitable[list[Measurement]]]
"""Runs the work once at size n, with a directory for its files."""


class Extra(NamedTuple):
    """Additional work of a scenario."""

    name: str
    work: Work


class Scenario(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A named piece of work."""

    name: str
    about: str
    sizes: Sequence[int]
    """The sizes of a complete run."""
    run: Work
    alone: int = 0
    """The size for a run of this scenario alone, under two minutes; the largest of `sizes` if 0."""
    once: dict[int, Extra] = {}
    """Work that is measured only once in a complete run, by size: it explains the numbers."""
    late: dict[int, Extra] = {}
    """Work that is measured at the very end, by size: it takes longest and is least important."""
    rounds: int = 0
    """The number of rounds of a scenario that takes too long for all: they come last in a complete run. All if 0."""
    expected_seconds: float = 60.0
    """The time of a step that was not measured before: it is skipped in a complete run that has less left."""
    limits: Mapping[str, Limit] = {}
    """Specified limits by quantity, which the page shows next to the measured values."""
    needs_go: bool = True
    has_kube_rs: bool = False
    """True if kube-rs takes part, where it can be built."""

    @property
    def default_size(self) -> int:
        return self.alone or max(self.sizes)


def scenarios() -> dict[str, Scenario]:
    """Return all scenarios by name, in the order of the page."""
    from bench.scenarios import cache, environments, fleet, noop, operators, rest, servers

    listed = (
        *operators.SCENARIOS,
        noop.SCENARIO,
        rest.SCENARIO,
        cache.SCENARIO,
        *servers.SCENARIOS,
        environments.SCENARIO,
        fleet.SCENARIO,
    )
    return {scenario.name: scenario for scenario in listed}
