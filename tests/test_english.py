"""The checker of names and prose: it reports each kind of violation, and nothing about plain English."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "tools" / "english.py"


@pytest.fixture
def english(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The checker as a module."""
    spec = importlib.util.spec_from_file_location("kapsa_english", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "kapsa_english", module)
    spec.loader.exec_module(module)
    return module


def rules(english: ModuleType, path: Path, text: str) -> list[str]:
    path.write_text(text)
    return [finding.rule for finding in english._check(path)]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ('def f():\n    """What it does."""\n', "opening"),
        ('class C:\n    """Whether it holds."""\n', "opening"),
        ('class C:\n    """Reads objects."""\n', "opening"),
        ('class C:\n    """Times each call."""\n', "opening"),
        ('def f():\n    """The number of keys."""\n', "imperative"),
        ('def f():\n    """Returns the number of keys."""\n', "imperative"),
        ('def f():\n    """Counting the keys."""\n', "imperative"),
        ("# The server is told later.\n", "word"),
        ('MESSAGE = "metrics is no path"\n', "word"),
        ("def f(known):\n    return known\n", "name"),
        ('def f():\n    """Return ``x``."""\n', "markup"),
        ("from . import x\n", "markup"),
    ],
)
def test_a_violation_is_reported(english: ModuleType, tmp_path: Path, text: str, rule: str) -> None:
    assert rules(english, tmp_path / "module.py", text) == [rule]


@pytest.mark.parametrize("opening", ["Return", "Bring", "Process", "Pass", "Embed"])
def test_an_imperative_opening_passes(english: ModuleType, tmp_path: Path, opening: str) -> None:
    assert rules(english, tmp_path / "module.py", f'def f():\n    """{opening} the keys."""\n') == []


@pytest.mark.parametrize(
    "opening", ["Reads of", "Requests to", "A reader of", "Clusters that have", "This holds"]
)
def test_a_class_that_opens_with_a_noun_passes(english: ModuleType, tmp_path: Path, opening: str) -> None:
    assert rules(english, tmp_path / "module.py", f'class C:\n    """{opening} keys."""\n') == []


def test_every_tracked_text_file_is_checked_but_data_and_the_license(english: ModuleType) -> None:
    checked = {path.relative_to(english.ROOT).as_posix() for path in english._paths([])}
    assert {"Makefile", "Dockerfile", "README.md", "tools/openapi/collect.py"} <= checked
    assert {path for path in checked if path.startswith("charts/kapsa/files/")} == set()
