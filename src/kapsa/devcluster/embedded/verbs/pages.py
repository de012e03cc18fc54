"""List: the revision to read, the page of it, and the token for the next page."""

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
    "ListPage",
    "parse_revision",
    "read_page",
    "too_large_revision",
]

_LONGEST_REVISION = 19
"""Digits of a number that always fits into 64 bits."""


class ListPage(msgspec.Struct, frozen=True):
    """One page of a list."""

    items: list[Stored]
    revision: int
    continue_token: str = ""
    remaining: int | None = None

    def metadata(self) -> dict[str, Any]:
        """Return the `metadata` of the list."""
        metadata: dict[str, Any] = {"resourceVersion": str(self.revision)}
        if self.continue_token:
            metadata["continue"] = self.continue_token
        if self.remaining is not None:
            metadata["remainingItemCount"] = self.remaining
        return metadata


def read_page(
    store: ObjectStore,
    collection: Collection,
    selection: Selection,
    parameters: ListParameters,
    *,
    frozen: int | None = None,
) -> ListPage:
    """Return the page that a list requests; `frozen` replaces the newest revision while reads are stale.

    Raises StatusError 400 for an invalid token or revision, 410 for a compacted one, 504 for a future one.
    """
    current = store.revision if frozen is None else frozen
    if parameters.continue_token:
        token = decode_token(parameters.continue_token)
        if parameters.resource_version not in ("", "0"):
            raise bad_request("specifying resource version is not allowed when using continue")
        after = selection.prefix + token.start
        if token.rv < 0:
            return _page(
                collection.at(current, selection.prefix, after), current, selection, parameters.limit
            )
        try:
            return _page(
                collection.at(token.rv, selection.prefix, after), token.rv, selection, parameters.limit
            )
        except CompactedError:
            raise expired_token(token) from None
        except FutureRevisionError as error:
            raise too_large_revision(error) from None
    revision = _revision(parameters, current)
    try:
        if revision == store.revision:
            objects = collection.current(selection.prefix)
        else:
            objects = collection.at(revision, selection.prefix)
    except CompactedError:
        raise expired_list() from None
    except FutureRevisionError as error:
        raise too_large_revision(error) from None
    return _page(objects, revision, selection, parameters.limit)


def _revision(parameters: ListParameters, current: int) -> int:
    """Return the revision to read: an exact one if requested, otherwise the newest."""
    if parameters.resource_version in ("", "0"):
        return current
    requested = parse_revision(parameters.resource_version)
    exact = parameters.resource_version_match == "Exact" or (
        not parameters.resource_version_match and parameters.limit > 0
    )
    if exact:
        return requested
    if requested > current:
        raise too_large_revision(FutureRevisionError(requested, current))
    return current


def _page(objects: list[Stored], revision: int, selection: Selection, limit: int) -> ListPage:
    matching = selection.filter(objects)
    if limit <= 0 or len(matching) <= limit:
        return ListPage(matching, revision)
    items = matching[:limit]
    token = encode_token(revision, items[-1].key[len(selection.prefix) :] + "\0")
    # With a selector, the real server does not count the remaining matches.
    remaining = len(objects) - limit if selection.is_everything else None
    return ListPage(items, revision, token, remaining)


def parse_revision(text: str) -> int:
    """Parse the resourceVersion of a request. Raises StatusError 400."""
    if not text.isascii() or not text.isdigit() or len(text) > _LONGEST_REVISION:
        problem = "value out of range" if text.isdigit() else "invalid syntax"
        raise bad_request(
            f"invalid resource version: resourceVersion: Invalid value: {quote(text)}: "
            f"strconv.ParseUint: parsing {quote(text)}: {problem}"
        )
    return int(text)


def too_large_revision(error: FutureRevisionError) -> StatusError:
    """Return the error for a revision that the store has not reached."""
    return gateway_timeout(
        f"Too large resource version: {error.requested}, current: {error.current}",
        retry_after=1,
        causes=[ErrorCause("", "ResourceVersionTooLarge", "Too large resource version")],
    )
