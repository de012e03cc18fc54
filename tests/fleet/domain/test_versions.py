"""Semantic versions and their order."""

from __future__ import annotations

import pytest
import semver
from hypothesis import given
from hypothesis import strategies as st

from kapsa.fleet.domain.versions import is_prerelease, is_version, same_version, version_order

NUMBERS = st.integers(0, 10**25)
IDENTIFIERS = st.from_regex(r"[0-9A-Za-z-]{1,4}", fullmatch=True).filter(
    lambda text: not (text.isdigit() and text[0] == "0" and len(text) > 1)
)
VERSIONS = st.builds(
    lambda core, pre: ".".join(map(str, core)) + (f"-{'.'.join(pre)}" if pre else ""),
    st.tuples(NUMBERS, NUMBERS, NUMBERS),
    st.lists(IDENTIFIERS, max_size=3),
)


@given(VERSIONS, VERSIONS)
def test_the_order_is_the_precedence_of_semver(left: str, right: str) -> None:
    compared = semver.Version.parse(left).compare(right)
    if compared:
        assert (version_order(left) > version_order(right)) == (compared > 0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "1.2",
        "01.2.3",
        "1.2.3-",
        "1.2.3-01",
        "1.2.3+",
        "vv1.2.3",
        "1.2.3 ",
        "1.2.3\n",
        "1.2.3-é",
        "1" * 200 + ".0.0",
    ],
)
def test_other_texts_are_not_versions(text: str) -> None:
    assert not is_version(text)


def test_a_leading_v_makes_no_difference() -> None:
    assert is_version("v1.2.3-rc.1+build")
    assert same_version("v1.2.3", "1.2.3")
    assert version_order("v1.2.3").startswith(version_order("1.2.3").partition(" ")[0])
    assert (is_prerelease("v1.0.0-rc.1"), is_prerelease("1.0.0"), is_prerelease("1.0.0+rc")) == (
        True,
        False,
        False,
    )
    with pytest.raises(ValueError, match="not a semantic version"):
        version_order("one")
