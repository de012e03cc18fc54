"""The expressions of a policy on one request: conditions, variables, validations and messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["ExpressionError", "PolicyExpressions"]

Object = dict[str, Any]
_VARIABLE = re.compile(r"\bvariables\.([A-Za-z_][A-Za-z0-9_]*)")
_TYPES = {"authorizer": "kubernetes.authorization.Authorizer"}


class ExpressionError(Exception):
    """An expression that failed, in the words of the real server."""


class PolicyExpressions:
    """The expressions of one policy, with the values of one request."""

    def __init__(self, spec: Object, values: Mapping[str, Any]) -> None:
        self._spec = spec
        self._values = dict(values)
        self._expressions = {each["name"]: each["expression"] for each in spec.get("variables") or ()}
        self._variables: dict[str, Any] = {}
        self._failed: dict[str, str] = {}

    def matches(self) -> bool:
        """Return whether all match conditions hold. Raises ExpressionError when one fails and none is false."""
        problems: list[str] = []
        for condition in self._spec.get("matchConditions") or ():
            try:
                if self.evaluate(condition["expression"], with_variables=False) is not True:
                    return False
            except ExpressionError as error:
                problems.append(str(error))
        if problems:
            raise ExpressionError(problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")
        return True

    def message(self, validation: Object) -> str:
        """Return the message of a validation that does not hold."""
        if validation.get("messageExpression"):
            try:
                text = self.evaluate(validation["messageExpression"])
            except ExpressionError:
                text = None
            if isinstance(text, str) and text.strip() and "\n" not in text.strip():
                return text.strip()
        given = (validation.get("message") or "").strip()
        return given or f"failed expression: {validation['expression'].strip()}"

    def evaluate(self, expression: str, *, with_variables: bool = True) -> Any:
        """Return the value of an expression. Raises ExpressionError when it fails."""
        # CEL is imported with the first policy, as in kapsa.schemas: a server without any starts sooner.
        from kapsa.schemas.cel.expressions import CelCompileError, CelEvaluationError, compile_expression

        values = dict(self._values)
        if with_variables:
            values["variables"] = self._variables_of(expression)
        types = tuple((name, _TYPES.get(name, "dyn")) for name in values)
        try:
            return compile_expression(expression, types).evaluate(values)
        except CelCompileError as error:
            raise ExpressionError(f"compilation error: compilation failed: {error}") from None
        except CelEvaluationError as error:
            raise ExpressionError(f"expression '{expression}' resulted in error: {error}") from None

    def _variables_of(self, expression: str) -> dict[str, Any]:
        """Return the variables that an expression uses, each evaluated once."""
        for name in _VARIABLE.findall(expression):
            if name in self._variables or name not in self._expressions:
                continue
            if name not in self._failed:
                try:
                    self._variables[name] = self.evaluate(self._expressions[name])
                    continue
                except ExpressionError as error:
                    inner = str(error).partition("' resulted in error: ")[2] or str(error)
                    self._failed[name] = f'composited variable "{name}" fails to evaluate: {inner}'
            raise ExpressionError(f"expression '{expression}' resulted in error: {self._failed[name]}")
        return self._variables
