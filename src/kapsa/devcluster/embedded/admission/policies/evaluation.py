"""The evaluation of a policy's expressions on one request, within the cost that one request may take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kapsa.devcluster.embedded.admission.policies.programs import CompiledExpression
from kapsa.schemas.cel.expressions import CelEvaluationError, CostExceededError
from kapsa.schemas.cel.values import LazyFields

__all__ = [
    "MATCH_BUDGET",
    "PolicyBudgetError",
    "PolicyEvaluation",
    "PolicyExpressionError",
    "conditions_hold",
]

_BUDGET = 10_000_000
MATCH_BUDGET = 2_500_000
"""The most that the match conditions of one policy or webhook may cost together."""
_CALL_LIMIT = 1_000_000
"""The most that one expression may cost."""


class PolicyExpressionError(Exception):
    """An expression that failed, in the words of the real server."""


class PolicyBudgetError(PolicyExpressionError):
    """Expressions that cost more than they may. No further one is evaluated."""

    def __init__(self) -> None:
        super().__init__(
            "validation failed due to running out of cost budget, no further validation rules will be run"
        )


class PolicyEvaluation:
    """The values of one request, the variables computed from them, and the cost that is left."""

    def __init__(
        self,
        values: Mapping[str, Any],
        variables: Mapping[str, CompiledExpression] | None = None,
        budget: int = _BUDGET,
    ) -> None:
        self._variables = variables or {}
        self._values = {**values, "variables": LazyFields(self._variable)}
        self._left = budget
        self._spent_by_variables = 0

    def evaluate(self, expression: CompiledExpression) -> Any:
        """Return the value of an expression. Raises PolicyExpressionError when it fails."""
        if expression.program is None:
            raise PolicyExpressionError(f"compilation error: {expression.problem}")
        cost = 0
        try:
            value, cost = expression.program.evaluate_metered(self._values, _CALL_LIMIT)
        except (CelEvaluationError, CostExceededError) as error:
            cost = _CALL_LIMIT if isinstance(error, CostExceededError) else 0
            text = f"expression '{expression.text}' resulted in error: {error}"
            raise PolicyExpressionError(text) from None
        finally:
            self._left -= cost + self._spent_by_variables
            self._spent_by_variables = 0
        if self._left < 0:
            raise PolicyBudgetError
        return value

    def _variable(self, name: str) -> Any:
        expression = self._variables[name]
        if expression.program is None:
            raise CelEvaluationError(f'composited variable "{name}" fails to compile: {expression.problem}')
        try:
            value, cost = expression.program.evaluate_metered(self._values, _CALL_LIMIT)
        except (CelEvaluationError, CostExceededError) as error:
            raise CelEvaluationError(f'composited variable "{name}" fails to evaluate: {error}') from None
        self._spent_by_variables += cost
        return value


def conditions_hold(conditions: Sequence[CompiledExpression], evaluation: PolicyEvaluation) -> bool:
    """Return whether all match conditions hold. Raises PolicyExpressionError when one fails and none is false."""
    problems: list[str] = []
    for condition in conditions:
        try:
            if evaluation.evaluate(condition) is False:
                return False
        except PolicyBudgetError:
            raise
        except PolicyExpressionError as error:
            problems.append(str(error))
    if problems:
        raise PolicyExpressionError(problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")
    return True
