"""The hand-written cases, each on both engines."""

from __future__ import annotations

import importlib
import json
import pkgutil
from difflib import unified_diff
from typing import Any

import pytest

from tests.behaviour.conformance import cases
from tests.behaviour.conformance.divergences import DIVERGENCES
from tests.behaviour.conformance.exchange import Case
from tests.behaviour.conformance.pair import Pair

TOPICS = {
    module.name: importlib.import_module(f"{cases.__name__}.{module.name}")
    for module in pkgutil.iter_modules(cases.__path__)
}
ALL = [(topic, one) for topic, module in TOPICS.items() for one in getattr(module, "CASES", ())]

pytestmark = pytest.mark.real


def difference(embedded: list[Any], real: list[Any]) -> str:
    """Return a diff from the real engine's responses to the embedded one's, empty if they agree."""
    before, after = (json.dumps(answer, indent=1, sort_keys=True).splitlines() for answer in (real, embedded))
    return "\n".join(unified_diff(before, after, "real", "embedded", lineterm="", n=4))


@pytest.mark.parametrize(("topic", "case"), ALL, ids=[f"{topic}: {one.name}" for topic, one in ALL])
def test_both_engines_answer_alike(topic: str, case: Case, pair: Pair, record_property: Any) -> None:
    diff = difference(*pair.compare(case))
    record_property("conformance", [topic, case.name, "differs" if diff else "matches"])
    if case.name in DIVERGENCES:
        assert diff, f"{case.name!r} matches now; remove it from divergences.py"
    else:
        assert not diff, diff


def test_every_known_divergence_names_a_case() -> None:
    assert set(DIVERGENCES) <= {one.name for _, one in ALL}


def test_there_are_at_least_300_cases_each_with_its_own_sentence() -> None:
    names = [one.name for _, one in ALL]
    assert len(names) >= 300
    assert len(names) == len(set(names))
