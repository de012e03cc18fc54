"""The writer of replies, in the form that the client accepts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from kapsa.devcluster.embedded.codec.version_conversion import from_storage, reader_of
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.embedded.replies.negotiation import Form
from kapsa.devcluster.embedded.storage.store import Stored
from kapsa.devcluster.embedded.verbs.pages import ListPage
from kapsa.devcluster.wire.exchange import Reply

__all__ = ["Writer", "encode_document", "reply_document", "warning_header"]

Object = dict[str, Any]
_CACHE_CONTROL = "no-cache, private"
_WARNING_CHARACTERS = 4096
_LONG_WARNING = 256


class _Head(msgspec.Struct):
    metadata: msgspec.Raw


_decode_head = msgspec.json.Decoder(_Head).decode


class Writer:
    """Writer of a resource's objects, lists and events in one form."""

    def __init__(
        self,
        info: ResourceInfo,
        form: Form,
        warnings: Sequence[str] = (),
        *,
        now: Callable[[], datetime],
        include: str = "",
    ) -> None:
        self.info = info
        self.form = form
        self.warnings = warnings
        self._now = now
        self._include = include or "Metadata"
        self._read = reader_of(info)

    def headers(self) -> dict[str, str]:
        """Return the headers of a reply."""
        return {
            "content-type": self.form.content_type,
            "cache-control": _CACHE_CONTROL,
            **warning_header(self.warnings),
        }

    def object(self, code: int, stored: Stored) -> Reply:
        """Return the reply with an object."""
        form = self.form
        if form.target == "Table":
            return self._document(code, self._table([stored], {"resourceVersion": str(stored.revision)}))
        if form.target:
            return self._bytes(code, self._metadata_only(stored))
        body = stored.body if self._read is None else self._read(stored)
        return self._bytes(code, body)

    def page(self, page: ListPage) -> Reply:
        """Return the reply with a page of a list."""
        form, info = self.form, self.info
        if form.target == "Table":
            return self._document(200, self._table(page.items, page.metadata()))
        if form.target:
            head = {
                "kind": "PartialObjectMetadataList",
                "apiVersion": f"meta.k8s.io/{form.meta_version}",
                "metadata": page.metadata(),
            }
            return self._bytes(200, _joined(head, [self._metadata_only(stored) for stored in page.items]))
        metadata = page.metadata()
        if info.is_custom:
            metadata = {"continue": "", **metadata}
        head = {"kind": info.list_kind, "apiVersion": info.api_version, "metadata": metadata}
        return self._bytes(200, _joined(head, self._items(page.items)))

    def _items(self, objects: Sequence[Stored]) -> list[bytes]:
        read = self._read
        bodies = [stored.body for stored in objects] if read is None else [read(stored) for stored in objects]
        if self.info.is_custom:
            return bodies
        # Items of a built-in list do not repeat their kind.
        head = {"apiVersion": self.info.api_version, "kind": self.info.kind}
        length = len(msgspec.json.encode(head))
        return [b"{" + body[length:] for body in bodies]

    @property
    def view(self) -> Callable[[Stored], bytes] | None:
        """The function that writes an event's object; None if the stored bytes are sent."""
        if self.form.target == "Table":
            return self._table_events()
        if self.form.target:
            return self._metadata_only
        return self._read

    def _table_events(self) -> Callable[[Stored], bytes]:
        """Return a function that writes tables of one row. Only the first one describes the columns."""
        headers = True

        def write(stored: Stored) -> bytes:
            nonlocal headers
            shown = self._table([stored], {"resourceVersion": str(stored.revision)}, headers=headers)
            headers = False
            return msgspec.json.encode(shown)

        return write

    def bookmark(self, revision: int, annotations: dict[str, str]) -> bytes:
        """Return a bookmark's object, which has only a revision."""
        kind, api_version = self.info.kind, self.info.api_version
        if self.form.target:
            kind, api_version = self.form.target, f"meta.k8s.io/{self.form.meta_version}"
        metadata: Object = {"resourceVersion": str(revision)}
        if annotations:
            metadata["annotations"] = annotations
        return msgspec.json.encode({"kind": kind, "apiVersion": api_version, "metadata": metadata})

    def _metadata_only(self, stored: Stored) -> bytes:
        return b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/%b","metadata":%b}' % (
            self.form.meta_version.encode(),
            _decode_head(stored.body).metadata,
        )

    def _table(self, objects: Sequence[Stored], metadata: Object, *, headers: bool = True) -> Object:
        # The printers of all kinds are imported with the first table.
        from kapsa.devcluster.embedded.replies.tables import table

        return table(
            self.info,
            [from_storage(self.info, stored) for stored in objects],
            metadata,
            now=self._now(),
            include=self._include,
            version=self.form.meta_version,
            headers=headers,
        )

    def _document(self, code: int, document: Object) -> Reply:
        return Reply(status=code, headers=self.headers(), body=encode_document(document, self.form))

    def _bytes(self, code: int, body: bytes) -> Reply:
        if not self.form.is_plain and (self.form.media != "json" or self.form.pretty):
            body = _reformat(body, self.form)
        elif body[-1:] != b"\n":
            body += b"\n"
        return Reply(status=code, headers=self.headers(), body=body)


def reply_document(code: int, document: Object, form: Form, warnings: Sequence[str] = ()) -> Reply:
    """Return the reply with a document that is not a stored object: a Status, a Scale, a review."""
    headers = {
        "content-type": form.content_type,
        "cache-control": _CACHE_CONTROL,
        **warning_header(warnings),
    }
    return Reply(status=code, headers=headers, body=encode_document(document, form))


def encode_document(document: Object, form: Form) -> bytes:
    """Encode a document in a form."""
    body = msgspec.json.encode(document)
    return _reformat(body, form) if form.media != "json" or form.pretty else body + b"\n"


def _reformat(body: bytes, form: Form) -> bytes:
    if form.media == "yaml":
        import yaml  # kubectl asks for JSON and formats it itself

        text = yaml.dump(msgspec.json.decode(body), Dumper=yaml.CSafeDumper, allow_unicode=True)
        return text.encode()
    return msgspec.json.format(body, indent=2)


def _joined(head: Object, items: Sequence[bytes]) -> bytes:
    return b'%b,"items":[%b]}\n' % (msgspec.json.encode(head)[:-1], b",".join(items))


def warning_header(warnings: Sequence[str]) -> dict[str, str]:
    """Return the header with the warnings; empty if there are none."""
    if not warnings:
        return {}
    texts = list(dict.fromkeys(warnings))
    if sum(map(len, texts)) > _WARNING_CHARACTERS:
        texts = _shortened(texts)
    return {"warning": ", ".join(map(_warning, texts))}


def _shortened(texts: Sequence[str]) -> list[str]:
    """Truncate each warning, and drop those that exceed the size of the header."""
    kept: list[str] = []
    total = 0
    for text in texts:
        kept.append(text[:_LONG_WARNING])
        total += len(kept[-1])
        if total >= _WARNING_CHARACTERS:
            break
    return kept


def _warning(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{escaped}"'
