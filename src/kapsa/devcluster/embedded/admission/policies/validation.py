"""The decisions of ValidatingAdmissionPolicies: a request is denied, or its client warned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from kapsa.devcluster.embedded.admission.plugin import Object
from kapsa.devcluster.embedded.admission.policies.catalog import (
    PolicyCatalog,
    PolicyUse,
    UseProblem,
    namespace_of,
)
from kapsa.devcluster.embedded.admission.policies.evaluation import (
    MATCH_BUDGET,
    PolicyBudgetError,
    PolicyEvaluation,
    PolicyExpressionError,
    conditions_hold,
)
from kapsa.devcluster.embedded.admission.policies.programs import CompiledExpression
from kapsa.devcluster.embedded.admission.policies.request_values import request_values
from kapsa.devcluster.embedded.admission.webhook_match import ReviewedRequest
from kapsa.devcluster.embedded.authorization.authorizer import Authorizer
from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.wire import status_errors as errors

__all__ = ["PolicyValidation"]

_CODES = {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413}
_LONGEST_MESSAGE = 5 * 1024


class _Failure(msgspec.Struct, frozen=True):
    """A validation that does not hold, or could not be evaluated."""

    message: str
    reason: str = "Invalid"
    always_denies: bool = False
    """True if the request is denied whatever the actions of the binding are."""


class PolicyValidation:
    """The check of one request against the validating policies."""

    def __init__(self, backend: Backend, authorizer: Authorizer, reviewed: ReviewedRequest) -> None:
        self._backend = backend
        self._authorizer = authorizer
        self._reviewed = reviewed

    async def run(self, catalog: PolicyCatalog, warnings: list[str]) -> None:
        """Check the request. Raises StatusError if a policy denies it."""
        denials: list[tuple[str, str]] = []
        async for use in catalog.uses(self._reviewed):
            if isinstance(use, UseProblem):
                if not use.policy.ignores_failures:
                    denials.append((f"{_title(use)} denied request: {use.message}", "Invalid"))
                continue
            actions = use.binding["spec"].get("validationActions") or ()
            for failure in self._failures(use):
                if "Deny" in actions or failure.always_denies:
                    denials.append((f"{_title(use)} denied request: {failure.message}", failure.reason))
                if "Warn" in actions and not failure.always_denies:
                    warnings.append(f"Validation failed for {_title(use)}: {failure.message}")
        if denials:
            raise _denial(self._reviewed, *denials[0])

    def _failures(self, use: PolicyUse) -> Iterator[_Failure]:
        """Yield what a policy rejects; what fails counts unless the policy ignores failures."""
        ignores = use.policy.ignores_failures
        programs = use.policy.programs
        values = request_values(self._reviewed, use.invocation, self._authorizer, parameter=use.parameter)
        try:
            matching = PolicyEvaluation(values, budget=MATCH_BUDGET)
            if not conditions_hold(programs.conditions, matching):
                return
            values["namespaceObject"] = namespace_of(self._backend, self._reviewed)
            results = list(_results(PolicyEvaluation(values, programs.variables), use))
            annotations = list(_annotations(PolicyEvaluation(values, programs.variables), use))
        except PolicyExpressionError as error:
            if not ignores:
                yield _Failure(str(error))
            return
        for result in [*results, *annotations]:
            if isinstance(result, _Failure):
                yield result
            elif not ignores:
                yield _Failure(str(result), always_denies=result in annotations)


def _results(evaluation: PolicyEvaluation, use: PolicyUse) -> Iterator[_Failure | PolicyExpressionError]:
    """Yield the validations that do not hold, and those that fail. Raises PolicyBudgetError."""
    for (validation, expression), message in zip(
        use.policy.programs.validations, use.policy.programs.messages, strict=True
    ):
        try:
            holds = evaluation.evaluate(expression)
        except PolicyBudgetError:
            raise
        except PolicyExpressionError as error:
            yield error
            continue
        if holds is not True:
            text = _message(evaluation, validation, message)
            yield _Failure(text, validation.get("reason") or "Invalid")


def _message(evaluation: PolicyEvaluation, validation: Object, message: CompiledExpression | None) -> str:
    """Return the message of a validation that does not hold."""
    if message is not None:
        try:
            text = evaluation.evaluate(message)
        except PolicyBudgetError as error:
            return f"failed messageExpression: {error}"
        except PolicyExpressionError:
            text = None
        if isinstance(text, str) and _is_presentable(text.strip()):
            return text.strip()
    given = (validation.get("message") or "").strip()
    return given or f"failed expression: {validation['expression'].strip()}"


def _is_presentable(text: str) -> bool:
    return bool(text) and "\n" not in text and len(text.encode()) <= _LONGEST_MESSAGE


def _annotations(evaluation: PolicyEvaluation, use: PolicyUse) -> Iterator[PolicyExpressionError]:
    """Yield the audit annotations that fail. Their values are for an audit log, which this server does not have."""
    for expression in use.policy.programs.annotations:
        try:
            evaluation.evaluate(expression)
        except PolicyBudgetError:
            raise
        except PolicyExpressionError as error:
            yield error


def _title(use: PolicyUse | UseProblem) -> str:
    binding = use.binding_name if isinstance(use, PolicyUse) else use.binding
    bound = f" with binding '{binding}'" if binding else ""
    return f"ValidatingAdmissionPolicy '{use.policy.name}'{bound}"


def _denial(reviewed: ReviewedRequest, message: str, reason: str) -> errors.StatusError:
    error = errors.forbidden(reviewed.info, reviewed.shown_name, message)
    error.reason, error.code = reason, _CODES.get(reason, 422)
    causes: list[dict[str, Any]] = [{"message": message}]
    error.details = {**(error.details or {}), "causes": causes}
    return error
