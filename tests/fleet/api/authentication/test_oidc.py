"""Signing in with a browser, against a small issuer that checks what a real one checks."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer
from cryptography.hazmat.primitives.asymmetric import ec

from kapsa.adapters.http.client import GuardedHttpClient
from kapsa.fleet.api.authentication.jwks import IssuerKeys
from kapsa.fleet.api.authentication.oidc import OidcClient, OidcFlow
from kapsa.fleet.api.authentication.tokens import TokenVerifier
from kapsa.fleet.infrastructure.postgres.database import Database
from tests.fleet.api.harness import BASE, ApiClient, application

CLIENT, SECRET = "fleet-console", "client-secret-5f1e"
REDIRECT = f"{BASE}/auth/callback"


class SmallIssuer:
    """An OIDC issuer with one key, one client and one user."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.codes: dict[str, dict[str, str]] = {}
        self.changes: dict[str, Any] = {}
        """Changes to the claims of the next ID token."""
        self.other_issuer = False
        app = web.Application()
        app.router.add_get("/.well-known/openid-configuration", self._configuration)
        app.router.add_get("/keys", self._keys)
        app.router.add_post("/token", self._token)
        self.server = TestServer(app)

    @property
    def url(self) -> str:
        return str(self.server.make_url("")).rstrip("/")

    def visit(self, location: str) -> str:
        """Return the query of the redirect back, after the user has signed in at this address."""
        parts = urlsplit(location)
        assert parts.path == "/authorize"
        asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        assert asked["response_type"] == "code"
        assert asked["client_id"] == CLIENT
        assert asked["redirect_uri"] == REDIRECT
        assert asked["code_challenge_method"] == "S256"
        code = f"code-{len(self.codes)}"
        self.codes[code] = asked
        return f"code={code}&state={asked['state']}&session_state=abc&iss=x"

    async def _configuration(self, request: web.Request) -> web.Response:
        issuer = "https://evil.example.com" if self.other_issuer else self.url
        endpoints = {"authorization_endpoint": f"{self.url}/authorize", "token_endpoint": f"{self.url}/token"}
        return web.json_response({"issuer": issuer, **endpoints})

    async def _keys(self, request: web.Request) -> web.Response:
        document = jwt.algorithms.ECAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        return web.json_response({"keys": [{**document, "kid": "k1", "use": "sig"}]})

    async def _token(self, request: web.Request) -> web.Response:
        form = await request.post()
        expected = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        asked = self.codes.pop(str(form["code"]), None)
        digest = hashlib.sha256(str(form["code_verifier"]).encode()).digest()
        proven = asked and base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == asked["code_challenge"]
        if request.headers.get("Authorization") != f"Basic {expected}" or not asked or not proven:
            return web.json_response({"error": "invalid_grant"}, status=400)
        assert form["redirect_uri"] == REDIRECT
        return web.json_response({"access_token": "opaque", "id_token": self._id_token(asked["nonce"])})

    def _id_token(self, nonce: str) -> str:
        now = int(time.time())
        claims = {
            "iss": self.url,
            "aud": CLIENT,
            "sub": "maria",
            "iat": now,
            "exp": now + 300,
            "nonce": nonce,
            "roles": ["Operator"],
            "email": "maria@example.com",
        }
        return jwt.encode({**claims, **self.changes}, self.key, algorithm="ES256", headers={"kid": "k1"})


@pytest_asyncio.fixture
async def issuer() -> AsyncIterator[SmallIssuer]:
    small = SmallIssuer()
    await small.server.start_server()
    yield small
    await small.server.close()


@pytest_asyncio.fixture
async def browser(issuer: SmallIssuer, database: Database) -> AsyncIterator[ApiClient]:
    http = GuardedHttpClient(address_guard=None, timeout=60)
    verifier = TokenVerifier(
        IssuerKeys(http, f"{issuer.url}/keys"),
        issuer=issuer.url,
        audience=CLIENT,
        required=("exp", "iat", "iss", "aud", "sub", "nonce"),
    )
    flow = OidcFlow(http, OidcClient(issuer.url, CLIENT, SECRET, REDIRECT), verifier)
    yield ApiClient(application(database, oidc=flow, accepts_pasted_tokens=False))
    await http.close()


async def _begin(browser: ApiClient) -> str:
    response = await browser.get("/auth/login")
    assert response.status_code == 302
    return response.headers["location"]


async def test_a_browser_signs_in_with_state_nonce_and_pkce(browser: ApiClient, issuer: SmallIssuer) -> None:
    started = await browser.get("/auth/login")
    cookie = started.headers["set-cookie"].lower()
    assert all(part in cookie for part in ("httponly", "secure", "samesite=lax", "max-age=600"))
    back = issuer.visit(started.headers["location"])
    finished = await browser.get(f"/auth/callback?{back}")
    assert finished.status_code == 200, finished.text
    session = (await browser.get("/api/v1/session")).json()
    assert (session["subject"], session["roles"], session["email"]) == (
        "maria",
        ["Operator"],
        "maria@example.com",
    )
    again = await browser.get(f"/auth/callback?{back}")
    assert again.status_code == 401


async def test_another_browser_cannot_finish_the_sign_in(browser: ApiClient, issuer: SmallIssuer) -> None:
    back = issuer.visit(await _begin(browser))
    response = await browser.anonymous().get(f"/auth/callback?{back}")
    assert response.status_code == 401
    assert "did not begin" in response.json()["detail"]


async def test_a_forged_state_is_refused(browser: ApiClient, issuer: SmallIssuer) -> None:
    code = issuer.visit(await _begin(browser)).split("&")[0]
    for state in ("&state=guess", "&state=", "", "&state=a&state=b"):
        assert (await browser.get(f"/auth/callback?{code}{state}")).status_code == 401


async def test_an_id_token_for_somebody_else_is_refused(browser: ApiClient, issuer: SmallIssuer) -> None:
    for changes in (
        {"nonce": "other"},
        {"aud": "other-client"},
        {"iss": "https://evil.example.com"},
        {"exp": 5},
        {"sub": "a\nb"},
    ):
        issuer.changes = changes
        response = await browser.get(f"/auth/callback?{issuer.visit(await _begin(browser))}")
        assert response.status_code == 401, changes
        assert "__Host-kapsa-session" not in response.headers.get("set-cookie", "")


async def test_a_code_of_another_flow_is_refused_by_pkce(browser: ApiClient, issuer: SmallIssuer) -> None:
    stolen = issuer.visit(await _begin(browser)).split("&")[0]
    mine = issuer.visit(await _begin(browser)).split("&", 1)[1]
    assert (await browser.get(f"/auth/callback?{stolen}&{mine}")).status_code == 401


async def test_a_configuration_of_another_issuer_is_refused(browser: ApiClient, issuer: SmallIssuer) -> None:
    issuer.other_issuer = True
    assert (await browser.get("/auth/login")).status_code == 401


async def test_an_error_of_the_issuer_is_shown(browser: ApiClient) -> None:
    response = await browser.get("/auth/callback?error=access_denied&error_description=<script>&state=x")
    assert response.status_code == 401
    assert "access_denied" in response.json()["detail"]


async def test_signing_in_is_off_without_an_issuer(database: Database) -> None:
    assert (await ApiClient(application(database)).get("/auth/login")).status_code == 404
