"""The user of each request: of its token or certificate, then the one that it impersonates."""

from __future__ import annotations

import msgspec

from kapsa.devcluster.embedded.authentication.impersonation import PREFIX, Impersonation, impersonated_user
from kapsa.devcluster.embedded.authentication.tokens import TokenError, Tokens
from kapsa.devcluster.embedded.authorization.attributes import attributes_of
from kapsa.devcluster.embedded.authorization.authorizer import Authorizer
from kapsa.devcluster.wire import status_errors as errors
from kapsa.devcluster.wire.exchange import ADMIN, ANONYMOUS, Request, RequestUser
from kapsa.devcluster.wire.routes import ResourceRoute

__all__ = ["Authenticator"]


class Authenticator:
    """The authentication of the sender of a request."""

    def __init__(self, authorizer: Authorizer, tokens: Tokens) -> None:
        self._impersonation = Impersonation(authorizer)
        self._tokens = tokens

    def authenticate(self, request: Request, route: ResourceRoute | None) -> Request:
        """Return the request with its user. Raises StatusError 401 or 403 for credentials that are not valid."""
        user = self._sender(request)
        for header in request.headers:
            if header.startswith(PREFIX):
                user = self._impersonated(request, route, user or ADMIN)
                break
        return request if request.user is user else msgspec.structs.replace(request, user=user)

    def _sender(self, request: Request) -> RequestUser | None:
        header = request.headers.get("authorization")
        # The user of a certificate, or of a test, needs no token.
        if header is None or not (request.user is None or request.user is ANONYMOUS):
            return request.user
        scheme, _, token = header.strip().partition(" ")
        token = token.partition(" ")[0]
        if scheme.lower() != "bearer" or not token:
            return request.user
        try:
            return self._tokens.accept(token).user
        except TokenError:
            raise errors.unauthorized() from None

    def _impersonated(self, request: Request, route: ResourceRoute | None, user: RequestUser) -> RequestUser:
        target = impersonated_user(request.headers)
        if target is None:
            return user
        return self._impersonation.impersonate(target, attributes_of(request, route, user))
