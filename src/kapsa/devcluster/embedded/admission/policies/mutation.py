"""The changes that MutatingAdmissionPolicies make to an object."""

from __future__ import annotations

from typing import Any

import msgspec

from kapsa.devcluster.embedded.admission.plugin import Object
from kapsa.devcluster.embedded.admission.policies.catalog import (
    BoundPolicy,
    PolicyCatalog,
    PolicyUse,
    UseProblem,
    namespace_of,
)
from kapsa.devcluster.embedded.admission.policies.evaluation import (
    MATCH_BUDGET,
    PolicyEvaluation,
    PolicyExpressionError,
    conditions_hold,
)
from kapsa.devcluster.embedded.admission.policies.patches import (
    PolicyPatchError,
    apply_configuration,
    apply_json_patch,
)
from kapsa.devcluster.embedded.admission.policies.programs import CompiledExpression
from kapsa.devcluster.embedded.admission.policies.request_values import request_values
from kapsa.devcluster.embedded.admission.reviewed_requests import read_back
from kapsa.devcluster.embedded.admission.webhook_match import Invocation, ReviewedRequest, in_version
from kapsa.devcluster.embedded.authorization.authorizer import Authorizer
from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.requests.mutations import Reinvocation
from kapsa.devcluster.wire import status_errors as errors

__all__ = ["PolicyMutation"]


class _Problem(msgspec.Struct, frozen=True):
    """A policy that fails, and must not be ignored."""

    policy: BoundPolicy
    binding: str
    message: str
    reason: str = ""


class PolicyMutation:
    """The way of one object through the mutating policies."""

    def __init__(self, backend: Backend, authorizer: Authorizer, reviewed: ReviewedRequest) -> None:
        self._backend = backend
        self._authorizer = authorizer
        self._reviewed = reviewed
        self._has_patched = False

    async def run(self, catalog: PolicyCatalog, passes: Reinvocation) -> Object:
        """Return the object as the policies leave it. Raises StatusError if one fails and must not be ignored."""
        reviewed, memory = self._reviewed, passes.policies
        if passes.is_second and memory.output != _fingerprint(reviewed.object):
            memory.require_again()
        # All policies that apply to the object as it came in are called, whatever earlier ones make of it.
        uses = [use async for use in catalog.uses(reviewed)]
        problems: list[_Problem] = []
        for use in uses:
            if isinstance(use, UseProblem):
                problems.append(_Problem(use.policy, use.binding, use.message))
                continue
            if passes.is_second and use.identity not in memory.due:
                continue
            before = _fingerprint(reviewed.object)
            if not await self._apply(use, problems):
                continue
            if _fingerprint(reviewed.object) != before:
                memory.require_again()
            if use.policy.spec.get("reinvocationPolicy") == "IfNeeded":
                memory.repeatable.add(use.identity)
        fatal = [each for each in problems if not each.policy.ignores_failures]
        if fatal:
            raise _denial(reviewed, fatal)
        assert reviewed.object is not None
        if self._has_patched:
            # As in the real server, a policy that is willing is called again after its own change, too.
            memory.require_again()
            passes.requested = True
        memory.output = _fingerprint(reviewed.object)
        return reviewed.object

    async def _apply(self, use: PolicyUse, problems: list[_Problem]) -> bool:
        """Apply the mutations of a policy to the request's object. Return whether its conditions hold."""
        reviewed, info = self._reviewed, use.invocation.info
        try:
            matching = PolicyEvaluation(await self._values(use), budget=MATCH_BUDGET)
            if not conditions_hold(use.policy.programs.conditions, matching):
                return False
        except PolicyExpressionError as error:
            problems.append(_Problem(use.policy, use.binding_name, str(error), "Invalid"))
            return False
        namespace = namespace_of(self._backend, reviewed)
        for kind, expression in use.policy.programs.mutations:
            values = await self._values(use)
            evaluation = PolicyEvaluation(
                {**values, "namespaceObject": namespace}, use.policy.programs.variables
            )
            try:
                patched = _patched(info, values["object"], kind, expression, evaluation)
            except (PolicyExpressionError, PolicyPatchError) as error:
                problems.append(_Problem(use.policy, use.binding_name, str(error), "Invalid"))
                continue
            self._has_patched = True
            reviewed.object = await read_back(info, reviewed.info, patched, strict=kind == "JSONPatch")
        return True

    async def _values(self, use: PolicyUse) -> dict[str, Any]:
        """Return the values of an expression, with the object as earlier mutations left it."""
        reviewed = self._reviewed
        current = await in_version(reviewed.info, use.invocation.info, reviewed.object)
        invocation = Invocation(
            webhook=use.invocation.webhook, info=use.invocation.info, object=current, old=use.invocation.old
        )
        return request_values(reviewed, invocation, self._authorizer, parameter=use.parameter)


def _patched(
    info: Any, obj: Object, kind: str, expression: CompiledExpression, evaluation: PolicyEvaluation
) -> Object:
    result = evaluation.evaluate(expression)
    return apply_json_patch(obj, result) if kind == "JSONPatch" else apply_configuration(info, obj, result)


def _fingerprint(obj: Object | None) -> bytes:
    return msgspec.json.encode(obj, order="sorted")


def _denial(reviewed: ReviewedRequest, problems: list[_Problem]) -> errors.StatusError:
    texts = [
        f"policy '{each.policy.name}' with binding '{each.binding}' denied request: {each.message}"
        if each.binding
        else f'policy "{each.policy.name}" denied request: {each.message}'
        for each in problems
    ]
    error = errors.forbidden(reviewed.info, reviewed.shown_name, texts[0])
    error.message = texts[0]
    # As in the real server, the code of a denial stays that of Forbidden.
    error.reason = problems[0].reason or error.reason
    error.details = {**(error.details or {}), "causes": [{"message": text} for text in texts]}
    return error
