"""Migration guides on the way from one version to another."""

import pytest

from kapsa.fleet.domain.crds import MigrationGuide, guides_between
from kapsa.fleet.domain.errors import InvalidInput

GUIDES = [
    MigrationGuide(version, f"to {version}")
    for version in ("2.0.0", "1.1.0", "1.0.0", "1.10.0", "2.0.0-rc.1")
]


def versions(present: str, target: str) -> list[str]:
    return [guide.version for guide in guides_between(GUIDES, present, target)]


def test_the_guides_of_every_version_on_the_way_are_given_in_its_order() -> None:
    assert versions("1.0.0", "2.0.0") == ["1.1.0", "1.10.0", "2.0.0-rc.1", "2.0.0"]
    assert versions("1.10.0", "2.0.0-rc.2") == ["2.0.0-rc.1"]


def test_the_way_back_has_the_guides_of_the_versions_that_are_left() -> None:
    assert versions("1.10.0", "1.0.0") == ["1.10.0", "1.1.0"]
    assert versions("1.0.0", "1.0.0") == []


def test_a_version_without_a_text_has_no_guide() -> None:
    assert guides_between([MigrationGuide("1.1.0", "")], "1.0.0", "2.0.0") == ()


def test_a_guide_must_have_a_semantic_version_and_a_bounded_text() -> None:
    with pytest.raises(InvalidInput, match="semantic version"):
        MigrationGuide("latest", "text")
    with pytest.raises(InvalidInput, match="at most 65536 characters"):
        MigrationGuide("1.0.0", "x" * 70_000)
