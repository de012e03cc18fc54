"""The selection of a collection's objects by namespace and selectors."""

from __future__ import annotations

from collections.abc import Iterable

from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.embedded.requests.field_terms import SelectorError
from kapsa.devcluster.embedded.requests.parameters import ListParameters
from kapsa.devcluster.embedded.storage.store import Stored
from kapsa.devcluster.embedded.verbs import field_selectors, label_selectors
from kapsa.devcluster.embedded.verbs.field_selectors import FieldMatcher
from kapsa.devcluster.embedded.verbs.label_selectors import LabelMatcher
from kapsa.devcluster.wire.status_errors import bad_request

__all__ = ["Selection", "selection"]


class Selection:
    """A predicate on stored objects."""

    __slots__ = ("fields", "labels", "name", "prefix")

    def __init__(
        self, prefix: str, labels: LabelMatcher | None, fields: FieldMatcher | None, name: str = ""
    ) -> None:
        self.prefix = prefix
        """Prefix of the keys that can match: the namespace, or empty."""
        self.labels = labels
        self.fields = fields
        self.name = name
        """The only name that can match, if the selector requires one."""

    @property
    def is_everything(self) -> bool:
        """True if all objects under the prefix match."""
        return self.labels is None and self.fields is None

    def matches(self, stored: Stored) -> bool:
        """Return whether an object matches."""
        return (
            stored.key.startswith(self.prefix)
            and (self.labels is None or self.labels(stored.labels))
            and (self.fields is None or self.fields(stored))
        )

    def filter(self, objects: Iterable[Stored]) -> list[Stored]:
        """Return the matching objects out of those under the prefix."""
        if self.is_everything:
            return list(objects)
        return [stored for stored in objects if self.matches(stored)]


def selection(info: ResourceInfo, namespace: str, options: ListParameters, name: str = "") -> Selection:
    """Return the selection of a request. `name` is the object in its path, if any.

    Raises a 400 StatusError for an invalid selector.
    """
    prefix = f"{namespace}/" if info.namespaced and namespace else ""
    if not options.label_selector and not options.field_selector and not name:
        return Selection(prefix, None, None)
    try:
        labels = label_selectors.parse(options.label_selector) if options.label_selector else None
        fields, only = field_selectors.parse(options.field_selector, info)
    except SelectorError as error:
        raise bad_request(str(error)) from None
    if name:
        if only and only != name:
            raise bad_request("fieldSelector metadata.name doesn't match requested name")
        if not only:
            fields, only = _with_name(fields, name), name
    return Selection(prefix, labels, fields, only)


def _with_name(fields: FieldMatcher | None, name: str) -> FieldMatcher:
    if fields is None:
        return lambda stored: stored.name == name
    return lambda stored: stored.name == name and fields(stored)
