"""Attributes that a class declares and nobody reads, because they are spelt a little differently than they should be."""

from __future__ import annotations

from collections.abc import Iterable
from types import FunctionType
from typing import Any

__all__ = ["refuse_misspelt"]

_CLOSE = 0.8
_CLOSE_METHOD = 0.87
"""People give their own methods names that begin like ours: reconcile_volume."""


def refuse_misspelt(cls: type[Any], known: Iterable[str]) -> None:
    """Raise TypeError for an attribute in the body of `cls` that is nearly one of `known`.

    Silently ignored, `own = ("v1/Service",)` would watch nothing and `finalise` would never clean up.
    """
    names = set(known)
    for name, value in vars(cls).items():
        if name.startswith("_") or name in names:
            continue
        # Late: only a class with attributes of its own pays for it.
        from difflib import get_close_matches

        cutoff = _CLOSE_METHOD if isinstance(value, FunctionType) else _CLOSE
        for meant in get_close_matches(name, names, n=1, cutoff=cutoff):
            raise TypeError(
                f"{cls.__name__}.{name} means nothing here: did you mean {meant}? "
                f"If it is an attribute of your own, call it _{name}."
            )
