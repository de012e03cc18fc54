"""Misspelt attributes of a class, which would be ignored."""

from __future__ import annotations

from collections.abc import Iterable
from types import FunctionType
from typing import Any

__all__ = ["reject_misspelt"]

_CLOSE = 0.8
_CLOSE_METHOD = 0.87
"""Higher, because users give methods of their own similar names, such as reconcile_volume."""


def reject_misspelt(cls: type[Any], declared: Iterable[str]) -> None:
    """Raise TypeError for an attribute in the body of `cls` whose name is close to one of `declared`.

    Otherwise `own = ("v1/Service",)` would silently watch nothing, and `finalise` would never clean up.
    """
    names = set(declared)
    for name, value in vars(cls).items():
        if name.startswith("_") or name in names:
            continue
        # Imported late: only a class with attributes of its own pays for it.
        from difflib import get_close_matches

        cutoff = _CLOSE_METHOD if isinstance(value, FunctionType) else _CLOSE
        for meant in get_close_matches(name, names, n=1, cutoff=cutoff):
            raise TypeError(
                f"{cls.__name__}.{name} would be ignored: did you mean {meant}? "
                f"If it is an attribute of your own, rename it to _{name}."
            )
