"""Random segments: recognized in an earlier text whose settings are others."""

from __future__ import annotations

import pytest

from kapsa.environments.render.generated_segments import random_spans, segments_in, with_segments

INI = "[db]\nhost={host}\npassword={password}\nport=5432\n"
URL = "postgres://app:{password}@{host}/app"
DOCUMENT = '{{"host": "{host}", "password": "{password}", "tls": true}}'
TWICE = "db:\n  password: {password}\n  host: {host}\ncache:\n  password: {password}Z\n"
BLOCK = "-----BEGIN KEY-----\n{password}+/\n{password}==\n-----END KEY-----\n"


def kept(template: str, *, before: str, now: str) -> str | None:
    """Return a text rendered with another host, and with the password of the earlier text if it is found."""
    first, second = (template.format(host=now, password=each) for each in ("aFresh111", "aOther22"))
    spans = random_spans(first, second)
    segments = segments_in(template.format(host=before, password="aOld3"), first, spans)
    return None if segments is None else with_segments(first, spans, segments)


@pytest.mark.parametrize("template", [INI, URL, DOCUMENT, TWICE], ids=["ini", "url", "json", "two alike"])
@pytest.mark.parametrize("now", ["db1", "db2.example.com"], ids=["same", "changed"])
def test_a_random_segment_is_recognized_among_settings_that_have_changed(template: str, now: str) -> None:
    assert kept(template, before="db1", now=now) == template.format(host=now, password="aOld3")


def test_a_block_such_as_a_key_is_one_segment() -> None:
    template = "host={host}\n" + BLOCK
    first, second = (template.format(host="a", password=each) for each in ("Ab1", "Ab2\nAb3"))
    ((start, end),) = random_spans(first, second)
    assert first[start:end] == BLOCK.format(password="Ab1").strip()


def test_a_text_that_is_random_as_a_whole_has_no_segments() -> None:
    assert random_spans("abc123", "abd456") == ()


def test_a_segment_that_could_be_another_one_is_not_guessed() -> None:
    first, second = "key={}\nkey={}\n".format("A1", "B1"), "key={}\nkey={}\n".format("A2", "B2")
    spans = random_spans(first, second)
    assert segments_in("key=X\n", first, spans) is None
    assert segments_in("something else", first, spans) is None


@pytest.mark.parametrize("text", ["a:" * 30_000, "-----BEGIN A-----" * 3_500, "a/" * 30_000, "\n" * 60_000])
def test_a_hostile_text_takes_no_time(text: str) -> None:
    first, second = f"{text}a:r1@", f"{text}a:r2@"
    spans = random_spans(first, second)
    assert segments_in(f"x{text}", first, spans) is None
