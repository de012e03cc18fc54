"""CEL expressions with the functions that Kubernetes adds, compiled once and evaluated many times.

The binding is cel-expr-python, CEL's C++ implementation. It supports types, optional values and code points,
and takes functions written in Python. It is imported when the first expression is compiled.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cel_expr_python import cel as binding

__all__ = ["CelCompileError", "CelEvaluationError", "Checker", "Program", "compile_expression"]

_STATUS = re.compile(r"^[A-Z_]+: | \[[A-Z_]+\]$")
_MISSING_KEY = re.compile(r'Key not found in map : "?(.*?)"?$')
_METHOD = re.compile(r"(?<=overload for ')(\w+)' applied to '\(([^,()]*(?:\([^()]*\))?)(?:, )?(.*)\)'")
_PROBLEM = re.compile(r"(?m)^(?=ERROR: )")
_STRUCT = re.compile(r" not found in struct '[^']*'")
_NUMBER = "(?:int|uint|double)"
_MIXED_NUMBERS = re.compile(rf"overload for '_[<>]=?_' applied to '\({_NUMBER}, {_NUMBER}\)'")
_BAD_INDEX = re.compile(r"Index error: index=(-?\d+) size=\d+")


class CelCompileError(ValueError):
    """An expression that does not compile; the text points at the position, as kube-apiserver's does."""


class CelEvaluationError(ValueError):
    """An expression that failed on a value; the text is that of cel-go, kube-apiserver's evaluator."""


class Program:
    """A compiled expression."""

    __slots__ = ("_expression", "result")

    def __init__(self, expression: binding.Expression) -> None:
        self._expression = expression
        self.result = expression.return_type().name().lower()
        """The checker's type of the result: bool, string, dyn..."""

    def evaluate(self, variables: Mapping[str, Any]) -> Any:
        """Return the result as a Python value.

        Raises CelEvaluationError if the expression fails, for example because a key is missing.
        """
        value = self._expression.eval(data=variables)
        if value.type().name() == "ERROR":
            raise CelEvaluationError(_evaluation_text(str(value.value())))
        return value.plain_value()


@lru_cache(maxsize=2048)
def compile_expression(expression: str, variables: tuple[tuple[str, str], ...]) -> Program:
    """Compile an expression over `variables`: names with types such as dyn, string or optional_type(dyn).

    Raises CelCompileError if the syntax is invalid or the types do not match.
    """
    try:
        environment = _environment(variables)
        try:
            return Program(environment.compile(expression))
        except RuntimeError as error:
            if _compile_text(str(error)):
                raise
            return Program(environment.compile(expression, disable_check=True))
    except RuntimeError as error:
        raise CelCompileError(_compile_text(str(error))) from None
    except ModuleNotFoundError as error:
        raise CelCompileError(
            f"CEL expressions need the package {error.name}; install it with: pip install 'kapsa[devcluster]'"
        ) from None


class Checker:
    """A type checker for expressions over variables whose types may be messages of a descriptor pool."""

    def __init__(self, variables: Mapping[str, str], pool: Any) -> None:
        self._environment = _new_environment(variables, pool)

    def check(self, expression: str) -> str:
        """Return the type of an expression.

        Raises CelCompileError if the syntax is invalid or the types do not match.
        """
        try:
            checked = self._environment.compile(expression)
        except RuntimeError as error:
            text = _compile_text(str(error))
            if not text:
                return "dyn"
            raise CelCompileError(text) from None
        type_name: str = checked.return_type().name().lower()
        return type_name


@lru_cache(maxsize=64)
def _environment(variables: tuple[tuple[str, str], ...]) -> binding.Env:
    return _new_environment(dict(variables), None)


def _new_environment(variables: Mapping[str, str], pool: Any) -> binding.Env:
    from cel_expr_python import cel
    from cel_expr_python.ext import ext_optional

    from kapsa.schemas.cel.library import declarations

    return cel.NewEnv(
        descriptor_pool=pool,
        variables={name: cel.Type(signature) for name, signature in variables.items()},
        functions=declarations(),
        extensions=[ext_optional.ExtOptional()],
    )


def _compile_text(text: str) -> str:
    """Return the compiler's message in the words of cel-go, "" if Kubernetes would accept the expression."""
    problems = _PROBLEM.split(_STATUS.sub("", text))
    kept = [
        _STRUCT.sub("", problem)
        for problem in problems
        # Kubernetes compares numbers of different types; an operand of type *error* repeats an earlier error.
        if problem and _MIXED_NUMBERS.search(problem) is None and "'*error*'" not in problem
    ]
    return "".join(_with_receiver(problem) for problem in kept).rstrip("\n")


def _with_receiver(problem: str) -> str:
    """Show the receiver of a method in front of its arguments, as cel-go does."""
    return _METHOD.sub(
        lambda match: (
            f"{match[1]}' applied to '{match[2]}.({match[3]})'" if _is_method(problem, match[1]) else match[0]
        ),
        problem,
    )


def _is_method(text: str, name: str) -> bool:
    return re.search(rf"\.\s*{re.escape(name)}\s*\(", text) is not None


def _evaluation_text(text: str) -> str:
    """Return an evaluation error in the words of cel-go."""
    text = _STATUS.sub("", text)
    if match := _MISSING_KEY.search(text):
        return f"no such key: {match[1]}"
    if match := _BAD_INDEX.search(text):
        return f"index out of bounds: {match[1]}"
    if "No matching overloads" in text:
        return "no such overload"
    if "divide by zero" in text or "modulus by zero" in text:
        return "modulus by zero" if "modulus" in text else "division by zero"
    return text
