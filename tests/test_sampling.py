"""The tests of a quick run."""

from __future__ import annotations

import msgspec
import pytest

from tests.sampling import quick_run


class Collected(msgspec.Struct, frozen=True, eq=False):
    """A collected test, with its markers from the closest to the farthest."""

    nodeid: str
    markers: tuple[pytest.Mark, ...] = ()

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return next((marker for marker in self.markers if marker.name == name), None)


LONG = pytest.mark.long.mark
ALWAYS = pytest.mark.always.mark
OF_MODULE = pytest.mark.sampled(3, of="module").mark
OF_CASES = pytest.mark.sampled(2).mark

SHORT = [Collected(f"test_a.py::test_short_{number}", (OF_MODULE,)) for number in range(6)]
LONGER = [Collected(f"test_a.py::test_long_{number}", (LONG, OF_MODULE)) for number in range(30)]


@pytest.mark.parametrize("seed", range(10))
def test_a_sample_is_as_large_as_its_marker_demands_whatever_is_long(seed: int) -> None:
    chosen = quick_run([*SHORT, *LONGER], seed)
    assert len(chosen) == 3
    assert set(chosen) <= set(SHORT)


def test_a_test_that_always_runs_takes_no_place_of_the_sample() -> None:
    fixed = Collected("test_a.py::test_fixed", (ALWAYS, OF_MODULE))
    for seed in range(10):
        chosen = quick_run([*SHORT, fixed, *LONGER], seed)
        assert fixed in chosen
        assert len(chosen) == 4


def test_the_order_and_what_has_no_marker_are_kept() -> None:
    plain = Collected("test_b.py::test_plain")
    items = [SHORT[0], plain, *SHORT[1:]]
    chosen = quick_run(items, 0)
    assert plain in chosen
    assert chosen == [item for item in items if item in chosen]


def test_each_test_with_sampled_cases_has_a_sample() -> None:
    cases = [Collected(f"test_c.py::test_{name}[{n}]", (OF_CASES,)) for name in "ab" for n in range(5)]
    chosen = [item.nodeid for item in quick_run(cases, 0)]
    assert [len([each for each in chosen if f"test_{name}[" in each]) for name in "ab"] == [2, 2]


def test_a_seed_draws_the_same_sample_again_and_another_seed_another() -> None:
    assert quick_run(SHORT, 1) == quick_run(SHORT, 1)
    assert len({tuple(quick_run(SHORT, seed)) for seed in range(10)}) > 1
