"""A file of changes: each is appended before it takes effect, and the file is rewritten when it has grown.

A record is its length, a checksum and its content. A record that a crash cut off at the end of the file was never
acknowledged and is dropped; any other damage is an error. A rewrite goes to a new file, which replaces the old one at
once. So the file is always whole, and never much larger than three times the objects in it.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec

from kapsa.devcluster.embedded.storage.store import CollectionKey, ObjectStore, Stored
from kapsa.devcluster.errors import DataDamaged, DataNotWritable

__all__ = ["Journal"]

FORMAT = 1
_MAGIC = b"kapsa-devcluster-data\n"
_HEAD = struct.Struct("<II")
_SLACK = 8 * 1024 * 1024
"""Bytes that the file may grow beyond twice its size after the last rewrite."""
_MAXIMUM_RECORD = 1 << 30


class _Start(msgspec.Struct, array_like=True, tag="start"):
    """The first record of a file."""

    format: int
    revision: int
    """The revision of the store at the rewrite."""


class _Change(msgspec.Struct, array_like=True, tag="change"):
    """An object that was stored, rewritten or removed."""

    operation: Literal["PUT", "REWRITE", "REMOVE"]
    group: str
    resource: str
    object: Stored


_Record = _Start | _Change
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Record).decode


class Journal:
    """The journal of one store. It is not safe for two processes: the data directory's lock keeps others out."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._store: ObjectStore | None = None
        self._end = 0
        self._limit = 0
        self._is_torn = False

    # Loading

    def load(self) -> ObjectStore:
        """Return a store with the journal's objects, which records its changes here from now on.

        Earlier revisions cannot be listed or watched: as after etcd's compaction, they are gone.
        """
        store = ObjectStore()
        if self._path.exists():
            revision = self._replay(store)
            store.restore(revision)
        self._store = store
        self._rewrite()
        store.journal = self
        return store

    def _replay(self, store: ObjectStore) -> int:
        revision = 0
        for offset, record in self._records():
            if isinstance(record, _Start):
                revision = record.revision
                continue
            stored = record.object
            collection = store.collection(record.group, record.resource)
            if record.operation == "REMOVE":
                if collection.get(stored.key) is None:
                    raise self._damaged(offset, f"it removes {stored.key}, which does not exist")
                collection.unload(stored.key)
            else:
                collection.load(stored)
            revision = max(revision, stored.revision)
        return revision

    def _records(self) -> Iterator[tuple[int, _Record]]:
        data = self._path.read_bytes()
        if not data.startswith(_MAGIC):
            raise self._damaged(0, "it does not begin as the data of a devcluster does")
        offset = len(_MAGIC)
        while len(data) - offset >= _HEAD.size:
            length, checksum = _HEAD.unpack_from(data, offset)
            content = data[offset + _HEAD.size : offset + _HEAD.size + length]
            if length <= _MAXIMUM_RECORD and len(content) < length:
                return  # cut off by a crash
            if zlib.crc32(content) != checksum:
                raise self._damaged(offset, "the checksum of a record does not match")
            record = self._decoded(content, offset)
            if (offset == len(_MAGIC)) != isinstance(record, _Start):
                raise self._damaged(offset, "its first record is missing or repeated")
            yield offset, record
            offset += _HEAD.size + length

    def _decoded(self, content: bytes, offset: int) -> _Record:
        try:
            record: _Record = _decode(content)
        except msgspec.MsgspecError as error:
            raise self._damaged(offset, f"a record cannot be read ({error})") from None
        if isinstance(record, _Start) and record.format != FORMAT:
            raise self._damaged(
                offset, f"its format is {record.format}, and this version of kapsa reads {FORMAT}"
            )
        return record

    def _damaged(self, offset: int, reason: str) -> DataDamaged:
        return DataDamaged(
            f"{self._path} is damaged at byte {offset}: {reason}. Restore it from a copy, or remove "
            f"{self._path.parent} to start with an empty cluster"
        )

    # Recording: called by the store before a change takes effect

    def put(self, key: CollectionKey, stored: Stored) -> None:
        """Record an object that is about to be stored. Raises DataNotWritable if that is not possible."""
        self._append(_Change("PUT", *key, stored))

    def rewrite(self, key: CollectionKey, stored: Stored) -> None:
        """Record new bytes for an object at its revision."""
        self._append(_Change("REWRITE", *key, stored))

    def remove(self, key: CollectionKey, last: Stored) -> None:
        """Record an object that is about to be removed."""
        self._append(_Change("REMOVE", *key, last))

    def _append(self, change: _Change) -> None:
        assert self._file is not None, "the journal is closed"
        try:
            if self._end > self._limit:
                self._rewrite()
            if self._is_torn:
                self._file.truncate(self._end)
                self._is_torn = False
            self._end += self._write(self._file, _frame(change))
        except OSError as error:
            raise DataNotWritable(f"{self._path} cannot be written: {error.strerror or error}") from error

    def _write(self, file: BinaryIO, data: bytes) -> int:
        self._is_torn = True
        written = file.write(data)
        if written != len(data):
            raise OSError("the file system took only a part of the record")
        self._is_torn = False
        return written

    def _rewrite(self) -> None:
        """Replace the file by one with the current objects only."""
        assert self._store is not None
        partial = self._path.with_suffix(".new")
        # The objects include Secrets, and the directory may be readable for others.
        with open(partial, "wb", opener=_private) as file:
            file.writelines(_whole(self._store))
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        partial.replace(self._path)
        self._close_file()
        self._file = self._path.open("ab", buffering=0)
        self._end, self._limit = size, 2 * size + _SLACK
        self._is_torn = False

    def close(self) -> None:
        """Write everything to the disk and close the file."""
        if self._store is not None:
            self._store.journal = None
        if self._file is not None:
            os.fsync(self._file.fileno())
        self._close_file()

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _private(path: str, flags: int) -> int:
    """Open a file that only its owner may read."""
    return os.open(path, flags, 0o600)


def _frame(record: _Record) -> bytes:
    content = _encode(record)
    return _HEAD.pack(len(content), zlib.crc32(content)) + content


def _whole(store: ObjectStore) -> Iterable[bytes]:
    yield _MAGIC
    yield _frame(_Start(FORMAT, store.revision))
    for collection in store.collections():
        for stored in collection.current():
            yield _frame(_Change("PUT", *collection.key, stored))
