"""Bytes that are hardly HTTP, to which both engines respond with the same status."""

from __future__ import annotations

from typing import Any

import pytest

from tests.behaviour.conformance.divergences import ON_THE_WIRE
from tests.behaviour.conformance.pair import Pair

pytestmark = pytest.mark.real

CREATE = "POST /api/v1/namespaces/default/configmaps HTTP/1.1"
LIVE = "GET /livez HTTP/1.1"
HOST = "Host: localhost"
JSON = "Content-Type: application/json"
CHUNKS = "Transfer-Encoding: chunked"


def head(first: str, *lines: str, body: bytes = b"") -> bytes:
    return "\r\n".join([first, *lines, "", ""]).encode("latin-1") + body


SENT = {
    "zeros": b"\x00\x01\x02\r\n\r\n",
    "a word": b"GET\r\n\r\n",
    "no version": b"GET /livez\r\n\r\n",
    "a future version": head("GET /livez HTTP/9.9", HOST),
    "a version between 1.1 and 2": head("GET /livez HTTP/1.2", HOST),
    "a version in lower case": head("GET /livez http/1.1", HOST),
    "an old version": head("GET /livez HTTP/1.0"),
    "no host": head(LIVE),
    "two hosts": head(LIVE, HOST, "Host: y"),
    "a host of two words": head(LIVE, "Host: a b"),
    "a target without a slash": head("GET livez HTTP/1.1", HOST),
    "a star for a target": head("GET * HTTP/1.1", HOST),
    "a target with a host": head("GET http://x/livez HTTP/1.1", HOST),
    "a space in the target": head("GET /li vez HTTP/1.1", HOST),
    "half an escape in the path": head("GET /livez%zz HTTP/1.1", HOST),
    "half an escape in the query": head("GET /livez?%zz HTTP/1.1", HOST),
    "a target of 70,000 letters": head(f"GET /livez?{'x' * 70_000} HTTP/1.1", HOST),
    "a method of signs": head("G@T /livez HTTP/1.1", HOST),
    "a header without a colon": head(LIVE, HOST, "nonsense"),
    "a header without a name": head(LIVE, HOST, ": b"),
    "a space before the colon": head(LIVE, HOST, "a : b"),
    "a zero in a header": head(LIVE, HOST, "a: \x00"),
    "a header over two lines": head(LIVE, HOST, "a: b", " c"),
    "a header of 70,000 letters": head(LIVE, HOST, f"a: {'x' * 70_000}"),
    "a header of 1,200,000 letters": head(LIVE, HOST, f"a: {'x' * 1_200_000}"),
    "5,000 headers": head(LIVE, HOST, *(f"a{number}: b" for number in range(5000))),
    "lines that end in a line feed alone": b"GET /livez HTTP/1.1\nHost: x\n\n",
    "an expectation that cannot be met": head(CREATE, HOST, JSON, "Expect: a-miracle", "Content-Length: 0"),
    "a negative length": head(CREATE, HOST, JSON, "Content-Length: -5"),
    "a length in words": head(CREATE, HOST, JSON, "Content-Length: five"),
    "a length with a sign": head(CREATE, HOST, JSON, "Content-Length: +5", body=b"{}   "),
    "a length beyond numbers": head(CREATE, HOST, JSON, "Content-Length: 99999999999999999999"),
    "two lengths": head(CREATE, HOST, JSON, "Content-Length: 1", "Content-Length: 2", body=b"{}"),
    "the same length twice": head(CREATE, HOST, JSON, "Content-Length: 2", "Content-Length: 2", body=b"{}"),
    "a body with a length and in chunks": head(
        CREATE, HOST, JSON, "Content-Length: 2", CHUNKS, body=b"2\r\n{}\r\n0\r\n\r\n"
    ),
    "another transfer encoding": head(CREATE, HOST, JSON, "Transfer-Encoding: gzip, chunked"),
    "a chunk with an extension": head(CREATE, HOST, JSON, CHUNKS, body=b"2;a=b\r\n{}\r\n0\r\n\r\n"),
    "a chunk whose size is not a number": head(CREATE, HOST, JSON, CHUNKS, body=b"x\r\n{}\r\n0\r\n\r\n"),
    "a chunk longer than its size": head(CREATE, HOST, JSON, CHUNKS, body=b"1\r\n{}\r\n0\r\n\r\n"),
    "a read with a body": head(LIVE, HOST, "Content-Length: 3", body=b"abc"),
    "an upgrade to websockets": head(LIVE, HOST, "Connection: Upgrade", "Upgrade: websocket"),
}


@pytest.mark.parametrize("name", SENT)
def test_both_engines_answer_with_the_same_status(name: str, pair: Pair, record_property: Any) -> None:
    embedded, real = pair.statuses(SENT[name])
    record_property("conformance", ["wire", name, "matches" if embedded == real else "differs"])
    if name in ON_THE_WIRE:
        assert embedded != real, f"{name!r} matches now; remove it from divergences.py"
    else:
        assert embedded == real


def test_every_known_divergence_was_sent() -> None:
    assert set(ON_THE_WIRE) <= set(SENT)
