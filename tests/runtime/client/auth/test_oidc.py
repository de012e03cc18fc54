"""Tokens from an OpenID Connect issuer."""

import asyncio
import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from structlog.testing import capture_logs

from kapsa.runtime.client.config import from_kubeconfig
from kapsa.runtime.errors import CredentialError
from tests.runtime.client.clock import ManualClock
from tests.runtime.client.servers import http_server


def token(expires_in: float, name: str) -> str:
    def part(content: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none'})}.{part({'exp': time.time() + expires_in, 'sub': name})}.sig"


class FakeIssuer:
    """An OpenID Connect issuer that records the requests for tokens."""

    def __init__(self) -> None:
        self.requests: list[dict[str, str]] = []
        self.authorizations: list[str | None] = []
        self.url = ""
        self.response: dict[str, str] = {}

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/.well-known/openid-configuration":
            return web.json_response({"issuer": self.url, "token_endpoint": f"{self.url}/token"})
        form = await request.post()
        self.requests.append({key: str(value) for key, value in form.items()})
        self.authorizations.append(request.headers.get("Authorization"))
        return web.json_response(self.response, status=400 if "error" in self.response else 200)


def oidc_kubeconfig(path: Path, server: str, **config: str) -> Path:
    document = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"auth-provider": {"name": "oidc", "config": config}}}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


async def test_an_id_token_is_used_until_it_expires_then_renewed_once_and_saved(tmp_path: Path) -> None:
    issuer = FakeIssuer()
    async with http_server(issuer.handle) as url:
        issuer.url = url
        first, second = token(3600, "first"), token(9000, "second")
        issuer.response = {"id_token": second, "refresh_token": "refresh-2"}
        path = oidc_kubeconfig(
            tmp_path / "config",
            "https://api",
            **{
                "idp-issuer-url": url,
                "client-id": "kapsa",
                "client-secret": "s",
                "id-token": first,
                "refresh-token": "refresh-1",
            },
        )
        clock = ManualClock()
        access = from_kubeconfig([path], environment={}, clock=clock).access
        assert (await access.authorize()).headers == (("Authorization", f"Bearer {first}"),)
        assert issuer.requests == []
        clock.ahead = 3600
        authorizations = await asyncio.gather(*(access.authorize() for _ in range(20)))
    assert {each.headers[0][1] for each in authorizations} == {f"Bearer {second}"}
    assert issuer.requests == [
        {"grant_type": "refresh_token", "refresh_token": "refresh-1", "client_id": "kapsa"}
    ]
    assert issuer.authorizations[0] == "Basic a2Fwc2E6cw=="
    saved = yaml.safe_load(path.read_text())["users"][0]["user"]["auth-provider"]["config"]
    assert (saved["id-token"], saved["refresh-token"], saved["client-id"]) == (second, "refresh-2", "kapsa")
    assert path.stat().st_mode & 0o077 == 0


async def test_a_renewed_token_that_cannot_be_saved_is_used_and_logged_once(
    tmp_path: Path,
) -> None:
    issuer = FakeIssuer()
    async with http_server(issuer.handle) as url:
        issuer.url = url
        config = {"idp-issuer-url": url, "client-id": "kapsa", "refresh-token": "refresh-1"}
        path = oidc_kubeconfig(tmp_path / "config", "https://api", **config)
        clock = ManualClock()
        access = from_kubeconfig([path], environment={}, clock=clock).access
        path.unlink()
        with capture_logs() as logs:
            for number in (2, 3):
                fresh = token(clock.ahead + 3600, f"number {number}")
                issuer.response = {"id_token": fresh, "refresh_token": f"refresh-{number}"}
                assert (await access.authorize()).headers == (("Authorization", f"Bearer {fresh}"),)
                clock.ahead += 3600
    assert [request["refresh_token"] for request in issuer.requests] == ["refresh-1", "refresh-2"]
    (entry,) = [each for each in logs if "write the renewed token back" in each["event"]]
    assert str(path) in entry["error"]
    assert "context 'x'" in entry["field"]


async def test_the_error_of_an_issuer_that_rejects_the_token_asks_for_a_login(tmp_path: Path) -> None:
    issuer = FakeIssuer()
    async with http_server(issuer.handle) as url:
        issuer.url = url
        issuer.response = {"error": "invalid_grant", "error_description": "Token expired"}
        config = {"idp-issuer-url": url, "client-id": "kapsa", "refresh-token": "r"}
        path = oidc_kubeconfig(tmp_path / "config", "https://api", **config)
        with pytest.raises(CredentialError, match=r"did not renew the token: Token expired; log in again"):
            await from_kubeconfig([path], environment={}).access.authorize()


async def test_the_error_for_an_expired_id_token_without_refresh_token_asks_for_a_login(
    tmp_path: Path,
) -> None:
    config = {"idp-issuer-url": "https://idp", "client-id": "kapsa", "id-token": token(-5, "old")}
    path = oidc_kubeconfig(tmp_path / "config", "https://api", **config)
    with pytest.raises(CredentialError, match="has expired and there is no refresh-token; log in again"):
        await from_kubeconfig([path], environment={}).access.authorize()
