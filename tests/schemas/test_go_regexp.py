"""Go's regular expressions, on Python's engine."""

import pytest

from kapsa.schemas.go_regexp import GoRegexpError, compile_pattern, search


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        (r"^a$", "a", True),
        (r"^a$", "a\n", False),
        (r"(?m)^a$", "b\na\nc", True),
        (r"^\d+$", "12", True),
        (r"^\d+$", "١٢", False),
        (r"^\w+$", "é", False),
        (r"^[^\W]+$", "abc", True),
        (r"^[\D]+$", "abc", True),
        (r"^[\D]+$", "a1", False),
        (r"^[[:alpha:]]+$", "abcXYZ", True),
        (r"^[[:^alpha:]]+$", "abc", False),
        (r"\Aabc\z", "abc\n", False),
        (r"^\Qa.b\E$", "a.b", True),
        (r"^\Qa.b\E$", "axb", False),
        (r"^a(?i)b$", "aB", True),
        (r"^a(?i)b$", "AB", False),
        (r"^(a(?i)b|c)d$", "Cd", True),
        (r"^(a(?i)b|c)d$", "CD", False),
        (r"^(?P<x>a)(?<y>b)$", "ab", True),
        (r"^a{,2}$", "a{,2}", True),
        (r"^\p{L}+$", "éß", True),
        (r"^\P{L}+$", "12", True),
        (r"^\x{1F600}$", "\U0001f600", True),
        (r"^[]a]+$", "]a", True),
        (r"\bfoo\b", "a foo b", True),
        (r"\bfoo\b", "afoo", False),
        (r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$", "my.name-1", True),
        (r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE])?$", "100Mi", True),
    ],
)
def test_a_pattern_matches_what_go_matches(pattern: str, text: str, expected: bool) -> None:
    assert search(pattern, text) is expected


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (r"(?=a)", "error parsing regexp: invalid or unsupported Perl syntax: `(?=`"),
        (r"(?<!a)", "error parsing regexp: invalid named capture: `(?<!a)`"),
        (r"[z-a]", "error parsing regexp: invalid character class range: `z-a`"),
        (r"(a)\1", r"error parsing regexp: invalid escape sequence: `\1`"),
        (r"a++", "error parsing regexp: invalid nested repetition operator: `++`"),
        (r"*a", "error parsing regexp: missing argument to repetition operator: `*`"),
        (r"[a", "error parsing regexp: missing closing ]: `[a`"),
        (r"(a", "error parsing regexp: missing closing ): `(a`"),
        (r"a)", "error parsing regexp: unexpected ): `a)`"),
        (r"a{1001}", "error parsing regexp: invalid repeat count: `{1001}`"),
    ],
)
def test_a_pattern_that_go_rejects_is_rejected_in_its_words(pattern: str, message: str) -> None:
    with pytest.raises(GoRegexpError) as caught:
        compile_pattern(pattern)
    assert str(caught.value) == message
