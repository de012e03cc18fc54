"""Generated histories, each on both engines. A failure prints the shortest history that reproduces it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.behaviour.conformance.pair import Pair
from tests.behaviour.conformance.programs import program
from tests.behaviour.conformance.test_cases import difference

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]
PROGRAMS = {"configmaps": 300, "widgets": 400, "deployments": 300}


@pytest.mark.parametrize("kind", PROGRAMS)
def test_both_engines_keep_the_same_history(kind: str, pair: Pair, record_property: Any) -> None:
    played = 0

    @settings(
        max_examples=PROGRAMS[kind],
        derandomize=True,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def play(data: st.DataObject) -> None:
        nonlocal played
        played += 1
        case = data.draw(program(kind))
        diff = difference(*pair.compare(case))
        assert not diff, diff

    play()
    record_property("programs", [kind, played])
    assert played >= PROGRAMS[kind]
