"""CEL: expressions are compiled once and evaluated many times, with Kubernetes' own functions beside the standard.

The binding is cel-expr-python (CEL's C++ implementation): it knows types, optional values and code points, and
takes functions in Python. Nothing of it is imported before the first expression is compiled.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cel_expr_python import cel as binding

__all__ = ["CelCompileError", "CelEvaluationError", "Program", "compile_expression"]

_STATUS = re.compile(r"^[A-Z_]+: | \[[A-Z_]+\]$")
_MISSING_KEY = re.compile(r'Key not found in map : "?(.*?)"?$')
_BAD_INDEX = re.compile(r"Index error: index=(-?\d+) size=\d+")


class CelCompileError(ValueError):
    """An expression that does not compile; the text points at the place, as the real server's does."""


class CelEvaluationError(ValueError):
    """An expression that failed on a value; the text is that of the real server's evaluator."""


class Program:
    """A compiled expression."""

    __slots__ = ("_expression", "result")

    def __init__(self, expression: binding.Expression) -> None:
        self._expression = expression
        self.result = expression.return_type().name().lower()
        """The type of the result as the checker knows it: bool, string, dyn..."""

    def evaluate(self, variables: Mapping[str, Any]) -> Any:
        """The result as a Python value.

        :raises CelEvaluationError: when the expression fails, for want of a key for instance.
        """
        value = self._expression.eval(data=variables)
        if value.type().name() == "ERROR":
            raise CelEvaluationError(_evaluation_text(str(value.value())))
        return value.plain_value()

    def serialize(self) -> bytes:
        """The checked expression as a protocol buffer (cel.expr.CheckedExpr in an Any)."""
        checked: bytes = self._expression.serialize()
        return checked


@lru_cache(maxsize=2048)
def compile_expression(expression: str, variables: tuple[tuple[str, str], ...]) -> Program:
    """Compile an expression over `variables`: names with types such as dyn, string or optional_type(dyn).

    :raises CelCompileError: when it is no CEL, or its types do not fit.
    """
    try:
        return Program(_environment(variables).compile(expression))
    except RuntimeError as error:
        raise CelCompileError(_STATUS.sub("", str(error))) from None
    except ModuleNotFoundError as error:
        raise CelCompileError(
            f"CEL expressions need the {error.name} package: pip install 'kapsa[devcluster]'"
        ) from None


@lru_cache(maxsize=64)
def _environment(variables: tuple[tuple[str, str], ...]) -> binding.Env:
    from cel_expr_python import cel
    from cel_expr_python.ext import ext_bindings, ext_optional

    from kapsa.devcluster.embedded.cel_library import declarations

    return cel.NewEnv(
        variables={name: cel.Type(signature) for name, signature in variables},
        functions=declarations(),
        extensions=[ext_optional.ExtOptional(), ext_bindings.ExtBindings()],
    )


def _evaluation_text(text: str) -> str:
    """An error in the words of cel-go, which is what the real server runs."""
    text = _STATUS.sub("", text)
    if found := _MISSING_KEY.search(text):
        return f"no such key: {found[1]}"
    if found := _BAD_INDEX.search(text):
        return f"index out of bounds: {found[1]}"
    if "No matching overloads" in text:
        return "no such overload"
    if "divide by zero" in text or "modulus by zero" in text:
        return "modulus by zero" if "modulus" in text else "division by zero"
    return text
