"""Migration guides on the way from one version to another."""

from kapsa.fleet.domain.crds import MigrationGuide, guides_between

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


def test_a_first_installation_has_the_guide_of_its_own_version() -> None:
    assert versions("", "1.10.0") == ["1.10.0"]
