"""YAML that is not trusted."""

from __future__ import annotations

from typing import Any

import pytest

from kapsa.adapters.errors import LimitExceeded, RenderFailed
from kapsa.adapters.manifests.yaml_documents import YamlLimits, load_documents, load_objects


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2026-01-01", "2026-01-01"),
        ("1:30", "1:30"),
        ("0777", 511),
        ("0o17", 15),
        ("0x1F", 31),
        ("1e3", 1000),
        ("1.5", 1.5),
        ("yes", True),
        ("off", False),
        ("~", None),
        ('"yes"', "yes"),
        ("12e", "12e"),
        ("1_000", 1000),
    ],
)
def test_a_scalar_means_what_it_means_to_kubernetes(text: str, value: Any) -> None:
    assert load_documents(f"a: {text}\n80: b".encode(), "file") == [{"a": value, "80": "b"}]


@pytest.mark.parametrize("text", [".inf", "-.INF", "+.Inf", ".nan", ".NaN", "1e999", "!!float .inf"])
def test_a_number_that_json_does_not_have_is_rejected_as_by_kubernetes(text: str) -> None:
    with pytest.raises(RenderFailed, match=r"file is not YAML: line 2: the number .* is out of range"):
        load_documents(f"a: 1\nb: {text}".encode(), "file")
    assert load_documents(b'a: ".inf"', "file") == [{"a": ".inf"}]


def test_a_duplicated_key_is_rejected_with_its_line() -> None:
    with pytest.raises(RenderFailed, match=r"app.yaml, line 4: the key 'replicas' is duplicated"):
        load_documents(b"spec:\n  replicas: 1\n  paused: true\n  replicas: 9\n", "app.yaml")


def test_a_bomb_of_aliases_is_refused_before_it_expands() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(LimitExceeded, match="aliases expanded"):
        load_documents("\n".join(lines).encode(), "bomb.yaml")


def test_a_long_chain_of_aliases_is_refused_too() -> None:
    lines = ["a0: &a0 [x]", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 400))]
    with pytest.raises(LimitExceeded):
        load_documents("\n".join(lines).encode(), "chain.yaml")


def test_an_alias_that_contains_itself_is_rejected() -> None:
    with pytest.raises(RenderFailed, match="contains itself"):
        load_documents(b"a: &a [*a]", "file")


@pytest.mark.parametrize("content", [b"[" * 1_000_000, b"- " * 100_000, b"{a: " * 100_000])
def test_deep_nesting_is_refused_and_does_not_crash_the_process(content: bytes) -> None:
    with pytest.raises(LimitExceeded, match="levels deep"):
        load_documents(content, "deep.yaml")


def test_ordinary_anchors_and_merge_keys_work() -> None:
    text = b"base: &base {a: 1}\nuse: {<<: *base, b: 2}\nagain: *base\n"
    assert load_documents(text, "file")[0]["use"] == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    "text",
    [
        b"a: !!python/object/apply:os.system [id]",
        b"a: !!binary aGk=",
        b"a: !Ref x",
        b"a: [b",
        b"\xff\xfe\xfd",
        b"? [a]\n: b",
    ],
)
def test_non_standard_yaml_is_rejected(text: bytes) -> None:
    with pytest.raises(RenderFailed, match="file"):
        load_documents(text, "file")


def test_size_and_number_of_documents_are_limited() -> None:
    with pytest.raises(LimitExceeded):
        load_documents(b"a: 1\n" * 100, "file", YamlLimits(bytes=100))
    with pytest.raises(LimitExceeded):
        load_documents(b"---\na: 1\n" * 20, "file", YamlLimits(documents=10))


def test_lists_are_expanded_and_empty_documents_skipped() -> None:
    item = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}"
    text = f"---\n# nothing\n---\n{item}\n---\napiVersion: v1\nkind: List\nitems: [{item}, {item}]\n"
    assert [each["kind"] for each in load_objects(text.encode(), "file")] == ["ConfigMap"] * 3


@pytest.mark.parametrize(
    "text", ["just text", "[1, 2]", "a: 1", "{apiVersion: v1, kind: ConfigMap}", "{apiVersion: 1, kind: x}"]
)
def test_a_document_that_is_not_an_object_is_rejected(text: str) -> None:
    with pytest.raises(RenderFailed):
        load_objects(text.encode(), "file")
