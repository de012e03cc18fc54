"""The loops of CEL: `all`, `exists`, `map`, `filter` and the other macros that go over a list or a map.

A frame holds the values of the variables. A loop sets its own variables in it and restores what they hid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kapsa.schemas.cel.costs.meter import LIST_COST
from kapsa.schemas.cel.language.syntax import CallNode, Comprehension, ListLiteral, Node
from kapsa.schemas.cel.values import NO_OVERLOAD, CelEvaluationError

__all__ = [
    "ABSENT",
    "ERRORS",
    "METER",
    "Evaluate",
    "Frame",
    "binding",
    "collected",
    "collection",
    "fold",
    "metered_quantifier",
    "quantifier",
]

Frame = dict[str, Any]
Evaluate = Callable[[Frame], Any]
METER = "@meter"
"""The name of the variable that holds the meter of a metered evaluation."""
ABSENT: Any = object()
ERRORS = (CelEvaluationError, TypeError, AttributeError)
"""The errors of an evaluation; values that do not have their declared type cause Python's own."""


def _pairs(node: Comprehension, value: Any) -> Iterable[tuple[Any, Any]]:
    """Return the values of both iteration variables; without a second one, it is None."""
    if isinstance(value, list):
        return enumerate(value) if node.variable2 else ((item, None) for item in value)
    if isinstance(value, dict):
        return list(value.items()) if node.variable2 else ((key, None) for key in list(value))
    raise CelEvaluationError(NO_OVERLOAD)


def _set(frame: Frame, name: str, value: Any) -> Any:
    before = frame.get(name, ABSENT)
    frame[name] = value
    return before


def _restore(frame: Frame, name: str, before: Any) -> None:
    if before is ABSENT:
        frame.pop(name, None)
    else:
        frame[name] = before


def binding(name: str, value: Evaluate, result: Evaluate) -> Evaluate:
    def run(frame: Frame) -> Any:
        before = _set(frame, name, value(frame))
        try:
            return result(frame)
        finally:
            _restore(frame, name, before)

    return run


def collected(node: Comprehension) -> tuple[Node | None, Node] | None:
    """Return the filter and the item of a fold that appends to a list, None for other folds."""
    if not isinstance(node.initial, ListLiteral) or not isinstance(node.step, CallNode):
        return None
    step, keep = node.step, None
    if step.function == "_?_:_":
        keep, inner = step.args[0], step.args[1]
        if not isinstance(inner, CallNode):
            return None
        step = inner
    added = step.args[1] if step.function == "_+_" else None
    return (keep, added.elements[0]) if isinstance(added, ListLiteral) and len(added.elements) == 1 else None


def collection(
    node: Comprehension, iterated: Evaluate, keep: Evaluate | None, item: Evaluate, metered: bool
) -> Evaluate:
    """Return the function of `map`, `filter` and `transformList`: a list that grows in place."""
    first, second = node.variable, node.variable2 or "@unused"

    def run(frame: Frame) -> list[Any]:
        values: list[Any] = []
        before = frame.get(first, ABSENT), frame.get(second, ABSENT)
        try:
            pairs = _pairs(node, iterated(frame))
            for frame[first], frame[second] in pairs:
                kept = True if keep is None else keep(frame)
                if metered:
                    frame[METER].charge(LIST_COST + 2 if kept else 0)
                if kept is True:
                    values.append(item(frame))
                elif kept is not False:
                    raise CelEvaluationError(NO_OVERLOAD)
        finally:
            _restore(frame, first, before[0])
            _restore(frame, second, before[1])
        if metered:
            frame[METER].charge(LIST_COST + 1)
        return values

    return run


def quantifier(node: Comprehension, iterated: Evaluate, predicate: Evaluate, *, decisive: bool) -> Evaluate:
    """Return the function of `all` and `exists`: the first decisive value ends it, even after an error."""
    first, second = node.variable, node.variable2 or "@unused"

    def run(frame: Frame) -> Any:
        pairs = _pairs(node, iterated(frame))
        before = frame.get(first, ABSENT), frame.get(second, ABSENT)
        failure: Exception | None = None
        try:
            for frame[first], frame[second] in pairs:
                try:
                    value = predicate(frame)
                except ERRORS as error:
                    failure = failure or error
                    continue
                if value is decisive:
                    return decisive
                if type(value) is not bool:
                    failure = failure or CelEvaluationError(NO_OVERLOAD)
        finally:
            _restore(frame, first, before[0])
            _restore(frame, second, before[1])
        if failure is not None:
            raise failure
        return not decisive

    return run


def metered_quantifier(
    node: Comprehension, iterated: Evaluate, predicate: Evaluate, *, decisive: bool
) -> Evaluate:
    """Return the same with a meter.

    An item costs what the condition and the accumulator of the macro cost in cel-go: the condition of `exists` has a
    negation, which is not reached after an error. The condition is looked at once more after a decisive value.
    """
    first, second = node.variable, node.variable2 or "@unused"
    condition = 3 if decisive else 2

    def run(frame: Frame) -> Any:
        pairs = iter(_pairs(node, iterated(frame)))
        before = frame.get(first, ABSENT), frame.get(second, ABSENT)
        failure: Exception | None = None
        meter, item_cost = frame[METER], condition + 1
        try:
            for frame[first], frame[second] in pairs:
                meter.charge(item_cost)
                try:
                    value = predicate(frame)
                except ERRORS as error:
                    failure, item_cost = failure or error, 3
                    continue
                if value is decisive:
                    meter.charge(1 if next(pairs, None) is None else condition + 1)
                    return decisive
                if type(value) is not bool:
                    failure, item_cost = failure or CelEvaluationError(NO_OVERLOAD), 3
        finally:
            _restore(frame, first, before[0])
            _restore(frame, second, before[1])
        meter.charge(1)
        if failure is not None:
            raise failure
        return not decisive

    return run


def fold(
    node: Comprehension,
    iterated: Evaluate,
    initial: Evaluate,
    condition: Evaluate,
    step: Evaluate,
    result: Evaluate,
) -> Evaluate:
    first, second, accumulator = node.variable, node.variable2 or "@unused", node.accumulator

    def run(frame: Frame) -> Any:
        pairs = _pairs(node, iterated(frame))
        names = (first, second, accumulator)
        before = [frame.get(name, ABSENT) for name in names]
        frame[accumulator] = initial(frame)
        try:
            for frame[first], frame[second] in pairs:
                if condition(frame) is not True:
                    break
                try:
                    frame[accumulator] = step(frame)
                except ERRORS as error:
                    frame[accumulator] = error
            return result(frame)
        finally:
            for name, value in zip(names, before, strict=True):
                _restore(frame, name, value)

    return run
