"""The tests of a quick run: no long ones, and a seeded sample of the cases or modules marked as `sampled`."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Protocol, TypeVar

import pytest


class Marked(Protocol):
    """A collected test with its markers."""

    @property
    def nodeid(self) -> str: ...

    def get_closest_marker(self, name: str) -> pytest.Mark | None: ...


Test = TypeVar("Test", bound=Marked)


def quick_run(items: Sequence[Test], seed: int) -> list[Test]:
    """Return the tests of a quick run, in order. A sample is drawn from the tests that are not long."""
    short = [item for item in items if item.get_closest_marker("long") is None]
    groups: dict[str, list[Test]] = {}
    for item in short:
        if is_sampled(item):
            groups.setdefault(group_of(item), []).append(item)
    kept = {item.nodeid for group in groups.values() for item in draw(group, seed)}
    return [item for item in short if item.nodeid in kept or not is_sampled(item)]


def is_sampled(item: Marked) -> bool:
    """Return whether a test runs only if it is drawn."""
    return item.get_closest_marker("sampled") is not None and item.get_closest_marker("always") is None


def group_of(item: Marked) -> str:
    """Return the module of a test, or the test of a case: what its sample is drawn from."""
    marker = item.get_closest_marker("sampled")
    assert marker is not None
    return item.nodeid.partition("::" if marker.kwargs.get("of") == "module" else "[")[0]


def draw(group: list[Test], seed: int) -> list[Test]:
    """Return the sample of one group."""
    marker = group[0].get_closest_marker("sampled")
    assert marker is not None
    (size,) = marker.args
    return Random(seed).sample(group, min(size, len(group)))
