"""ValidatingAdmissionPolicy: rejects or warns about writes that the expressions of a policy do not allow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from kapsa.devcluster.embedded.admission.plugin import Object, Plugin
from kapsa.devcluster.embedded.admission.policies.authorizer_values import AuthorizerValue
from kapsa.devcluster.embedded.admission.policies.evaluation import ExpressionError, PolicyExpressions
from kapsa.devcluster.embedded.admission.policies.parameters import ParameterError, parameters_of
from kapsa.devcluster.embedded.admission.reviewed_requests import reviewed_deletion, reviewed_write
from kapsa.devcluster.embedded.admission.webhook_match import (
    Invocation,
    ReviewedRequest,
    invocation_of,
    rule_matches,
)
from kapsa.devcluster.embedded.authorization.authorizer import Authorizer
from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.requests.mutations import DeleteRequest, WriteRequest
from kapsa.devcluster.wire import status_errors as errors

__all__ = ["MutatingPolicyWarning", "ValidatingPolicies"]

_GROUP = "admissionregistration.k8s.io"
_CODES = {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413}


class _Failure(msgspec.Struct, frozen=True):
    """A validation that does not hold, or could not be evaluated."""

    message: str
    reason: str = "Invalid"


class ValidatingPolicies(Plugin):
    """The ValidatingAdmissionPolicy plugin of the real server."""

    def __init__(self, backend: Backend, authorizer: Authorizer) -> None:
        super().__init__(backend)
        self._authorizer = authorizer
        self._bindings = backend.store.collection(_GROUP, "validatingadmissionpolicybindings")

    async def validate(self, write: WriteRequest, obj: Object, old: Object | None) -> None:
        if self._bindings.current():
            await self._check(reviewed_write(write, obj, old), write.warnings)

    async def validate_deletion(self, deletion: DeleteRequest, obj: Object) -> None:
        if self._bindings.current():
            await self._check(reviewed_deletion(deletion, obj), deletion.warnings)

    async def _check(self, reviewed: ReviewedRequest, warnings: list[str]) -> None:
        bindings = self._objects(_GROUP, "validatingadmissionpolicybindings")
        denials: list[tuple[str, _Failure]] = []
        for policy in self._objects(_GROUP, "validatingadmissionpolicies"):
            name = policy["metadata"]["name"]
            bound = [each for each in bindings if each["spec"].get("policyName") == name]
            invocation = (
                await self._matched(reviewed, policy["spec"].get("matchConstraints")) if bound else None
            )
            if invocation is None:
                continue
            for binding in bound:
                if await self._matched(reviewed, binding["spec"].get("matchResources") or _ANYTHING) is None:
                    continue
                title = f"'{name}' with binding '{binding['metadata']['name']}'"
                for failure in self._failures(reviewed, invocation, policy["spec"], binding["spec"]):
                    actions = binding["spec"].get("validationActions") or ()
                    if "Deny" in actions:
                        denials.append(
                            (f"ValidatingAdmissionPolicy {title} denied request: {failure.message}", failure)
                        )
                    if "Warn" in actions:
                        warnings.append(
                            f"Validation failed for ValidatingAdmissionPolicy {title}: {failure.message}"
                        )
        if denials:
            raise _denial(reviewed, *denials[0])

    async def _matched(self, reviewed: ReviewedRequest, constraints: Object | None) -> Invocation | None:
        """Return the object in the version that constraints match; None if they do not match."""
        if constraints is None:
            return None
        rules = constraints.get("resourceRules")
        excluded = constraints.get("excludeResourceRules") or ()
        if any(_covers(rule, reviewed) for rule in excluded):
            return None
        named = [
            r
            for r in rules or _EVERY_RULE
            if not r.get("resourceNames") or reviewed.name in r["resourceNames"]
        ]
        return await invocation_of(
            self._backend, reviewed, {**constraints, "rules": named, "matchConditions": []}
        )

    def _failures(
        self, reviewed: ReviewedRequest, invocation: Invocation, spec: Object, binding: Object
    ) -> Iterator[_Failure]:
        """Yield what a policy with a binding rejects; what fails counts unless the policy ignores failures."""
        ignores = spec.get("failurePolicy") == "Ignore"
        try:
            parameters = parameters_of(
                self._backend, spec.get("paramKind"), binding.get("paramRef"), reviewed.namespace
            )
        except ParameterError as error:
            if not ignores:
                yield _Failure(f"failed to configure binding: {error}")
            return
        for parameter in parameters:
            expressions = PolicyExpressions(spec, self._values(reviewed, invocation, parameter))
            try:
                if not expressions.matches():
                    continue
            except ExpressionError as error:
                if not ignores:
                    yield _Failure(str(error))
                continue
            yield from _violations(expressions, spec, ignores=ignores)

    def _values(self, reviewed: ReviewedRequest, invocation: Invocation, parameter: Object | None) -> Object:
        request = invocation.review(reviewed, "")["request"]
        for field in ("object", "oldObject"):
            request.pop(field, None)
        is_namespace = (reviewed.info.group, reviewed.info.resource) == ("", "namespaces")
        namespace: Object | None = None
        if reviewed.namespace and not is_namespace:
            namespace = self._object("", "namespaces", reviewed.namespace)
        values: dict[str, Any] = {
            "object": invocation.object,
            "oldObject": invocation.old,
            "request": request,
            "params": parameter,
            "namespaceObject": namespace,
            "authorizer": AuthorizerValue(self._authorizer, reviewed.user),
        }
        return values


def _violations(expressions: PolicyExpressions, spec: Object, *, ignores: bool) -> Iterator[_Failure]:
    for validation in spec.get("validations") or ():
        try:
            holds = expressions.evaluate(validation["expression"])
        except ExpressionError as error:
            if not ignores:
                yield _Failure(str(error))
            continue
        if holds is not True:
            yield _Failure(expressions.message(validation), validation.get("reason") or "Invalid")
    for annotation in spec.get("auditAnnotations") or ():
        try:
            expressions.evaluate(annotation["valueExpression"])
        except ExpressionError as error:
            if not ignores:
                yield _Failure(str(error))


_EVERY_RULE = [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]
_ANYTHING: Object = {"resourceRules": _EVERY_RULE}


def _covers(rule: Object, reviewed: ReviewedRequest) -> bool:
    names = rule.get("resourceNames")
    return rule_matches(rule, reviewed, reviewed.info) and (not names or reviewed.name in names)


def _denial(reviewed: ReviewedRequest, message: str, failure: _Failure) -> errors.StatusError:
    subject = reviewed.object or reviewed.old or {}
    meta = subject.get("metadata") or {}
    name = reviewed.name or meta.get("name") or meta.get("generateName") or "Unknown"
    error = errors.forbidden(reviewed.info, name, message)
    error.reason, error.code = failure.reason, _CODES.get(failure.reason, 422)
    error.details = {**(error.details or {}), "causes": [{"message": message}]}
    return error


class MutatingPolicyWarning(Plugin):
    """The warning that mutating policies are stored and not applied."""

    resources = frozenset(
        {(_GROUP, "mutatingadmissionpolicies"), (_GROUP, "mutatingadmissionpolicybindings")}
    )

    async def validate(self, write: WriteRequest, obj: Object, old: Object | None) -> None:
        write.warnings.append(
            f"the embedded devcluster stores this {write.info.kind}, but does not apply mutating admission policies; "
            "use the real engine"
        )
