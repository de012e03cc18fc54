"""CEL expressions, token by token."""

import pytest

from kapsa.fleet.domain.crds.cel_tokens import tokens, uses_old_self


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("self.a<self.b", " self.a  <\n self.b // comment"),
        ("self == 'a'", 'self == "a"'),
        ("self.all(x,x>=1u)", "self.all( x, x >= 1u )"),
    ],
)
def test_layout_comments_and_quotes_do_not_count(one: str, other: str) -> None:
    assert tokens(one) == tokens(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("self == 'a b'", "self == 'a  b'"),
        ("self == 'a // b'", "self == 'a // c'"),
        (r"self.matches(r'\d a')", r"self.matches(r'\d  a')"),
        (r"self == '\'a b'", r"self == '\'a  b'"),
        ("self == '''a\n b'''", "self == '''a\n  b'''"),
        ("self < 10", "self < 1 0"),
        ("self <= 1", "self < 1"),
        ("b'a' == self", "'a' == self"),
        (r"self == r'\n'", r"self == '\n'"),
    ],
)
def test_everything_else_counts(one: str, other: str) -> None:
    assert tokens(one) != tokens(other)


@pytest.mark.parametrize(
    ("expression", "uses"),
    [
        ("self == oldSelf", True),
        ("oldSelf.hasValue()", True),
        ("self.oldSelf == 1", False),
        ("self == 'oldSelf'", False),
        ("self == 1 // oldSelf", False),
        ("self.oldSelfie == 1", False),
    ],
)
def test_a_transition_rule_refers_to_old_self(expression: str, uses: bool) -> None:
    assert uses_old_self(expression) is uses
