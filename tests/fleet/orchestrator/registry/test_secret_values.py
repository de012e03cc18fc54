"""Masks that clients send back."""

from __future__ import annotations

from typing import Any

import pytest

from kapsa.fleet.domain.errors import InvalidInput
from kapsa.fleet.domain.values import MASK
from kapsa.fleet.orchestrator.registry.secret_values import restored

PATHS = frozenset({("admin", "password"), ("token",), ("only", "secret")})


def test_masks_at_secret_paths_go_and_everything_else_stays() -> None:
    values = {
        "admin": {"user": "root", "password": MASK},
        "token": "a new one",
        "only": {"secret": MASK},
        "note": MASK,
        "empty": {},
        "list": [MASK],
    }
    assert restored(values, {}, {}, PATHS) == {
        "admin": {"user": "root"},
        "token": "a new one",
        "note": MASK,
        "empty": {},
        "list": [MASK],
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
    with pytest.raises(InvalidInput, match=r"^db: the key •+ stands for no hidden key: read the operator"):
        restored({"db": {MASK: MASK}}, {"db": {"host": "h"}}, {"db": {"host": "h"}}, frozenset())
