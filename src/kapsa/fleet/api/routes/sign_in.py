"""Routes of the OIDC code flow. Browsers visit them; they are not part of the API."""

import html

from litestar import Controller, Response, get
from litestar.datastructures import Cookie

from kapsa.fleet.api.access import ANY_QUERY, open_to_all
from kapsa.fleet.api.authentication.oidc import OidcFlow, SignIn
from kapsa.fleet.api.authentication.sessions import session_cookie
from kapsa.fleet.api.problems import NotAuthenticated
from kapsa.fleet.api.requests import ApiRequest
from kapsa.fleet.domain.errors import UnknownObject

__all__ = ["SIGN_IN_COOKIE", "SignInController"]

SIGN_IN_COOKIE = "__Host-kapsa-sign-in"
_SECONDS = 600
_LONGEST = 4096


class SignInController(Controller):
    """Routes that a browser visits to sign in."""

    path = "/auth"
    include_in_schema = False

    @get("/login", opt=open_to_all())
    async def login(self, request: ApiRequest) -> Response[None]:
        """Send the browser to the issuer."""
        url, sign_in = await _flow(request).begin()
        return Response(
            None, status_code=302, headers={"Location": url}, cookies=[_kept(sign_in.pack(), _SECONDS)]
        )

    @get("/callback", opt={**open_to_all(), ANY_QUERY: True})
    async def callback(self, request: ApiRequest) -> Response[str]:
        """Finish the sign-in, and start a session. Issuers add parameters of their own, which are ignored."""
        state, code, error = (_parameter(request, name) for name in ("state", "code", "error"))
        if error or not code or not state:
            raise NotAuthenticated(f"the issuer did not sign you in: {error[:100] or 'no code'}")
        sign_in = SignIn.unpack(request.cookies.get(SIGN_IN_COOKIE, ""))
        principal = await _flow(request).finish(sign_in, state=state, code=code)
        token, session = await request.app.state.authenticator.sessions.start(principal)
        # Not a redirect: the browser would not send a SameSite=Strict cookie at the end of one that began elsewhere.
        page = f'<!doctype html><meta http-equiv="refresh" content="0;url=/docs"><p>Signed in as {html.escape(principal.subject)}.'
        cookies = [session_cookie(token, session.expires_at), _kept("", 0)]
        return Response(page, media_type="text/html", cookies=cookies)


def _parameter(request: ApiRequest, name: str) -> str:
    values = request.query_params.getall(name, [])
    return str(values[0])[:_LONGEST] if len(values) == 1 else ""


def _flow(request: ApiRequest) -> OidcFlow:
    flow: OidcFlow | None = request.app.state.oidc
    if flow is None:
        raise UnknownObject("no issuer is configured for signing in: set KAPSA_FLEET_OIDC_CLIENT_ID")
    return flow


def _kept(value: str, seconds: int) -> Cookie:
    # Lax, because the issuer's redirect comes from another site.
    return Cookie(
        SIGN_IN_COOKIE, value=value, path="/", max_age=seconds, secure=True, httponly=True, samesite="lax"
    )
