"""A request as the routes see it: its caller, the use cases, and a body that is decoded strictly."""

from typing import Any

from litestar import Request
from litestar.types import Empty

from kapsa.fleet.api.authentication.callers import Caller
from kapsa.fleet.api.bodies import decode_body
from kapsa.fleet.api.problems import NotAuthenticated, UnsupportedContent
from kapsa.fleet.api.trace_parent import checked_trace_parent
from kapsa.fleet.api.use_cases import UseCases
from kapsa.fleet.domain.errors import InvalidField, InvalidInput
from kapsa.fleet.domain.principals import Principal

__all__ = ["ApiRequest", "etag", "expected_version"]

_NO_VERSION = 2**63
"""A version that no object has."""


class ApiRequest(Request[Any, Any, Any]):
    """A request to the API."""

    @property
    def caller(self) -> Caller:
        """The authenticated caller."""
        caller = self.scope.get("user")
        if not isinstance(caller, Caller):
            raise NotAuthenticated("a token is required: send `Authorization: Bearer TOKEN`")
        return caller

    @property
    def principal(self) -> Principal:
        """The caller as the use cases see it."""
        return self.caller.principal

    @property
    def use_cases(self) -> UseCases:
        """The use cases of the application."""
        use_cases: UseCases = self.app.state.use_cases
        return use_cases

    @property
    def trace_parent(self) -> str:
        """The W3C trace context of the caller; empty if it sent none, or one that is not valid."""
        return checked_trace_parent(self.headers.get("traceparent", ""))

    async def json(self) -> Any:
        """Return the body as an instance of the type that the route declares."""
        if self._json is Empty:
            content = await self.body()
            if content and self.content_type[0] != "application/json":
                raise UnsupportedContent("the body must be JSON: send `Content-Type: application/json`")
            field = self.route_handler.parsed_data_field
            assert field is not None
            self._json = decode_body(content, field.annotation)
        return self._json


def etag(version: int) -> str:
    """Return the ETag of a version of an object."""
    return f'"{version}"'


def expected_version(if_match: str | None) -> int | None:
    """Return the version that `If-Match` names; None if any will do."""
    if if_match is None or if_match.strip() == "*":
        return None
    text = if_match.strip()
    if len(text) > 2 and text[0] == text[-1] == '"' and text[1:-1].isascii() and text[1:-1].isdigit():
        return min(int(text[1:-1]), _NO_VERSION)  # int() is quick: a header has at most 64 characters
    message = 'must be an ETag that the API has sent, such as "3", or *'
    raise InvalidInput(f"If-Match {message}", InvalidField("/If-Match", message))
