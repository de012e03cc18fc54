"""The pair of engines for this directory's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.behaviour.conformance.pair import Pair, engines


@pytest.fixture(scope="session")
def pair() -> Iterator[Pair]:
    """Both engines, one pair per test process."""
    with engines() as both:
        yield both
