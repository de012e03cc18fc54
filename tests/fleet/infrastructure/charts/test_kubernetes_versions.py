"""Versions of Kubernetes next to those that a constraint names."""

from __future__ import annotations

import pytest

from kapsa.fleet.infrastructure.charts.kubernetes_versions import candidate_versions


@pytest.mark.parametrize(
    ("constraint", "candidates"),
    [
        ("<1.25.0-0", ["1.24.0", "1.25.0", "1.25.1", "1.26.0"]),
        (">= v1.30", ["1.29.0", "1.30.0", "1.30.1", "1.31.0"]),
        ("1.19.x", ["1.18.0", "1.19.0", "1.19.1", "1.20.0"]),
        ("~1.0.4", ["1.0.4", "1.0.5", "1.1.0"]),
        ("*", []),
    ],
)
def test_the_versions_of_a_constraint_and_those_next_to_them_are_offered(
    constraint: str, candidates: list[str]
) -> None:
    assert candidate_versions(constraint) == candidates


def test_a_constraint_that_names_thousands_of_versions_costs_no_more_than_one_that_names_a_few() -> None:
    constraint = " || ".join(f"1.{minor}.7" for minor in range(1000))
    assert len(candidate_versions(constraint)) <= 24
