"""Browser sessions: the cookie, the CSRF token, and signing out."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text

from kapsa.fleet.infrastructure.postgres.database import Database
from tests.fleet.api.harness import WIDGET, ApiClient, application, token

SESSION, PATH = "/api/v1/session", "/api/v1/operators"


@pytest.fixture
async def browser(api: ApiClient) -> ApiClient:
    """A browser that has signed in as an operator."""
    client = api.anonymous()
    response = await client.post(SESSION, {"token": token("maria", "Operator")})
    assert response.status_code == 201, response.text
    return client


async def _csrf(client: ApiClient) -> str:
    return str((await client.get(SESSION)).json()["csrfToken"])


async def test_the_cookie_is_closed_to_scripts_other_sites_and_plain_http(api: ApiClient) -> None:
    response = await api.anonymous().post(SESSION, {"token": token("maria", "Operator")})
    cookie = response.headers["set-cookie"]
    assert cookie.startswith("__Host-kapsa-session=")
    attributes = {part.strip().lower() for part in cookie.split(";")[1:]}
    assert {"httponly", "secure", "samesite=strict", "path=/"} <= attributes
    assert not any(each.startswith("domain") for each in attributes)
    value = cookie.split(";")[0].split("=", 1)[1]
    assert value not in response.text


async def test_a_session_reads_without_and_writes_only_with_the_csrf_token(browser: ApiClient) -> None:
    assert (await browser.get(PATH)).status_code == 200
    for headers in ({}, {"X-CSRF-Token": "guess"}, {"X-CSRF-Token": ""}):
        refused = await browser.post(PATH, WIDGET, headers=headers)
        assert refused.status_code == 403
        assert "X-CSRF-Token" in refused.json()["detail"]
    created = await browser.post(PATH, WIDGET, headers={"X-CSRF-Token": await _csrf(browser)})
    assert created.status_code == 201


async def test_the_csrf_token_of_another_session_does_not_count(browser: ApiClient, api: ApiClient) -> None:
    other = api.anonymous()
    await other.post(SESSION, {"token": token("eve", "Operator")})
    refused = await browser.post(PATH, WIDGET, headers={"X-CSRF-Token": await _csrf(other)})
    assert refused.status_code == 403


async def test_signing_out_ends_the_session_on_the_server(browser: ApiClient) -> None:
    cookie = browser.http.cookies["__Host-kapsa-session"]
    ended = await browser.delete(SESSION, headers={"X-CSRF-Token": await _csrf(browser)})
    assert ended.status_code == 204
    assert "max-age=0" in ended.headers["set-cookie"].lower()
    stolen = browser.anonymous()
    response = await stolen.get(PATH, headers={"Cookie": f"__Host-kapsa-session={cookie}"})
    assert response.status_code == 401


async def test_a_session_ends_with_its_token(database: Database) -> None:
    client = ApiClient(application(database))
    await client.post(SESSION, {"token": token("maria", "Viewer")})
    async with database.transaction() as connection:
        await connection.execute(text("UPDATE fleet.browser_session SET expires_at = fleet.now()"))
    assert (await client.get(PATH)).status_code == 401


@pytest.mark.parametrize("cookie", ["x", "", "a" * 5000, "%00", "' OR 1=1 --"])
async def test_a_forged_cookie_is_refused(api: ApiClient, cookie: str) -> None:
    response = await api.anonymous().get(PATH, headers={"Cookie": f"__Host-kapsa-session={cookie}"})
    assert response.status_code == 401


async def test_the_database_has_no_cookie(browser: ApiClient, database: Database) -> None:
    cookie = browser.http.cookies["__Host-kapsa-session"]
    async with database.transaction() as connection:
        rows: Any = (await connection.execute(text("SELECT * FROM fleet.browser_session"))).all()
    assert len(rows) == 1
    assert cookie.encode() not in repr(rows).encode()


async def test_an_invalid_token_starts_no_session(api: ApiClient) -> None:
    response = await api.anonymous().post(SESSION, {"token": token(aud="other")})
    assert response.status_code == 401
    assert "set-cookie" not in response.headers


async def test_a_pasted_token_is_refused_where_an_issuer_is_configured(database: Database) -> None:
    client = ApiClient(application(database, accepts_pasted_tokens=False))
    response = await client.post(SESSION, {"token": token()})
    assert response.status_code == 409
    assert "/auth/login" in response.json()["detail"]
