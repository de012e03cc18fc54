"""The empty object of each built-in kind: what the real server compares a new object with.

Its Go structs always write some fields (`spec`, `status`, a pod template's `metadata`), so whoever creates an object
owns what is in them but not the structs themselves. The data file is made by tools/controlplane/zeros.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

__all__ = ["zero_object"]

_DATA_FILE = "zeros-1.36.json"


def zero_object(api_version: str, kind: str) -> dict[str, Any]:
    """A new, empty object of a kind. Custom resources have nothing but their type."""
    return {"apiVersion": api_version, "kind": kind, **_zeros().get(f"{api_version}/{kind}", {})}


@cache
def _zeros() -> dict[str, dict[str, Any]]:
    raw = files(__package__).joinpath("data", _DATA_FILE).read_bytes()
    return msgspec.json.decode(raw, type=dict[str, dict[str, Any]])
