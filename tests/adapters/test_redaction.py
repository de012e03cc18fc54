"""Text without secrets."""

from __future__ import annotations

import base64
import time
from urllib.parse import quote

import pytest

from kapsa.adapters.redaction import HIDDEN, printable, redact, tail

PASSWORD = "pa$$ w0rd/with+signs"


@pytest.mark.parametrize(
    "form",
    [PASSWORD, quote(PASSWORD), quote(PASSWORD, safe=""), base64.b64encode(PASSWORD.encode()).decode()],
)
def test_a_given_secret_is_hidden_in_all_its_encodings(form: str) -> None:
    assert redact(f"before {form} after", [PASSWORD]) == f"before {HIDDEN} after"


def test_a_key_of_several_lines_is_hidden_line_by_line() -> None:
    key = "first-line-of-the-key\nsecond-line-of-the-key\n"
    assert redact("said: second-line-of-the-key!", [key]) == f"said: {HIDDEN}!"


def test_a_very_short_secret_hides_nothing() -> None:
    assert redact("a cat", ["a", "", " "]) == "a cat"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("fatal: https://robot:hunter22@git.example.com/x", "hunter22"),
        ("Authorization: Basic cm9ib3Q6aHVudGVyMjI=", "cm9ib3Q6aHVudGVyMjI="),
        ('{"authorization": "Bearer abcdefgh.ijkl"}', "abcdefgh.ijkl"),
        ("curl -H 'Bearer abcdefghijkl'", "abcdefghijkl"),
        ("password=hunter22 user=robot", "hunter22"),
        ('"token": "hunter 22 with blanks"', "hunter 22"),
        ("AWS_SECRET_ACCESS_KEY: hunter22", "hunter22"),
        ("ghp_0123456789abcdef0123", "0123456789abcdef"),
        ("glpat-0123456789abcdef", "0123456789abcdef"),
        ("AKIAIOSFODNN7EXAMPLE", "IOSFODNN7"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0xx.c2lnbmF0dXJl", "eyJzdWIi"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----", "MIIE"),
        ("-----BEGIN PRIVATE KEY-----\nMIIE, and then the log was cut", "MIIE"),
    ],
)
def test_what_looks_like_a_secret_is_hidden_even_if_it_is_not_given(text: str, secret: str) -> None:
    shown = redact(text)
    assert secret not in shown
    assert HIDDEN in shown


@pytest.mark.parametrize(
    "text",
    [
        "https://git.example.com/team/app.git: repository not found",
        "the password is not accepted (401)",
        "Secret web-token is missing",
        "commit 0123456789abcdef0123456789abcdef01234567",
        "sha256:" + "a" * 64,
    ],
)
def test_other_text_is_kept(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "x" * 500_000,
        "://" * 100_000,
        "a:// " * 50_000,
        "password" * 50_000,
        "-----BEGIN " * 50_000,
        "eyJ" * 100_000,
    ],
)
def test_no_text_makes_it_slow(text: str) -> None:
    before = time.process_time()
    redact(text)
    printable(text)
    assert time.process_time() - before < 5


def test_characters_that_control_a_terminal_or_forge_a_line_are_removed() -> None:
    text = "a\x1b[31mred\x1b[0m\x1b]0;title\x07 b\x00c\u202ed\u2028e\rf\r\ng\th"
    assert printable(text) == "ared bcde\nf\ng\th"


def test_a_tail_is_the_end_of_a_log_without_its_secrets() -> None:
    log = "\n".join(f"line {number}" for number in range(100)) + f"\n\n  \nlast with {PASSWORD}  \n"
    shown = tail(log, secrets=[PASSWORD], lines=3)
    assert shown.splitlines() == ["line 98", "line 99", f"last with {HIDDEN}"]


def test_a_tail_has_a_size_and_cuts_no_secret_in_two() -> None:
    log = "x" * 10_000 + f" {PASSWORD} " + "y" * 90
    shown = tail(log, secrets=[PASSWORD], characters=100)
    assert len(shown) == 100
    assert shown.endswith("y" * 90)
    assert "signs" not in shown
