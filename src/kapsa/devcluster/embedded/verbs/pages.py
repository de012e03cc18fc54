"""LIST: which revision is read, which page of it, and the token that continues it."""

from __future__ import annotations

from typing import Any

import msgspec

from kapsa.devcluster.embedded.requests.parameters import ListParameters
from kapsa.devcluster.embedded.storage.store import (
    Collection,
    CompactedError,
    FutureRevisionError,
    ObjectStore,
    Stored,
)
from kapsa.devcluster.embedded.verbs.selection import Selection
from kapsa.devcluster.wire.continue_tokens import decode_token, encode_token, expired_list, expired_token
from kapsa.devcluster.wire.status_errors import ErrorCause, StatusError, bad_request, gateway_timeout
from kapsa.schemas.go_format import quote

__all__ = [
    "Page",
    "parse_revision",
    "read_page",
    "too_large_revision",
]

_LONGEST_REVISION = 19
"""Digits of a number that surely fits 64 bits."""


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


def read_page(
    store: ObjectStore,
    collection: Collection,
    chosen: Selection,
    options: ListParameters,
    *,
    frozen: int | None = None,
) -> Page:
    """The page a list request asks for.

    :param frozen: a revision that stands for the newest one, when reads are made stale on purpose.
    """
    current = store.revision if frozen is None else frozen
    if options.continue_token:
        token = decode_token(options.continue_token)
        if options.resource_version not in ("", "0"):
            raise bad_request("specifying resource version is not allowed when using continue")
        after = chosen.prefix + token.start
        if token.rv < 0:
            return _page(collection.at(current, chosen.prefix, after), current, chosen, options.limit)
        try:
            return _page(collection.at(token.rv, chosen.prefix, after), token.rv, chosen, options.limit)
        except CompactedError:
            raise expired_token(token) from None
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


def _revision(options: ListParameters, current: int) -> int:
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
    token = encode_token(revision, items[-1].key[len(chosen.prefix) :] + "\0")
    # With a selector the real server does not know how many of the rest would match.
    remaining = len(objects) - limit if chosen.is_everything else None
    return Page(items, revision, token, remaining)


def parse_revision(text: str) -> int:
    """A resourceVersion of a request as a number."""
    if not text.isascii() or not text.isdigit() or len(text) > _LONGEST_REVISION:
        problem = "value out of range" if text.isdigit() else "invalid syntax"
        raise bad_request(
            f"invalid resource version: resourceVersion: Invalid value: {quote(text)}: "
            f"strconv.ParseUint: parsing {quote(text)}: {problem}"
        )
    return int(text)


def too_large_revision(error: FutureRevisionError) -> StatusError:
    """What a client is told that asks for a revision which has not happened yet."""
    return gateway_timeout(
        f"Too large resource version: {error.requested}, current: {error.current}",
        retry_after=1,
        causes=[ErrorCause("", "ResourceVersionTooLarge", "Too large resource version")],
    )
