"""The OIDC code flow: a browser signs in at the issuer, with state, nonce and PKCE.

What must survive the visit to the issuer is in a cookie of the browser that began it: nobody else can finish it.
"""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from kapsa.adapters.errors import ExternalError
from kapsa.adapters.http.client import HttpClient
from kapsa.fleet.api.authentication.roles import principal_of
from kapsa.fleet.api.authentication.tokens import InvalidToken, TokenVerifier
from kapsa.fleet.api.problems import NotAuthenticated
from kapsa.fleet.domain.principals import Principal

__all__ = ["OidcClient", "OidcFlow", "SignIn"]

_LARGEST = 256 * 1024


class OidcClient(msgspec.Struct, frozen=True):
    """This installation, as the issuer knows it."""

    issuer: str
    client_id: str
    client_secret: str
    redirect_url: str
    roles_claim: str = "roles"

    def __repr__(self) -> str:
        return f"OidcClient({self.issuer}, {self.client_id})"  # the secret must not appear in logs


class SignIn(msgspec.Struct, frozen=True, array_like=True):
    """A sign-in that has begun."""

    state: str
    nonce: str
    verifier: str

    def pack(self) -> str:
        """Return it as the value of a cookie."""
        return ".".join((self.state, self.nonce, self.verifier))

    @classmethod
    def unpack(cls, cookie: str) -> "SignIn | None":
        """Return the sign-in in a cookie."""
        parts = cookie.split(".") if len(cookie) <= 512 else []
        return cls(*parts) if len(parts) == 3 and all(parts) else None


class _Endpoints(msgspec.Struct, frozen=True):
    issuer: str
    authorization_endpoint: str
    token_endpoint: str


class _TokenAnswer(msgspec.Struct, frozen=True):
    id_token: str


class OidcFlow:
    """The code flow with one issuer."""

    def __init__(self, http: HttpClient, client: OidcClient, id_tokens: TokenVerifier) -> None:
        self._http = http
        self._client = client
        self._id_tokens = id_tokens

    async def begin(self) -> tuple[str, SignIn]:
        """Return the address at the issuer to visit, and what the browser must keep."""
        sign_in = SignIn(*(secrets.token_urlsafe(32) for _ in range(3)))
        challenge = base64.urlsafe_b64encode(hashlib.sha256(sign_in.verifier.encode()).digest()).rstrip(b"=")
        query = urlencode(
            {
                "response_type": "code",
                "client_id": self._client.client_id,
                "redirect_uri": self._client.redirect_url,
                "scope": "openid profile email",
                "state": sign_in.state,
                "nonce": sign_in.nonce,
                "code_challenge": challenge.decode(),
                "code_challenge_method": "S256",
            }
        )
        endpoint = (await self._endpoints()).authorization_endpoint
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{query}", sign_in

    async def finish(self, sign_in: SignIn | None, *, state: str, code: str) -> Principal:
        """Return the person who has signed in.

        Raises NotAuthenticated if this browser did not begin the sign-in, or the issuer's answer is not valid.
        """
        if sign_in is None or not hmac.compare_digest(sign_in.state.encode(), state.encode()):
            raise NotAuthenticated("this browser did not begin the sign-in: start again at /auth/login")
        try:
            claims = await self._id_tokens.claims(await self._redeem(code, sign_in.verifier))
        except InvalidToken as error:
            raise NotAuthenticated(f"the issuer's answer is not valid: {error}") from None
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), sign_in.nonce.encode()):
            raise NotAuthenticated(
                "the issuer's answer belongs to another sign-in: start again at /auth/login"
            )
        return principal_of(claims, self._client.roles_claim)

    async def _redeem(self, code: str, verifier: str) -> str:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._client.redirect_url,
            "code_verifier": verifier,
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        if self._client.client_secret:
            pair = f"{quote(self._client.client_id, safe='')}:{quote(self._client.client_secret, safe='')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            form["client_id"] = self._client.client_id
        endpoint = (await self._endpoints()).token_endpoint
        answer = await self._fetch("POST", endpoint, headers, urlencode(form).encode(), _TokenAnswer)
        return str(answer.id_token)

    async def _endpoints(self) -> _Endpoints:
        url = self._client.issuer.rstrip("/") + "/.well-known/openid-configuration"
        endpoints: _Endpoints = await self._fetch("GET", url, {"Accept": "application/json"}, b"", _Endpoints)
        if endpoints.issuer != self._client.issuer:
            raise NotAuthenticated("the issuer's configuration names another issuer")
        scheme = urlsplit(self._client.issuer).scheme
        if any(
            urlsplit(each).scheme != scheme
            for each in (endpoints.authorization_endpoint, endpoints.token_endpoint)
        ):
            raise NotAuthenticated("the issuer's configuration names addresses with another protocol")
        return endpoints

    async def _fetch(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, kind: type[Any]
    ) -> Any:
        try:
            response = await self._http.fetch(method, url, headers=headers, body=body, limit=_LARGEST)
            if response.status != 200:
                raise NotAuthenticated(f"the issuer answered {response.status}: start again at /auth/login")
            return msgspec.json.decode(response.body, type=kind)
        except ExternalError:
            raise NotAuthenticated("the issuer cannot be reached: try again later") from None
        except msgspec.DecodeError:
            raise NotAuthenticated("the issuer's answer is malformed") from None
