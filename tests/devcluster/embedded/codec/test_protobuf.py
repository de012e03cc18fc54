"""Protobuf bodies: hostile ones end in an error, and custom resources do not support them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kapsa.devcluster.embedded.codec.protobuf import MAGIC, MalformedProtobufError, decode, encode

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "one", "labels": {"a": "b"}, "creationTimestamp": "2026-01-02T03:04:05Z"},
    "spec": {
        "containers": [{"name": "main", "image": "i", "resources": {"limits": {"cpu": "1"}}}],
        "terminationGracePeriodSeconds": 0,
        "volumes": [{"name": "v", "emptyDir": {}}],
    },
}


def test_an_object_comes_back_as_it_was() -> None:
    assert decode(encode(POD)) == POD


def test_a_zero_behind_a_pointer_is_kept_and_one_held_by_value_is_not() -> None:
    spec = {"replicas": 0, "paused": False, "selector": {}, "template": {}}
    decoded = decode(encode({"apiVersion": "apps/v1", "kind": "Deployment", "spec": spec}))
    assert decoded["spec"] == {"replicas": 0, "selector": {}}


@pytest.mark.parametrize("cut", range(4, 40, 3))
def test_a_truncated_body_is_rejected(cut: int) -> None:
    with pytest.raises(MalformedProtobufError):
        decode(encode(POD)[:cut])


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_rejected(tail: bytes) -> None:
    try:
        decoded = decode(MAGIC + tail)
    except MalformedProtobufError:
        return
    assert isinstance(decoded["kind"], str)


@given(st.integers(0, 200), st.integers(0, 255))
def test_a_body_with_a_flipped_byte_is_decoded_or_rejected(position: int, byte: int) -> None:
    body = bytearray(encode(POD))
    body[4 + position % (len(body) - 4)] = byte
    try:
        decode(bytes(body))
    except MalformedProtobufError:
        return


def test_messages_nested_too_deeply_end_in_an_error() -> None:
    """A JSON schema contains a JSON schema (`not` is field 28), which nothing on the wire limits."""
    schema = b""
    for _ in range(5_000):
        schema = field(28, schema)
    definition = field(2, field(7, field(4, field(1, schema))))
    kind = field(1, b"apiextensions.k8s.io/v1") + field(2, b"CustomResourceDefinition")
    with pytest.raises(MalformedProtobufError, match="exceeded max depth"):
        decode(MAGIC + field(1, kind) + field(2, definition))


def field(number: int, value: bytes) -> bytes:
    """Return a field with a length, in protobuf's encoding."""
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    head = bytearray()
    while value >= 0x80:
        head.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*head, value])
