"""Errors of the API server as types."""

import pytest

from kapsa.runtime import errors
from kapsa.runtime.errors import ApiError, ApiStatus, StatusCause, error_from_response, error_from_status


def status(code: int, reason: str, **more: object) -> bytes:
    import msgspec

    return msgspec.json.encode(
        {"kind": "ApiStatus", "status": "Failure", "code": code, "reason": reason, **more}
    )


@pytest.mark.parametrize(
    ("code", "reason", "kind", "retryable"),
    [
        (400, "BadRequest", errors.BadRequest, False),
        (401, "Unauthorized", errors.Unauthorized, False),
        (403, "Forbidden", errors.Forbidden, False),
        (404, "NotFound", errors.NotFound, False),
        (405, "MethodNotAllowed", errors.MethodNotAllowed, False),
        (409, "AlreadyExists", errors.AlreadyExists, False),
        (409, "Conflict", errors.Conflict, False),
        (410, "Expired", errors.Expired, False),
        (410, "Gone", errors.Expired, False),
        (413, "RequestEntityTooLarge", errors.TooLarge, False),
        (415, "UnsupportedMediaType", errors.UnsupportedMediaType, False),
        (422, "Invalid", errors.Invalid, False),
        (429, "TooManyRequests", errors.TooManyRequests, True),
        (500, "InternalError", errors.InternalError, True),
        (500, "ServerTimeout", errors.Timeout, True),
        (503, "ServiceUnavailable", errors.Unavailable, True),
        (504, "Timeout", errors.Timeout, True),
    ],
)
def test_each_error_has_a_type_that_says_whether_a_retry_helps(
    code: int, reason: str, kind: type[ApiError], retryable: bool
) -> None:
    error = error_from_response(code, {}, status(code, reason, message="no"))
    assert type(error) is kind
    assert error.retryable is retryable
    assert (error.code, error.reason, error.message) == (code, reason, "no")


def test_an_error_contains_the_request_and_the_message_of_the_server() -> None:
    body = status(409, "AlreadyExists", message='services "web" already exists')
    error = error_from_response(409, {}, body, action="POST /api/v1/namespaces/default/services")
    assert str(error) == (
        'POST /api/v1/namespaces/default/services: services "web" already exists (409 AlreadyExists)'
    )


def test_the_error_for_rejected_credentials_asks_to_renew_them() -> None:
    error = error_from_response(
        401, {}, status(401, "Unauthorized", message="Unauthorized"), action="GET /api"
    )
    assert str(error) == (
        "GET /api: Unauthorized (401 Unauthorized): the server rejected the credentials; renew them"
    )


def test_the_error_for_an_invalid_object_names_each_field() -> None:
    causes = [
        {"reason": "FieldValueInvalid", "field": "spec.replicas", "message": "must be at least 1"},
        {"reason": "FieldValueRequired", "field": "spec.image", "message": "Required value"},
    ]
    error = error_from_response(422, {}, status(422, "Invalid", details={"causes": causes}))
    assert error.causes == (
        StatusCause("FieldValueInvalid", "must be at least 1", "spec.replicas"),
        StatusCause("FieldValueRequired", "Required value", "spec.image"),
    )


def test_the_retry_after_header_takes_precedence_over_the_body() -> None:
    body = status(429, "TooManyRequests", details={"retryAfterSeconds": 7})
    assert error_from_response(429, {"Retry-After": "3"}, body).retry_after == 3
    assert error_from_response(429, {}, body).retry_after == 7
    assert error_from_response(429, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, b"").retry_after is None


@pytest.mark.parametrize("body", [b"", b"<html>bad gateway</html>", b"[1]", b'{"code":"x"}', b"[" * 100_000])
def test_an_error_whose_body_is_not_a_status_has_the_type_of_its_code_and_part_of_the_body(
    body: bytes,
) -> None:
    error = error_from_response(502, {}, body)
    assert isinstance(error, errors.Unavailable)
    assert error.code == 502
    assert len(str(error)) < 400


def test_a_resource_that_is_not_served_is_distinguished_from_a_missing_object() -> None:
    gone = error_from_response(404, {}, status(404, "NotFound", details={"name": "web"}))
    unserved = error_from_response(404, {}, b"404 page not found\n")
    assert isinstance(gone, errors.NotFound)
    assert isinstance(unserved, errors.NotFound)
    assert not gone.resource_missing
    assert unserved.resource_missing


def test_a_status_inside_a_watch_is_the_same_type_as_one_in_a_response() -> None:
    assert isinstance(error_from_status(ApiStatus("Failure", "too old", "Expired", 410)), errors.Expired)
