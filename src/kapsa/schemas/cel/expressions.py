"""CEL expressions with the functions that Kubernetes adds, compiled once and evaluated many times."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from kapsa.schemas.cel.checker import MessageTypes, check
from kapsa.schemas.cel.costs.meter import CostExceededError, Meter
from kapsa.schemas.cel.interpreter import METER, Evaluate, build
from kapsa.schemas.cel.language.parser import TOO_DEEP
from kapsa.schemas.cel.language.syntax import CelCompileError, Node
from kapsa.schemas.cel.language.types import Type, parse_type
from kapsa.schemas.cel.library.signatures import Functions
from kapsa.schemas.cel.values import NO_OVERLOAD, CelEvaluationError

__all__ = [
    "CelCompileError",
    "CelEvaluationError",
    "CostExceededError",
    "Program",
    "compile_expression",
    "compile_typed",
]


class Program:
    """A compiled expression."""

    __slots__ = ("_metered", "_plain", "result", "root")

    def __init__(self, root: Node) -> None:
        self.root = root
        self.result = root.type.type_name
        """The checker's type of the result: bool, string, dyn..."""
        self._plain: Evaluate | None = None
        self._metered: Evaluate | None = None

    def evaluate(self, variables: Mapping[str, Any]) -> Any:
        """Return the result.

        Raises CelEvaluationError if the expression fails, for example because a key is missing.
        """
        if self._plain is None:
            self._plain = _built(self.root, metered=False)
        return _run(self._plain, dict(variables))

    def evaluate_metered(self, variables: Mapping[str, Any], limit: int) -> tuple[Any, int]:
        """Return the result and what it cost.

        Raises CelEvaluationError if the expression fails, and CostExceededError if it costs more than `limit`.
        """
        if self._metered is None:
            self._metered = _built(self.root, metered=True)
        meter = Meter(limit)
        value = _run(self._metered, {**variables, METER: meter})
        return value, meter.cost


def _built(root: Node, *, metered: bool) -> Evaluate:
    try:
        return build(root, metered=metered)
    except RecursionError:
        raise CelEvaluationError("expression is nested too deeply") from None


def _run(evaluate: Evaluate, frame: dict[str, Any]) -> Any:
    try:
        return evaluate(frame)
    except (TypeError, AttributeError):
        # A value that does not have its declared type, such as a null.
        raise CelEvaluationError(NO_OVERLOAD) from None
    except RecursionError:
        raise CelEvaluationError("expression is nested too deeply") from None


def compile_typed(
    expression: str,
    variables: Mapping[str, Type],
    functions: Functions | None = None,
    messages: MessageTypes | None = None,
) -> Program:
    """Compile an expression over typed variables.

    `functions` are added to those of the library; `messages` are the types that the expression may construct.

    Raises CelCompileError if the syntax is invalid or the types do not match.
    """
    try:
        return Program(check(expression, variables, functions, messages))
    except RecursionError:
        raise CelCompileError(TOO_DEEP) from None


@lru_cache(maxsize=2048)
def compile_expression(expression: str, variables: tuple[tuple[str, str], ...]) -> Program:
    """Compile an expression over `variables`: names with types such as dyn, string or optional_type(dyn).

    Raises CelCompileError if the syntax is invalid or the types do not match.
    """
    return compile_typed(expression, {name: parse_type(text) for name, text in variables})
