"""Authentication of requests over HTTP."""

from __future__ import annotations

import pytest

from tests.fleet.api.harness import ApiClient, token

PATH = "/api/v1/operators"


@pytest.mark.parametrize(
    "header", ["", "Basic bWFyaWE6c2VjcmV0", "Bearer", "Bearer a.b.c", "bearer", token(), f"Token {token()}"]
)
async def test_a_request_without_a_valid_token_is_answered_with_401(api: ApiClient, header: str) -> None:
    response = await api.anonymous().get(PATH, headers={"Authorization": header} if header else {})
    assert response.status_code == 401
    assert response.headers["www-authenticate"].startswith("Bearer")
    assert response.headers["content-type"] == "application/problem+json"


async def test_two_authorization_headers_are_refused(api: ApiClient) -> None:
    headers = [("Authorization", f"Bearer {token()}"), ("Authorization", f"Bearer {token('eve')}")]
    assert (await api.anonymous().request("GET", PATH, headers=headers)).status_code == 401


async def test_roles_and_identity_in_other_headers_are_ignored(api: ApiClient) -> None:
    viewer = api.as_user("victor", "Viewer")
    headers = {
        "X-Roles": "Admin",
        "X-User": "ada",
        "X-Forwarded-User": "ada",
        "X-Remote-User": "ada",
        "X-Http-Method-Override": "GET",
        "Roles": "Admin",
    }
    assert (await viewer.get("/api/v1/audit", headers=headers)).status_code == 403
    assert (await viewer.get("/api/v1/session", headers=headers)).json()["subject"] == "victor"
    assert (await viewer.delete(f"{PATH}/widget", headers=headers)).status_code == 403


async def test_a_caller_without_a_role_sees_nothing(api: ApiClient) -> None:
    nobody = api.as_user("nadja", "Emperor")
    assert (await nobody.get(PATH)).status_code == 403
    assert (await nobody.get("/metrics")).status_code == 403


async def test_health_and_documents_need_no_token(api: ApiClient) -> None:
    anonymous = api.anonymous()
    assert (await anonymous.get("/health")).json()["status"] == "Healthy"
    assert (await anonymous.get("/openapi.json")).json()["openapi"] == "3.1.0"
    assert (await anonymous.get("/docs")).headers["content-type"].startswith("text/html")
    assert (await anonymous.get("/metrics")).status_code == 401
