"""The functions of CEL that kube-apiserver offers in rules, and no others.

They are the standard ones (`operators`, `times`), the extensions of cel-go (`text`, `lists`, `optionals`), and
those of Kubernetes (`lists`, `text`, `numbers`, `networks`, `formats`, `authorization`).
"""

from __future__ import annotations

from kapsa.schemas.cel.library import (
    authorization,
    formats,
    lists,
    networks,
    numbers,
    operators,
    optionals,
    text,
    times,
)
from kapsa.schemas.cel.library.signatures import Functions

__all__ = ["FUNCTIONS"]

FUNCTIONS: Functions = {}
"""All functions by name; methods and operators are functions, too."""
for _family in (operators, times, text, lists, optionals, networks, numbers, formats, authorization):
    for _name, _overloads in _family.FUNCTIONS.items():
        FUNCTIONS.setdefault(_name, []).extend(_overloads)
