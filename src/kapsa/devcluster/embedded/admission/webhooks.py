"""Admission webhooks: mutating ones in order, then validating ones together."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from typing import TYPE_CHECKING, Any

import msgspec

from kapsa.devcluster.embedded.admission.policies.request_values import request_values
from kapsa.devcluster.embedded.admission.reviewed_requests import read_back, reviewed_deletion, reviewed_write
from kapsa.devcluster.embedded.admission.webhook_client import BundleError, CallError, WebhookClient
from kapsa.devcluster.embedded.admission.webhook_match import (
    Invocation,
    ReviewedRequest,
    invocation_of,
)
from kapsa.devcluster.embedded.apply.json_patch import json_patch
from kapsa.devcluster.embedded.authorization.authorizer import Authorizer
from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.codec.stored_form import decode
from kapsa.devcluster.embedded.requests.mutations import DeleteRequest, WriteRequest
from kapsa.devcluster.embedded.storage.store import Collection, StoreChange
from kapsa.devcluster.wire.status_errors import StatusError, forbidden, internal

if TYPE_CHECKING:
    from kapsa.devcluster.embedded.admission.policies.programs import CompiledExpression

__all__ = ["WebhookAdmission"]

Object = dict[str, Any]

_GROUP = "admissionregistration.k8s.io"
_MUTATING = (_GROUP, "mutatingwebhookconfigurations")
_VALIDATING = (_GROUP, "validatingwebhookconfigurations")


class WebhookAdmission:
    """The webhooks that are configured in the cluster. Without any, a write costs two lookups."""

    resources: frozenset[tuple[str, str]] | None = None

    def __init__(self, backend: Backend, authorizer: Authorizer, client: WebhookClient | None = None) -> None:
        self._backend = backend
        self._authorizer = authorizer
        self.client = client or WebhookClient()
        self._webhooks: dict[tuple[str, str], list[Object]] = {}
        self._conditions: dict[tuple[str, ...], list[CompiledExpression]] = {}
        """Compiled match conditions by their expressions; a request may still use those of a replaced webhook."""
        backend.store.listeners.append(self._follow)

    # Called by the write path

    async def mutate(self, write: WriteRequest, obj: Object, old: Object | None) -> Object:
        webhooks = self._configured(_MUTATING)
        if not webhooks:
            return obj
        reviewed = reviewed_write(write, obj, old)
        passes = write.reinvocation
        memory = passes.webhooks
        if passes.is_second and memory.output != _fingerprint(obj):
            memory.require_again()
        for webhook in webhooks:
            identity = _identity(webhook)
            if passes.is_second and identity not in memory.due:
                continue
            invocation = await self._invocation(reviewed, webhook)
            if invocation is None:
                continue
            if await self._call_mutating(reviewed, invocation, write.warnings):
                memory.require_again()
                passes.requested = True
            if webhook.get("reinvocationPolicy") == "IfNeeded":
                memory.repeatable.add(identity)
        assert reviewed.object is not None
        memory.output = _fingerprint(reviewed.object)
        return reviewed.object

    async def validate(self, write: WriteRequest, obj: Object, old: Object | None) -> None:
        webhooks = self._configured(_VALIDATING)
        if webhooks:
            await self._validate(reviewed_write(write, obj, old), webhooks, write.warnings)

    async def validate_deletion(self, deletion: DeleteRequest, obj: Object) -> None:
        mutating, validating = self._configured(_MUTATING), self._configured(_VALIDATING)
        if not mutating and not validating:
            return
        reviewed = reviewed_deletion(deletion, obj)
        for webhook in mutating:
            invocation = await self._invocation(reviewed, webhook)
            if invocation is not None:
                await self._call_mutating(reviewed, invocation, deletion.warnings)
        await self._validate(reviewed, validating, deletion.warnings)

    # The two phases

    async def _call_mutating(
        self, reviewed: ReviewedRequest, invocation: Invocation, warnings: list[str]
    ) -> bool:
        """Call one webhook and apply its patch. Return whether the object changed."""
        webhook = invocation.webhook
        response = await self._call(reviewed, invocation, warnings)
        patch = None if response is None else response.get("patch")
        if not patch:
            return False
        operations = _decode_patch(webhook, patch)
        if not operations:
            return False
        if reviewed.object is None:
            what = "attempted to modify the object, which is not supported for this operation"
            raise internal(f'admission webhook "{webhook["name"]}" {what}')
        before = _fingerprint(reviewed.object)
        try:
            patched = json_patch(invocation.object or {}, operations)
        except StatusError as error:
            raise internal(str(error.__cause__ or error.message)) from None
        reviewed.object = await read_back(invocation.info, reviewed.info, patched)
        return _fingerprint(reviewed.object) != before

    async def _validate(self, reviewed: ReviewedRequest, webhooks: list[Object], warnings: list[str]) -> None:
        matches = [await self._invocation(reviewed, webhook) for webhook in webhooks]
        invocations = [invocation for invocation in matches if invocation is not None]
        calls = [self._call(reviewed, invocation, warnings) for invocation in invocations]
        results = await asyncio.gather(*calls, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _invocation(self, reviewed: ReviewedRequest, webhook: Object) -> Invocation | None:
        """Return the call of a webhook for a request; None when it does not match, or its conditions do not hold.

        Raises StatusError when a condition fails and the webhook must not be skipped.
        """
        invocation = await invocation_of(self._backend, reviewed, webhook)
        conditions = webhook.get("matchConditions")
        if invocation is None or not conditions:
            return invocation
        # CEL is imported with the first condition: a server without any starts sooner.
        from kapsa.devcluster.embedded.admission.policies.evaluation import (
            MATCH_BUDGET,
            PolicyEvaluation,
            PolicyExpressionError,
            conditions_hold,
        )
        from kapsa.devcluster.embedded.admission.policies.programs import compile_conditions

        values = request_values(reviewed, invocation, self._authorizer)
        try:
            key = tuple(each["expression"] for each in conditions)
            if key not in self._conditions:
                self._conditions[key] = compile_conditions(conditions, params=False)
            holds = conditions_hold(self._conditions[key], PolicyEvaluation(values, budget=MATCH_BUDGET))
        except PolicyExpressionError as error:
            if webhook.get("failurePolicy") == "Ignore":
                return None
            raise forbidden(reviewed.info, reviewed.shown_name, str(error)) from None
        return invocation if holds else None

    async def _call(
        self, reviewed: ReviewedRequest, invocation: Invocation, warnings: list[str]
    ) -> Object | None:
        """Return the response of a webhook that allows the request; None if it failed and may be ignored.

        Raises StatusError when it denies the request, or fails and must not be ignored.
        """
        webhook = invocation.webhook
        name = webhook["name"]
        uid = self._backend.new_uid()
        review = invocation.review(reviewed, uid)
        try:
            answer = await self._post(webhook, review)
            response = _verified(answer, uid, review["apiVersion"], mutating="reinvocationPolicy" in webhook)
        except CallError as error:
            if webhook.get("failurePolicy") == "Ignore":
                return None
            raise internal(f'failed calling webhook "{name}": {error}') from None
        warnings.extend(response.get("warnings") or ())
        if not response.get("allowed"):
            raise _denial(name, response.get("status") or {})
        return response

    async def _post(self, webhook: Object, review: Object) -> Object:
        try:
            return await self.client.post(
                webhook["clientConfig"],
                json.dumps(review, separators=(",", ":")).encode(),
                timeout=float(webhook.get("timeoutSeconds") or 10),
            )
        except BundleError as error:
            raise CallError(f"could not get REST client: {error}") from None
        except CallError as error:
            raise CallError(f"failed to call webhook: {error}") from None

    def _follow(self, collection: Collection, change: StoreChange) -> None:
        if self._webhooks.pop(collection.key, None) is not None:
            self._conditions.clear()

    def _configured(self, key: tuple[str, str]) -> list[Object]:
        configured = self._webhooks.get(key)
        if configured is None:
            collection = self._backend.store.collection(*key)
            configured = self._webhooks[key] = [
                {**webhook, "configuration": stored.name}
                for stored in collection.current()
                for webhook in decode(stored).get("webhooks") or ()
            ]
        return configured


def _identity(webhook: Object) -> str:
    return f"{webhook['configuration']}/{webhook['name']}"


def _fingerprint(obj: Object) -> bytes:
    """Return bytes that are equal for equal objects."""
    return msgspec.json.encode(obj, order="sorted")


def _verified(answer: Object, uid: str, version: str, *, mutating: bool) -> Object:
    """Return the response of a review, checked as the real server does. Raises CallError."""

    def broken(why: str) -> CallError:
        return CallError(f"received invalid webhook response: {why}")

    response = answer.get("response")
    if not isinstance(response, dict):
        raise broken("webhook response was absent")
    if version == "admission.k8s.io/v1":
        if response.get("uid") != uid:
            raise broken(f'expected response.uid="{uid}", got "{response.get("uid") or ""}"')
        given = f"{answer.get('apiVersion') or ''}, Kind={answer.get('kind') or ''}"
        if given != f"{version}, Kind=AdmissionReview":
            raise broken(f"expected webhook response of {version}, Kind=AdmissionReview, got {given}")
        patch, patch_type = response.get("patch"), response.get("patchType")
        if not mutating and (patch or patch_type):
            field = "response.patch" if patch else "response.patchType"
            raise broken(f"validating webhook may not return {field}")
        if patch and not patch_type:
            raise broken("webhook returned response.patch but not response.patchType")
        if patch_type and not patch:
            raise broken("webhook returned response.patchType but not response.patch")
        if patch_type and patch_type != "JSONPatch":
            raise broken(f'webhook returned invalid response.patchType of "{patch_type}"')
    return response


def _decode_patch(webhook: Object, patch: str) -> list[Any]:
    try:
        operations = json.loads(base64.b64decode(patch, validate=True))
    except (ValueError, binascii.Error) as error:
        why = f"received undecodable patch in webhook response: {error}"
        raise internal(f'failed calling webhook "{webhook["name"]}": {why}') from None
    return operations if isinstance(operations, list) else []


def _denial(name: str, status: Object) -> StatusError:
    by = f'admission webhook "{name}" denied the request'
    if status.get("message"):
        message = f"{by}: {status['message']}"
    elif status.get("reason"):
        message = f"{by}: {status['reason']}"
    else:
        message = f"{by} without explanation"
    code = int(status.get("code") or 0)
    return StatusError(max(code, 400), status.get("reason") or "", message, details=status.get("details"))
