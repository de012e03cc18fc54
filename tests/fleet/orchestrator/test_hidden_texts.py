"""Values for people: no secret in any form, and the chart still gets what was asked for."""

from __future__ import annotations

import base64
import time
from typing import Any

import pytest
from hypothesis import example, given, reject
from hypothesis import strategies as st

from kapsa.fleet.domain.errors import InvalidInput
from kapsa.fleet.domain.values import MASK, merge_values
from kapsa.fleet.orchestrator.hidden_texts import HiddenTexts, seal_sensitive, shown_values

PASSWORD = "hunter2-very-secret"
HIDDEN = HiddenTexts([PASSWORD, "123456"])
_KEYS = st.sampled_from(["a", "b", "c", f"key-{PASSWORD}"])
_LEAVES = st.one_of(
    st.none(), st.booleans(), st.sampled_from([1, 123456, "text", PASSWORD, f"https://x/{PASSWORD}", MASK])
)
_NODES = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=8,
)
_VALUES = st.dictionaries(_KEYS, _NODES, max_size=3)


@given(layer=_VALUES, values=_VALUES, secret=_VALUES)
@example(layer={"a": {"b": 1}}, values={"a": None}, secret={"a": {"c": 1}})
def test_sealing_shows_no_secret_and_changes_nothing_that_the_chart_gets(
    layer: dict[str, Any], values: dict[str, Any], secret: dict[str, Any]
) -> None:
    try:
        shown, sealed = seal_sensitive(values, secret, HIDDEN)
    except InvalidInput:
        reject()
    assert PASSWORD not in str(shown)
    assert "123456" not in str(shown)
    assert merge_values(layer, shown, sealed) == merge_values(layer, values, secret)


@pytest.mark.parametrize("value", [None, 1, "text", [1]])
@pytest.mark.parametrize("path", [(), ("b",), (f"key-{PASSWORD}",)], ids=["top", "below", "below-another"])
def test_a_map_that_replaces_a_value_whose_key_is_hidden_is_refused(
    value: Any, path: tuple[str, ...]
) -> None:
    """The sealed layer alone cannot say that entries of the map in a layer below it must go."""
    values: dict[str, Any] = {f"key-{PASSWORD}": value}
    secret: dict[str, Any] = {f"key-{PASSWORD}": {"a": 1}}
    for key in path:
        values, secret = {key: values}, {key: secret}
    with pytest.raises(InvalidInput, match="leave it out of values") as refusal:
        seal_sensitive(values, secret, HIDDEN)
    assert PASSWORD not in str(refusal.value)


@pytest.mark.parametrize("value", [None, 1, PASSWORD, [PASSWORD]])
def test_a_map_may_replace_a_value_whose_key_is_shown(value: Any) -> None:
    shown, sealed = seal_sensitive({"db": value}, {"db": {"a": 1}}, HIDDEN)
    assert merge_values({"db": {"b": 2}}, shown, sealed) == {"db": {"a": 1}}


@pytest.mark.parametrize(
    "text",
    [
        f"postgres://app:{PASSWORD}@db/app",
        base64.b64encode(PASSWORD.encode()).decode(),
        f"--creds={base64.b64encode(f'user:{PASSWORD}'.encode()).decode()}",
        "https://user:word@registry.example.com",
        "ghp_" + "a1B2" * 9,
        123456,
    ],
    ids=["in-a-url", "coded", "coded-in-a-text", "a-login", "a-token", "a-number"],
)
def test_a_value_that_shows_a_secret_is_masked(text: str | int) -> None:
    assert seal_sensitive({"a": text, "b": "info"}, {}, HIDDEN)[0] == {"a": MASK, "b": "info"}


def test_values_at_secret_paths_are_masked_and_so_is_what_repeats_them() -> None:
    values = {
        "db": {"password": PASSWORD, "host": "db"},
        "env": [f"PASS={PASSWORD}"],
        "none": None,
        "map": {},
    }
    shown, count = shown_values(values, frozenset({("db", "password")}))
    assert shown == {"db": {"password": MASK, "host": "db"}, "env": MASK, "none": None, "map": {}}
    assert count == 1


def test_an_entry_that_is_hidden_because_of_its_key_is_seen_to_be_there() -> None:
    values = {
        "user": "admin",
        "admin": {"enabled": True, "level": 3},
        "roles": {"admin-role": "x"},
        "image": "registry.example.com/admin-panel:1",
        "log": {"level": "info"},
    }
    shown, count = shown_values(values, frozenset({("user",)}))
    assert shown == {
        "user": MASK,
        MASK: MASK,
        "roles": {MASK: MASK},
        "image": MASK,
        "log": {"level": "info"},
    }
    assert count == 4


def test_more_texts_than_can_be_compared_are_all_sealed_at_once() -> None:
    values = {f"key-{number}": f"text-{number}" for number in range(20_000)}
    secret = {f"secret-{number}": f"hidden-{number}" for number in range(20_000)}
    started = time.process_time()
    shown, sealed = seal_sensitive(values, secret, HiddenTexts(secret.values()))
    assert time.process_time() - started < 5
    assert shown == {}
    assert merge_values(shown, sealed) == merge_values(values, secret)


def test_no_key_is_shown_of_more_texts_than_can_be_compared() -> None:
    values = {f"for-{PASSWORD}": {"a": "b"}, **{f"key-{number}": {"a": "b"} for number in range(1000)}}
    secrets = [PASSWORD, *(f"hidden-{number}" for number in range(1000))]
    assert shown_values(values, frozenset({("key-1", "a")}), HiddenTexts(secrets)) == ({MASK: MASK}, 1000)
