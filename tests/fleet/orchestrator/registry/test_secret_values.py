"""Masks that clients send back."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kapsa.fleet.domain.errors import InvalidInput
from kapsa.fleet.domain.registry.operators import ManagedOperator, UploadedChart
from kapsa.fleet.domain.values import MASK, leaf_paths, merge_values
from kapsa.fleet.orchestrator.registry.operator_views import shown_operator
from kapsa.fleet.orchestrator.registry.secret_values import refuse_masks, restored

PASSWORD = "hunter2-very-secret"
_KEYS = st.sampled_from(["a", "b", f"key-{PASSWORD}"])
_LEAVES = st.sampled_from([None, True, "text", f"https://x/{PASSWORD}", ["text"], [PASSWORD]])
_VALUES = st.dictionaries(_KEYS, st.dictionaries(_KEYS, st.dictionaries(_KEYS, _LEAVES) | _LEAVES) | _LEAVES)

PATHS = frozenset({("admin", "password"), ("token",), ("only", "secret")})


def test_masks_at_secret_paths_go_and_everything_else_stays() -> None:
    values = {
        "admin": {"user": "root", "password": MASK},
        "token": "a new one",
        "only": {"secret": MASK},
        "empty": {},
        "list": ["text"],
    }
    assert restored(values, {}, {}, PATHS) == {
        "admin": {"user": "root"},
        "token": "a new one",
        "empty": {},
        "list": ["text"],
    }


def test_a_mask_that_was_shown_keeps_the_stored_value_and_hidden_entries() -> None:
    stored = {"url": "https://u:p@h", "db": {"secret-key": 1, "other-key": {"a": 2}, "host": "h"}, "gone": 1}
    shown = {"url": MASK, "db": {MASK: MASK, "host": "h"}, "gone": 1, "token": MASK}
    sent: dict[str, Any] = {"url": MASK, "db": {MASK: MASK, "host": "new", "other-key": 3}, "token": MASK}
    assert restored(sent, stored, shown, frozenset()) == {
        "url": "https://u:p@h",
        "db": {"secret-key": 1, "other-key": 3, "host": "new"},
    }
    assert restored({"db": {"host": "new"}}, stored, shown, frozenset()) == {"db": {"host": "new"}}


def test_a_masked_key_that_stands_for_nothing_is_refused() -> None:
    with pytest.raises(
        InvalidInput, match=r"^values.db: the key •+ stands for no hidden key: read the operator"
    ):
        restored({"db": {MASK: MASK}}, {"db": {"host": "h"}}, {"db": {"host": "h"}}, frozenset())


@pytest.mark.parametrize(
    ("sent", "path"),
    [
        ({"db": {"dsn": MASK}}, "values.db.dsn"),
        ({"level": MASK}, "values.level"),
        ({"list": ["text", {"a": [MASK]}]}, "values.list.1.a.0"),
        ({"renamed": MASK}, "values.renamed"),
    ],
    ids=["moved", "at-a-visible-value", "in-a-list", "renamed"],
)
def test_a_mask_that_stands_for_nothing_hidden_is_refused_with_its_path(
    sent: dict[str, Any], path: str
) -> None:
    stored = {"dsn": "postgres://u:p@h", "level": "info"}
    with pytest.raises(
        InvalidInput, match=f"^{path}: •+ stands for nothing that is hidden here: send"
    ) as error:
        restored(sent, stored, {"dsn": MASK, "level": "info", "token": MASK}, PATHS)
    assert error.value.fields[0].path == "/" + path.replace(".", "/")


def test_a_mask_that_was_shown_before_all_values_were_hidden_keeps_the_stored_value() -> None:
    stored = {"dsn": "postgres://u:p@h", "db": {"url": "https://u:p@h"}, "replicas": 1}
    sent = {"dsn": MASK, "db": {"url": MASK}, "replicas": 2}
    assert restored(sent, stored, {MASK: MASK}, frozenset()) == {**stored, "replicas": 2}


def test_a_masked_key_with_a_value_of_its_own_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"^values: the key •+ stands for hidden keys, which have values"):
        restored({MASK: {"on": True}}, {"secret-key": 1}, {MASK: MASK}, frozenset())


def test_new_values_have_no_mask_in_a_key_or_a_value() -> None:
    refuse_masks("values", {"a": {"b": ["c", 1, None]}})
    for values, path in (({"a": {"b": [MASK]}}, "values.a.b.0"), ({"a": {MASK: 1}}, f"values.a.{MASK}")):
        with pytest.raises(InvalidInput, match=f"^{path}: "):
            refuse_masks("values", values)


@example(stored={"a": {"b": "text"}, "c": 1}, secret={"a": {"a": PASSWORD}}, opened=False, more={})
@given(stored=_VALUES, secret=_VALUES, opened=st.booleans(), more=st.sampled_from([{}, {"new": 1}]))
def test_values_that_are_sent_back_as_they_were_shown_change_nothing_for_the_chart(
    stored: dict[str, Any], secret: dict[str, Any], opened: bool, more: dict[str, Any]
) -> None:
    operator = ManagedOperator(
        id=uuid.UUID(int=1),
        name="widget",
        namespace="widgets",
        source=UploadedChart("widget"),
        values=stored,
        environment_values={},
        cluster_values={},
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        created_by="maria",
        secret_paths=tuple(leaf_paths(secret)),
    )
    shown = shown_operator(operator, secret if opened else None).values
    result = restored({**shown, **more}, stored, shown, leaf_paths(secret))
    assert merge_values(result, secret) == merge_values(stored, more, secret)
