"""The reach of the differential suite: its topics, the functions of CEL, and the known divergences."""

from __future__ import annotations

import re

import msgspec
import pytest

from kapsa.schemas.cel.library import FUNCTIONS
from kapsa.schemas.cel.patch_types import PATCH_FUNCTIONS
from tests.behaviour.conformance.cases.cel_functions import REJECTED
from tests.behaviour.conformance.divergences import DIVERGENCES, ON_THE_WIRE
from tests.behaviour.conformance.test_cases import ALL
from tests.behaviour.conformance.test_mutations import OPEN

NAMES = sorted(name for name in {*FUNCTIONS, *PATCH_FUNCTIONS} if re.fullmatch(r"[a-zA-Z0-9.]+", name))
"""The functions by the names that expressions call; the others are operators and parts of macros."""
EXPRESSIONS = ("cel_functions", "cel_costs", "admission_policies", "policy_expressions", "mutating_policies")
COMPILED = "\n".join(
    msgspec.json.encode(one).decode()
    for topic, one in ALL
    if topic in EXPRESSIONS and not one.name.endswith(REJECTED) and "is rejected: " not in one.name
)
"""The cases whose expressions compile."""


@pytest.mark.parametrize("name", NAMES)
def test_each_function_of_cel_is_called_in_a_case(name: str) -> None:
    assert re.search(rf"\b{re.escape(name)}\(", COMPILED)


@pytest.mark.parametrize(
    ("topics", "least"),
    [
        ("protobuf", 60),
        ("authentication|authorization", 120),
        ("admission_.*", 100),
        ("dry_run", 60),
    ],
)
def test_each_promised_topic_has_its_cases(topics: str, least: int) -> None:
    assert sum(re.fullmatch(topics, topic) is not None for topic, _ in ALL) >= least


def test_the_known_divergences_do_not_grow() -> None:
    """Lower these numbers with each divergence that is mended."""
    assert len(DIVERGENCES) <= 5
    assert len(ON_THE_WIRE) <= 6
    assert sum(OPEN.values()) <= 17
