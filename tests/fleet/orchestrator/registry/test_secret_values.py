"""Masks that clients send back."""

from __future__ import annotations

from kapsa.fleet.domain.values import MASK
from kapsa.fleet.orchestrator.registry.secret_values import without_masks

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
    assert without_masks(values, PATHS) == {
        "admin": {"user": "root"},
        "token": "a new one",
        "note": MASK,
        "empty": {},
        "list": [MASK],
    }
