"""Names stay within their limits and remain readable."""

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kapsa.environments.names import (
    host_label,
    host_name,
    label_value,
    namespace_name,
    release_name,
    sanitize,
)

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (("My_Team", "Web App", "PR/42"), "my-team-web-app-pr-42"),
        (
            ("my-super-long-team-name", "my-super-long-project-name", "feature-very-long-branch-name"),
            "my-super-long-team-name-my-super-long-project-name-featur-f61d3",
        ),
        (("a" * 56, "bbbb", "cccc"), "a" * 56 + "-329da"),
        (("--a--", "", "!!", "b"), "a-b"),
        (("a" * 63,), "a" * 63),
    ],
)
def test_a_namespace_is_named_after_its_parts(parts: tuple[str, ...], name: str) -> None:
    assert namespace_name(*parts) == name
    assert len(name) <= 63


def test_parts_that_leave_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="contains no letter or digit for the name of a namespace"):
        namespace_name("!!", "--", "")


@given(st.lists(st.text(max_size=90), min_size=1, max_size=4))
def test_any_parts_make_a_valid_name_or_none(parts: list[str]) -> None:
    if not any(map(sanitize, parts)):
        return
    assert LABEL.fullmatch(namespace_name(*parts))
    assert LABEL.fullmatch(host_label(*parts))
    assert LABEL.fullmatch(release_name(*parts))
    assert len(release_name(*parts)) <= 53


@given(st.text(max_size=300))
def test_any_text_makes_a_valid_label_value(text: str) -> None:
    assert VALUE.fullmatch(label_value(text))
    assert len(label_value(text)) <= 63


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("feature/login", "feature-login"),
        ("org:branch", "org-branch"),
        ("_wip/ü äö.", "wip"),
        ("x" * 62 + "/y", "x" * 62),
        ("Release-1.2_rc", "Release-1.2_rc"),
        ("", ""),
    ],
)
def test_a_label_value_keeps_what_a_label_can_hold(text: str, value: str) -> None:
    assert label_value(text) == value


@given(st.text(string.ascii_lowercase, min_size=1, max_size=80), st.integers(min_value=1, max_value=60))
def test_a_host_name_is_never_longer_than_a_host_name_may_be(label: str, labels: int) -> None:
    domain = ".".join(["abc"] * labels)
    host = host_name(host_label(label), domain)
    assert len(host) <= 253
    assert all(LABEL.fullmatch(part) for part in host.split("."))


@pytest.mark.parametrize(
    ("domain", "longest"),
    [
        ("preview.example.com", 64),
        ("a" * 56, 64),
        ("a" * 57, 57 + 1 + 63),
        (".".join(["a" * 61] * 3), 185 + 1 + 63),
        (".".join(["a" * 60] * 4), 253),
    ],
)
def test_a_host_fits_into_a_certificates_common_name_wherever_its_domain_leaves_room(
    domain: str, longest: int
) -> None:
    first, second = (host_name(host_label("x" * 62 + end), domain) for end in "ab")
    assert len(first) == longest
    assert first != second
    assert host_name("shop", domain) == f"shop.{domain}"


def test_a_domain_that_leaves_no_room_is_refused() -> None:
    with pytest.raises(ValueError, match="is too long"):
        host_name("a", ".".join(["a" * 61] * 4))
