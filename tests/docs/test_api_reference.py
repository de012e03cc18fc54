"""The API reference is generated from the docstrings."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

import kapsa.devcluster
import kapsa.runtime
import kapsa.runtime.testing

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("api_reference", ROOT / "tools" / "api_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date(generator: ModuleType) -> None:
    written = (ROOT / "docs" / "API.md").read_text(encoding="utf-8")
    assert written == generator.render(), f"docs/API.md is out of date: run `{generator.COMMAND}`"


def test_it_is_the_same_every_time(generator: ModuleType) -> None:
    assert generator.render() == generator.render()


@pytest.mark.parametrize("module", [kapsa.runtime, kapsa.runtime.testing, kapsa.devcluster])
def test_every_public_name_is_on_it(module: ModuleType, generator: ModuleType) -> None:
    headings = {
        line.removeprefix("### ") for line in generator.render().splitlines() if line.startswith("### ")
    }
    assert set(module.__all__) - headings == set()


@pytest.mark.parametrize("member", ["Cache.note_write", "Cache.start", "Cache.stop", "draft: "])
def test_a_member_that_only_the_runtime_calls_is_not_on_it(member: str, generator: ModuleType) -> None:
    assert not re.search(rf"^(#### |- `){re.escape(member)}", generator.render(), re.MULTILINE)


def test_each_internal_member_exists(generator: ModuleType) -> None:
    for owner, members in generator.INTERNAL_MEMBERS.items():
        assert {each for each in members if not hasattr(getattr(kapsa.runtime, owner), each)} == set()


def test_the_logger_of_a_run_has_a_type(generator: ModuleType) -> None:
    assert "\n- `log: FilteringBoundLogger`: " in generator.render()


@pytest.mark.parametrize("name", ["EventRecorder", "Lifetimes", "ObjectReference", "WatchScope"])
def test_types_in_signatures_are_on_it(name: str, generator: ModuleType) -> None:
    assert f"\n### {name}\n" in generator.render()
