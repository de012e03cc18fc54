"""Admission webhooks over HTTPS: decisions, patches, failures, malformed requests."""

import base64
import json

import pytest

from tests.runtime.webhooks.webhook_server import (
    MUTATE,
    VALIDATE,
    AppDefaulter,
    AppValidator,
    PodPolicy,
    app,
    review,
    running,
    webhooks,
)


async def test_a_validating_webhook_allows_denies_with_its_message_and_warns() -> None:
    async with running(webhooks(AppValidator())) as run:
        assert await run.admit(VALIDATE, app(replicas=5)) == {"uid": "u-1", "allowed": True}
        denied = await run.admit(VALIDATE, app(replicas=6))
        assert denied["allowed"] is False
        assert denied["status"]["message"] == "spec.replicas: at most 5, not 6"
        assert denied["status"]["code"] == 422
        warned = await run.admit(VALIDATE, app(), userInfo={"username": "jane"})
        assert warned["warnings"] == ["v1 is new"]
        assert [outcome for _, outcome in run.seen] == ["allowed", "denied", "allowed"]


async def test_a_delete_is_decided_by_the_old_object() -> None:
    async with running(webhooks(AppValidator())) as run:
        denied = await run.admit(VALIDATE, None, operation="DELETE", oldObject=app(image="precious"))
        assert denied["status"]["message"] == "it is protected"
        assert (await run.admit(VALIDATE, None, operation="DELETE", oldObject=app()))["allowed"]


@pytest.mark.parametrize(
    ("image", "outcome", "message"),
    [
        (
            "bug",
            "error",
            r"validate-app.example.com failed, so the write is denied: ZeroDivisionError: division by",
        ),
        ("nonsense", "error", "AppValidator.validate returned NoneType; return allow"),
        ("sneaky", "error", "AppValidator changed the object; use a MutatingWebhook"),
        (
            "cancelled",
            "error",
            "failed, so the write is denied: RuntimeError: something it awaited was cancelled",
        ),
        ("slow", "timeout", "did not respond within 0.5 s"),
    ],
)
async def test_a_webhook_that_fails_denies_with_a_clear_message_and_is_counted(
    image: str, outcome: str, message: str
) -> None:
    async with running(webhooks(AppValidator())) as run:
        response = await run.admit(VALIDATE, app(image=image))
        assert response["allowed"] is False
        assert message in response["status"]["message"]
        assert run.seen == [("validate-app.example.com", outcome)]


async def test_an_object_that_does_not_fit_the_model_is_denied_with_the_field() -> None:
    async with running(webhooks(AppValidator())) as run:
        response = await run.admit(VALIDATE, app(replicas="many"))
        assert response["allowed"] is False
        assert "App shop/web does not fit its model: spec.replicas" in response["status"]["message"]
        assert run.seen == [("validate-app.example.com", "misfit")]


async def test_a_mutating_webhook_responds_with_a_patch() -> None:
    async with running(webhooks(AppDefaulter())) as run:
        response = await run.admit(MUTATE, app(replicas=2, unknown={"kept": True}))
        assert response["patchType"] == "JSONPatch"
        assert json.loads(base64.b64decode(response["patch"])) == [
            {"op": "add", "path": "/metadata/labels", "value": {"team/owner": "a"}},
            {"op": "add", "path": "/spec/image", "value": "nginx"},
        ]


async def test_a_mutating_webhook_that_changes_nothing_responds_without_a_patch() -> None:
    async with running(webhooks(AppDefaulter())) as run:
        manifest = app(image="x")
        manifest["metadata"]["labels"] = {"team/owner": "a"}
        assert await run.admit(MUTATE, manifest) == {"uid": "u-1", "allowed": True}


async def test_built_in_kinds_are_passed_as_plain_data() -> None:
    async with running(webhooks(PodPolicy())) as run:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {"hostNetwork": True}}
        response = await run.admit("/validate-core-v1-pod", pod)
        assert response["status"]["message"] == "no host network"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"request": 5}', b'{"request": {"uid": "x"}}'])
async def test_a_malformed_review_is_rejected_and_counted(body: bytes) -> None:
    async with running(webhooks(AppValidator())) as run:
        status, text = await run.post(VALIDATE, body)
        assert status == 400
        assert "not an AdmissionReview" in text
        assert run.seen == [("validate-app.example.com", "malformed")]


async def test_a_request_beyond_the_limit_is_rejected() -> None:
    async with running(webhooks(AppValidator(), max_body_bytes=10_000)) as run:
        status, text = await run.post(VALIDATE, review(app(image="x" * 20_000)))
        assert status == 413
        assert "exceeds 10000 bytes" in text
