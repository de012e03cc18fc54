"""The metered forms of an evaluation's parts: each adds its cost, and ends an evaluation that costs too much.

They do what `Meter.charge` does without calling it: a call for each part would take a third of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kapsa.schemas.cel.costs.meter import CostExceededError, cost_function
from kapsa.schemas.cel.folds import METER, Evaluate, Frame
from kapsa.schemas.cel.language.syntax import CallNode

__all__ = ["charged", "metered_call", "metered_variable"]


def charged(run: Evaluate, cost: int) -> Evaluate:
    """Return a function that charges a constant first."""

    def run_charged(frame: Frame) -> Any:
        meter = frame[METER]
        meter.cost += cost
        if meter.cost > meter.limit:
            raise CostExceededError
        return run(frame)

    return run_charged


def metered_variable(name: str) -> Evaluate:
    """Return the function that reads a variable, which costs 1."""

    def read(frame: Frame) -> Any:
        meter = frame[METER]
        meter.cost += 1
        if meter.cost > meter.limit:
            raise CostExceededError
        value = frame[name]
        if isinstance(value, BaseException):
            raise value
        return value

    return read


def metered_call(node: CallNode, compute: Callable[..., Any], arguments: Sequence[Evaluate]) -> Evaluate:
    """Return the function of a call, which costs what its arguments and result make it cost."""
    overload = node.overloads[0].id if len(node.overloads) == 1 else ""
    cost_of = cost_function(node.function, overload)

    def run(frame: Frame) -> Any:
        values = [argument(frame) for argument in arguments]
        result = compute(*values)
        meter = frame[METER]
        meter.cost += 1 if cost_of is None else cost_of(overload, values, result)
        if meter.cost > meter.limit:
            raise CostExceededError
        return result

    return run
