"""HTTP as bytes: heads, bodies and chunks in pieces of any size, and malformed ones."""

from __future__ import annotations

import contextlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kapsa.devcluster.wire.http import Body, WireError, chunk, parse_head, response_head


def head(first: str = "GET / HTTP/1.1", *lines: str) -> bytes:
    return "\r\n".join([first, "Host: x", *lines]).encode()


def test_a_head_is_parsed():
    parsed = parse_head(head("POST /a/b?c=d&e HTTP/1.1", "X-One: 1", "x-one:  2 ", "Content-Length: 5"))
    assert (parsed.method, parsed.path, parsed.query, parsed.length) == ("POST", "/a/b", "c=d&e", 5)
    assert parsed.headers["x-one"] == "1, 2"
    assert parsed.keeps_alive


def test_the_host_of_an_absolute_target_is_dropped():
    assert parse_head(head("GET http://h:1/p?q HTTP/1.1")).path == "/p"


@pytest.mark.parametrize(
    ("first", "lines", "keeps_alive"),
    [
        ("GET / HTTP/1.1", (), True),
        ("GET / HTTP/1.1", ("Connection: close",), False),
        ("GET / HTTP/1.0", (), False),
        ("GET / HTTP/1.0", ("Connection: Keep-Alive",), True),
    ],
)
def test_version_and_header_decide_whether_a_connection_stays_open(
    first: str, lines: tuple[str, ...], keeps_alive: bool
):
    assert parse_head(head(first, *lines)).keeps_alive is keeps_alive


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"", 400),
        (b"GET", 400),
        (b"GET /", 400),
        (b"GET / HTTP/1.1", 400),
        (b"GET / HTTP/2.0", 505),
        (head("GET /%zz HTTP/1.1"), 400),
        (head("GET / HTTP/1.1", "host: y"), 400),
        (head("GET / HTTP/1.1", "expect: a-miracle"), 417),
        (b"G T / HTTP/1.1", 400),
        (b"GET nowhere HTTP/1.1", 400),
        (b"GET /a b HTTP/1.1", 400),
        (head("GET / HTTP/1.1", "no colon"), 400),
        (head("GET / HTTP/1.1", "a b: c"), 400),
        (head("GET / HTTP/1.1", " folded: x"), 400),
        (head("GET / HTTP/1.1", "a: \x00"), 400),
        (head("GET / HTTP/1.1", "content-length: -1"), 400),
        (head("GET / HTTP/1.1", "content-length: 1", "content-length: 2"), 400),
        (head("GET / HTTP/1.1", "content-length: 1", "transfer-encoding: chunked"), 400),
        (head("GET / HTTP/1.1", "transfer-encoding: gzip, chunked"), 501),
    ],
)
def test_a_malformed_head_is_rejected(data: bytes, status: int):
    with pytest.raises(WireError) as error:
        parse_head(data)
    assert error.value.status == status


@given(st.binary(max_size=200))
def test_any_bytes_are_parsed_or_rejected(data: bytes):
    with contextlib.suppress(WireError):
        assert parse_head(data).path


def split(data: bytes, positions: list[int]) -> list[bytes]:
    marks = sorted({position % (len(data) + 1) for position in positions} | {0, len(data)})
    return [data[start:end] for start, end in itertools.pairwise(marks)]


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=6), st.lists(st.integers(0, 400)), st.binary())
def test_chunks_are_joined_wherever_they_are_split(pieces: list[bytes], positions: list[int], after: bytes):
    body = Body(-1, limit=1_000_000)
    sent = b"".join(map(chunk, pieces)) + chunk(b"")
    rest = b""
    for part in split(sent + after, positions):
        rest += body.feed(part)
    assert body.done
    assert body.value == b"".join(pieces)
    assert rest == after


@given(st.binary(max_size=100), st.lists(st.integers(0, 200)), st.binary(max_size=20))
def test_a_body_with_a_length_takes_only_its_bytes(data: bytes, positions: list[int], after: bytes):
    body = Body(len(data), limit=1000)
    rest = b""
    for part in split(data + after, positions):
        rest += body.feed(part)
    assert body.done
    assert (body.value, rest) == (data, after)


@pytest.mark.parametrize(
    "sent", [b"x\r\n", b"5\n", b"3\r\nabcd\r\n", b"\r\n\r\n", b"5" * 2000, b"-1\r\n", b"100000000\r\n"]
)
def test_malformed_chunks_are_rejected(sent: bytes):
    with pytest.raises(WireError):
        Body(-1, limit=100).feed(sent)


def test_trailers_are_skipped():
    body = Body(-1, limit=100)
    assert body.feed(b"1\r\na\r\n0\r\nx-sum: 5\r\n\r\nnext") == b"next"
    assert (body.done, body.value) == (True, b"a")


@pytest.mark.parametrize("length", [50, -1])
def test_a_body_over_its_limit_is_read_and_dropped(length: int):
    body = Body(length, limit=10)
    sent = b"x" * 50 if length > 0 else chunk(b"x" * 50) + chunk(b"")
    assert body.feed(sent + b"next") == b"next"
    assert (body.done, body.too_large, body.value) == (True, True, b"")


@pytest.mark.parametrize("length", [10_000, -1])
def test_a_body_far_over_its_limit_is_rejected(length: int):
    body = Body(length, limit=10)
    with pytest.raises(WireError) as error:
        body.feed(b"x" * 200 if length > 0 else chunk(b"x" * 200))
    assert error.value.status == 413


def test_a_header_value_cannot_add_lines():
    sent = response_head(200, [("warning", "a\r\nset-cookie: b")])
    assert sent == b"HTTP/1.1 200 OK\r\nwarning: a  set-cookie: b\r\n\r\n"
