"""Admission webhooks: mutating ones in order, then validating ones together."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from typing import Any

from kapsa.devcluster.embedded.admission.reviewed_requests import reviewed_deletion, reviewed_write
from kapsa.devcluster.embedded.admission.webhook_client import BundleError, CallError, WebhookClient
from kapsa.devcluster.embedded.admission.webhook_match import (
    Invocation,
    ReviewedRequest,
    in_version,
    invocation_of,
)
from kapsa.devcluster.embedded.apply.json_patch import json_patch
from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.codec.stored_form import decode
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.embedded.requests.mutations import DeleteRequest, WriteRequest
from kapsa.devcluster.embedded.storage.store import Collection, StoreChange
from kapsa.devcluster.wire.status_errors import StatusError, internal
from kapsa.schemas.defaulting import apply_defaults
from kapsa.schemas.pruning import prune

__all__ = ["WebhookAdmission"]

Object = dict[str, Any]

_GROUP = "admissionregistration.k8s.io"
_MUTATING = (_GROUP, "mutatingwebhookconfigurations")
_VALIDATING = (_GROUP, "validatingwebhookconfigurations")


class WebhookAdmission:
    """Calls the webhooks that are configured in the cluster. Without any, a write costs two lookups."""

    resources: frozenset[tuple[str, str]] | None = None

    def __init__(self, backend: Backend, client: WebhookClient | None = None) -> None:
        self._backend = backend
        self.client = client or WebhookClient()
        self._webhooks: dict[tuple[str, str], list[Object]] = {}
        backend.store.listeners.append(self._follow)

    # Called by the write path

    async def mutate(self, write: WriteRequest, obj: Object, old: Object | None) -> Object:
        webhooks = self._configured(_MUTATING)
        if not webhooks:
            return obj
        reviewed = reviewed_write(write, obj, old)
        called: dict[str, Invocation] = {}
        reinvocable: set[str] = set()
        for webhook in webhooks:
            changed = await self._call_mutating(reviewed, webhook, called, write.warnings)
            if changed:
                reinvocable |= {
                    uid
                    for uid, earlier in called.items()
                    if earlier.webhook is not webhook and _if_needed(earlier)
                }
        for webhook in webhooks:
            if _identity(webhook) in reinvocable:
                await self._call_mutating(reviewed, webhook, called, write.warnings)
        assert reviewed.object is not None
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
            await self._call_mutating(reviewed, webhook, {}, deletion.warnings)
        await self._validate(reviewed, validating, deletion.warnings)

    # The two phases

    async def _call_mutating(
        self, reviewed: ReviewedRequest, webhook: Object, called: dict[str, Invocation], warnings: list[str]
    ) -> bool:
        """Call one webhook and apply its patch. Return whether the object changed."""
        invocation = await invocation_of(self._backend, reviewed, webhook)
        if invocation is None:
            return False
        called[_identity(webhook)] = invocation
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
        before = json.dumps(reviewed.object, sort_keys=True)
        try:
            patched = json_patch(invocation.object or {}, operations)
        except StatusError as error:
            raise internal(str(error.__cause__ or error.message)) from None
        reviewed.object = await _read_back(invocation.info, reviewed.info, patched)
        return json.dumps(reviewed.object, sort_keys=True) != before

    async def _validate(self, reviewed: ReviewedRequest, webhooks: list[Object], warnings: list[str]) -> None:
        matches = [await invocation_of(self._backend, reviewed, webhook) for webhook in webhooks]
        invocations = [invocation for invocation in matches if invocation is not None]
        calls = [self._call(reviewed, invocation, warnings) for invocation in invocations]
        results = await asyncio.gather(*calls, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

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
        self._webhooks.pop(collection.key, None)

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


def _if_needed(invocation: Invocation) -> bool:
    return bool(invocation.webhook.get("reinvocationPolicy") == "IfNeeded")


async def _read_back(source: ResourceInfo, info: ResourceInfo, patched: Any) -> Object:
    """Decode a patched object from the webhook's version: without unknown fields, with defaults."""
    if not isinstance(patched, dict) or not isinstance(patched.get("metadata"), dict):
        raise internal("the patched object is no longer an object")
    obj = await in_version(source, info, patched)
    assert obj is not None
    if info.schema is not None:
        prune(info.schema, obj)
        apply_defaults(info.schema, obj)
    return obj


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
