"""Continue tokens of paged lists, and the errors for lists whose revision was compacted."""

from __future__ import annotations

import base64

import msgspec

from kapsa.devcluster.wire.go_json import json_type, syntax_error
from kapsa.devcluster.wire.status_errors import StatusError, bad_request, expired

__all__ = [
    "ContinueToken",
    "decode_token",
    "encode_token",
    "expired_if_before",
    "expired_list",
    "expired_token",
]

_EXPIRED_LIST = "The resourceVersion for the provided list is too old."
_EXPIRED_CONTINUE = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)
_INCONSISTENT = -1
_BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


class ContinueToken(msgspec.Struct):
    """A page's end: where the next page starts, and the revision it is read at."""

    v: str = ""
    rv: int = 0
    """Revision of the list. Negative: the newest one, since the list's own was compacted."""
    start: str = ""


def encode_token(revision: int, start: str) -> str:
    """Return the token of a page that starts at a key."""
    data = msgspec.json.encode({"v": "meta.k8s.io/v1", "rv": revision, "start": start})
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decode_token(text: str) -> ContinueToken:
    """Decode a client's token. Raises ApiError 400, in kube-apiserver's words, for an invalid one."""
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        raise _invalid(_base64_problem(text)) from None
    try:
        token = msgspec.json.decode(data, type=ContinueToken)
    except (ValueError, msgspec.DecodeError) as error:
        raise _invalid(syntax_error(data) or _type_mismatch(data) or str(error)) from None
    if token.v != "meta.k8s.io/v1":
        raise _invalid(f"server does not recognize this encoded version {token.v}")
    if token.rv == 0:
        raise _invalid("incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
    if not token.start:
        raise _invalid("encoded start key empty (version meta.k8s.io/v1)")
    if any(part in ("", ".", "..") for part in token.start.lstrip("/").split("/")):
        raise _invalid(token.start)
    return token


def _invalid(problem: str) -> StatusError:
    return bad_request(f"invalid continue token: continue key is not valid: {problem}")


def _base64_problem(text: str) -> str:
    wrong = (index for index, character in enumerate(text) if character not in _BASE64)
    # If each character is valid, the length is not: Go points at the single last character.
    return f"illegal base64 data at input byte {next(wrong, len(text) - 1)}"


def _type_mismatch(data: bytes) -> str:
    """Return which value of well-formed JSON has the wrong type, in Go's words."""
    decoded = msgspec.json.decode(data)
    if not isinstance(decoded, dict):
        return f"json: cannot unmarshal {json_type(decoded)} into Go value of type storage.continueToken"
    for field, kind, name in (("v", str, "string"), ("rv", int, "int64"), ("start", str, "string")):
        value = decoded.get(field)
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            return f"json: cannot unmarshal {json_type(value)} into Go struct field continueToken.{field} of type {name}"
    return ""


def expired_list() -> StatusError:
    """Return the error for a list at a compacted revision."""
    return expired(_EXPIRED_LIST)


def expired_token(token: ContinueToken) -> StatusError:
    """Return the error for a token of a compacted revision, with a token that continues at the newest one."""
    error = expired(_EXPIRED_CONTINUE)
    error.metadata["continue"] = encode_token(_INCONSISTENT, token.start)
    return error


def expired_if_before(text: str, revision: int) -> StatusError | None:
    """Return the error for a token of a list older than `revision`, None for any other token."""
    token = decode_token(text)
    return expired_token(token) if 0 < token.rv < revision else None
