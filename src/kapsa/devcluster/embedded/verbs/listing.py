"""LIST: which revision is read, which page of it, and the token that continues it."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from kapsa.devcluster.embedded.codec.bodies import json_type
from kapsa.devcluster.embedded.requests.options import ListOptions
from kapsa.devcluster.embedded.storage.store import (
    Collection,
    CompactedError,
    FutureRevisionError,
    Store,
    Stored,
)
from kapsa.devcluster.embedded.verbs.selection import Selection
from kapsa.devcluster.wire.go_json import syntax_error
from kapsa.devcluster.wire.status_errors import ApiError, Cause, bad_request, expired, gateway_timeout
from kapsa.schemas.go_format import quote

__all__ = [
    "Page",
    "expired_if_before",
    "expired_list",
    "parse_revision",
    "read_page",
    "too_large_revision",
]

_EXPIRED_LIST = "The resourceVersion for the provided list is too old."
_EXPIRED_CONTINUE = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)
_INCONSISTENT = -1
_LONGEST_REVISION = 19
"""Digits of a number that surely fits 64 bits."""
_BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


class Page(msgspec.Struct, frozen=True):
    """One page of a list."""

    items: list[Stored]
    revision: int
    continue_token: str = ""
    remaining: int | None = None

    def metadata(self) -> dict[str, Any]:
        """The list's ``metadata``."""
        metadata: dict[str, Any] = {"resourceVersion": str(self.revision)}
        if self.continue_token:
            metadata["continue"] = self.continue_token
        if self.remaining is not None:
            metadata["remainingItemCount"] = self.remaining
        return metadata


class _Token(msgspec.Struct):
    v: str = ""
    rv: int = 0
    start: str = ""


def read_page(
    store: Store,
    collection: Collection,
    chosen: Selection,
    options: ListOptions,
    *,
    frozen: int | None = None,
) -> Page:
    """The page a list request asks for.

    :param frozen: a revision that stands for the newest one, when reads are made stale on purpose.
    """
    current = store.revision if frozen is None else frozen
    if options.continue_token:
        token = _decode_token(options.continue_token, options)
        after = chosen.prefix + token.start
        if token.rv < 0:
            return _page(collection.at(current, chosen.prefix, after), current, chosen, options.limit)
        try:
            return _page(collection.at(token.rv, chosen.prefix, after), token.rv, chosen, options.limit)
        except CompactedError:
            raise _expired_continue(token) from None
        except FutureRevisionError as error:
            raise too_large_revision(error) from None
    revision = _revision(options, current)
    try:
        if revision == store.revision:
            objects = collection.current(chosen.prefix)
        else:
            objects = collection.at(revision, chosen.prefix)
    except CompactedError:
        raise expired_list() from None
    except FutureRevisionError as error:
        raise too_large_revision(error) from None
    return _page(objects, revision, chosen, options.limit)


def _revision(options: ListOptions, current: int) -> int:
    """The revision to read at: exact where one is asked for, the newest one otherwise."""
    if options.resource_version in ("", "0"):
        return current
    wanted = parse_revision(options.resource_version)
    exact = options.resource_version_match == "Exact" or (
        not options.resource_version_match and options.limit > 0
    )
    if exact:
        return wanted
    if wanted > current:
        raise too_large_revision(FutureRevisionError(wanted, current))
    return current


def _page(objects: list[Stored], revision: int, chosen: Selection, limit: int) -> Page:
    matching = chosen.filter(objects)
    if limit <= 0 or len(matching) <= limit:
        return Page(matching, revision)
    items = matching[:limit]
    token = _encode_token(revision, items[-1].key[len(chosen.prefix) :] + "\0")
    # With a selector the real server does not know how many of the rest would match.
    remaining = len(objects) - limit if chosen.is_everything else None
    return Page(items, revision, token, remaining)


def _encode_token(revision: int, start: str) -> str:
    data = msgspec.json.encode({"v": "meta.k8s.io/v1", "rv": revision, "start": start})
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode_token(text: str, options: ListOptions) -> _Token:
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        raise bad_request(
            f"invalid continue token: continue key is not valid: {_base64_problem(text)}"
        ) from None
    try:
        token = msgspec.json.decode(data, type=_Token)
    except (ValueError, msgspec.DecodeError) as error:
        why = syntax_error(data) or _misfit(data) or str(error)
        raise bad_request(f"invalid continue token: continue key is not valid: {why}") from None
    if token.v != "meta.k8s.io/v1":
        raise bad_request(
            f"invalid continue token: continue key is not valid: server does not recognize this encoded version {token.v}"
        )
    if token.rv == 0:
        raise bad_request(
            "invalid continue token: continue key is not valid: "
            "incorrect encoded start resourceVersion (version meta.k8s.io/v1)"
        )
    if not token.start:
        raise bad_request(
            "invalid continue token: continue key is not valid: encoded start key empty (version meta.k8s.io/v1)"
        )
    if any(part in ("", ".", "..") for part in token.start.lstrip("/").split("/")):
        raise bad_request(f"invalid continue token: continue key is not valid: {token.start}")
    if options.resource_version not in ("", "0"):
        raise bad_request("specifying resource version is not allowed when using continue")
    return token


def expired_list() -> ApiError:
    """What a client is told that asks for a revision which is forgotten."""
    return expired(_EXPIRED_LIST)


def expired_if_before(token: str, revision: int) -> ApiError | None:
    """What the client of a continue token is told once the history before ``revision`` is forgotten."""
    decoded = _decode_token(token, ListOptions())
    return _expired_continue(decoded) if 0 < decoded.rv < revision else None


def _base64_problem(text: str) -> str:
    wrong = (index for index, character in enumerate(text) if character not in _BASE64)
    # Only the length can be wrong else: Go points at the lone last character.
    return f"illegal base64 data at input byte {next(wrong, len(text) - 1)}"


def _misfit(data: bytes) -> str:
    """Why well-formed JSON is no token, in Go's words."""
    decoded = msgspec.json.decode(data)
    if not isinstance(decoded, dict):
        return f"json: cannot unmarshal {json_type(decoded)} into Go value of type storage.continueToken"
    for field, kind, name in (("v", str, "string"), ("rv", int, "int64"), ("start", str, "string")):
        value = decoded.get(field)
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            return f"json: cannot unmarshal {json_type(value)} into Go struct field continueToken.{field} of type {name}"
    return ""


def _expired_continue(token: _Token) -> ApiError:
    error = expired(_EXPIRED_CONTINUE)
    error.metadata["continue"] = _encode_token(_INCONSISTENT, token.start)
    return error


def parse_revision(text: str) -> int:
    """A resourceVersion of a request as a number."""
    if not text.isascii() or not text.isdigit() or len(text) > _LONGEST_REVISION:
        problem = "value out of range" if text.isdigit() else "invalid syntax"
        raise bad_request(
            f"invalid resource version: resourceVersion: Invalid value: {quote(text)}: "
            f"strconv.ParseUint: parsing {quote(text)}: {problem}"
        )
    return int(text)


def too_large_revision(error: FutureRevisionError) -> ApiError:
    """What a client is told that asks for a revision which has not happened yet."""
    return gateway_timeout(
        f"Too large resource version: {error.requested}, current: {error.current}",
        retry_after=1,
        causes=[Cause("", "ResourceVersionTooLarge", "Too large resource version")],
    )
