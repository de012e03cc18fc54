"""The walks of docs/architecture.md: every station is a module, and none appears twice."""

from __future__ import annotations

import importlib.util
import pkgutil
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "architecture.md"
STATION = re.compile(r"^\d+\. `(kapsa[\w.]+)`", re.MULTILINE)
MODULE = re.compile(r"`(kapsa(?:\.\w+)+)`")


def walks() -> dict[str, list[str]]:
    sections = PAGE.read_text().split("\n## ")[1:]
    stations = {section.partition("\n")[0]: STATION.findall(section) for section in sections}
    return {title: walk for title, walk in stations.items() if walk}


def test_there_are_four_walks() -> None:
    assert [len(walk) >= 10 for walk in walks().values()] == [True] * 4


@pytest.mark.parametrize("title", walks())
def test_no_station_appears_twice_in_a_walk(title: str) -> None:
    walk = walks()[title]
    assert len(walk) == len(set(walk))


@pytest.mark.parametrize("name", sorted(set(MODULE.findall(PAGE.read_text()))))
def test_a_module_that_is_named_exists(name: str) -> None:
    assert importlib.util.find_spec(name) is not None


@pytest.mark.parametrize("package", ["kapsa.environments", "kapsa.fleet", "kapsa.runtime"])
def test_the_map_of_a_package_names_its_rooms(package: str) -> None:
    module = importlib.import_module(package)
    rooms = {room.name for room in pkgutil.iter_modules(module.__path__) if room.ispkg}
    assert {room for room in rooms if not re.search(rf"\b{room}\b", module.__doc__ or "")} == set()


def test_each_folder_of_tests_that_belongs_to_no_module_is_named() -> None:
    text = PAGE.read_text().split("## Where tests live")[1]
    suites = PAGE.parents[1] / "tests" / "behaviour"
    folders = {path.parent.name for path in suites.glob("*/test_*.py")}
    assert folders - set(re.findall(r"\w+", text)) == set()
