"""A page that presents an operator of examples/ prints the same code."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.docs.snippets import snippets

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    "sensor": (
        "timers-and-daemons.md",
        ["Subscriptions", "SensorSpec", "SensorStatus", "Sensor", "SensorController"],
    ),
    "volumeclaim": (
        "from-kopf.md",
        [
            "EphemeralVolumeClaimSpec",
            "EphemeralVolumeClaimStatus",
            "EphemeralVolumeClaim",
            "EphemeralVolumeClaimController",
            "claim_for",
        ],
    ),
}


def definitions(*sources: str) -> dict[str, str]:
    """Return the source of each class and function."""
    return {
        node.name: ast.get_source_segment(source, node) or ""
        for source in sources
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
    }


@pytest.mark.parametrize("name", PAGES)
def test_the_page_prints_the_operator_of_the_example(name: str) -> None:
    page, expected = PAGES[name]
    blocks = [each.body for each in snippets(ROOT / "docs" / "concepts" / page) if each.language == "python"]
    printed = definitions(*blocks)
    example = definitions((ROOT / "examples" / name / f"{name}.py").read_text())
    assert list(example) == expected
    for each in expected:
        assert example[each] == printed[each], f"{page} and examples/{name} differ in {each}"
