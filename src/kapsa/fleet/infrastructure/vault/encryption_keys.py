"""Key-encryption keys: one primary key that seals, and older ones that open.

The text form has one key per line, `ID:BASE64`, the primary first. A file is read again when it has changed, so a
rotation reaches running managers without a restart.
"""

import base64
import binascii
import os
import re
import secrets
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import msgspec
import structlog

__all__ = [
    "FileKeys",
    "FixedKeys",
    "KeyRing",
    "KeyRingError",
    "KeySource",
    "check_private",
    "new_key_text",
    "write_private",
]

log = structlog.get_logger(__name__)

_KEY_BYTES = 32
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class KeyRingError(Exception):
    """Keys that are missing, malformed, or readable by others."""

    for_the_user = True


class KeyRing(msgspec.Struct, frozen=True):
    """Keys by their ids."""

    primary: str
    keys: Mapping[str, bytes]

    def __repr__(self) -> str:
        return f"KeyRing(primary={self.primary!r}, ids={sorted(self.keys)})"

    @classmethod
    def parse(cls, text: str, origin: str) -> "KeyRing":
        """Return the keys of a text. Raises KeyRingError, which names the line and never its content."""
        keys: dict[str, bytes] = {}
        for number, line in enumerate(text.replace(",", "\n").splitlines(), 1):
            if line.strip() and not line.lstrip().startswith("#"):
                key_id, material = _parse_line(line.strip(), f"{origin}, line {number}")
                if key_id in keys:
                    raise KeyRingError(f"{origin}, line {number}: key {key_id} appears twice")
                keys[key_id] = material
        if not keys:
            raise KeyRingError(f"{origin} has no encryption key: add a line ID:BASE64 with 32 random bytes")
        return cls(next(iter(keys)), keys)


class KeySource(Protocol):
    """A source of keys, asked for every secret."""

    def ring(self) -> KeyRing:
        """Return the present keys."""
        ...


class FixedKeys:
    """Keys that do not change while the process runs: those of a variable."""

    def __init__(self, ring: KeyRing) -> None:
        self._ring = ring

    def ring(self) -> KeyRing:
        return self._ring


class FileKeys:
    """Keys in a file, which is read again when it has changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp: tuple[int, int, int] | None = None
        self._ring = self._read()

    def ring(self) -> KeyRing:
        """Return the keys of the file, or the last valid ones: a mistake in it must not stop a running manager."""
        stamp = self._current_stamp()
        if stamp != self._stamp:
            try:
                self._ring = self._read()
            except KeyRingError as error:
                self._stamp = stamp
                log.error("the changed encryption keys are not used: correct the file", error=str(error))  # noqa: TRY400
        return self._ring

    def add_primary(self, key_text: str) -> None:
        """Add a key as the primary. The others stay, to open what they have sealed."""
        write_private(self.path, f"{key_text}\n{self.path.read_text()}")

    def remove(self, key_id: str) -> None:
        """Remove a key that is not the primary."""
        if key_id == self.ring().primary:
            raise KeyRingError(f"{key_id} is the primary key and cannot be removed: rotate first")
        if key_id not in self.ring().keys:
            raise KeyRingError(f"{self.path} has no key {key_id}")
        lines = self.path.read_text().splitlines()
        write_private(
            self.path, "".join(f"{line}\n" for line in lines if line.strip().split(":")[0] != key_id)
        )

    def _current_stamp(self) -> tuple[int, int, int] | None:
        try:
            status = self.path.stat()
        except OSError:
            return self._stamp  # being replaced, or gone: what is loaded stays usable
        return status.st_ino, status.st_mtime_ns, status.st_size

    def _read(self) -> KeyRing:
        try:
            with self.path.open(encoding="ascii") as file:
                status = os.fstat(file.fileno())
                check_private(self.path, status)
                ring = KeyRing.parse(file.read(1_000_000), str(self.path))
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise KeyRingError(f"the encryption keys in {self.path} cannot be read: {reason}") from None
        self._stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
        return ring


def new_key_text(key_id: Callable[[], str] = lambda: f"key-{secrets.token_hex(4)}") -> str:
    """Return a new random key in its text form."""
    return f"{key_id()}:{base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()}"


def write_private(path: Path, content: str) -> None:
    """Replace a file at once by one that only we can read."""
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    fresh.rename(path)


def _parse_line(line: str, origin: str) -> tuple[str, bytes]:
    key_id, separator, encoded = line.partition(":")
    if not separator or not _ID.fullmatch(key_id):
        raise KeyRingError(f"{origin}: expected ID:BASE64, with an id of letters, digits, dots and dashes")
    try:
        material = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise KeyRingError(f"{origin}: key {key_id} is not valid base64") from None
    if len(material) != _KEY_BYTES:
        raise KeyRingError(f"{origin}: key {key_id} has {len(material)} bytes, but must have {_KEY_BYTES}")
    return key_id, material


def check_private(path: Path, status: os.stat_result) -> None:
    """Raise KeyRingError if other users can read or change a file with a key, or have made it."""
    if status.st_uid not in (0, os.geteuid()):
        raise KeyRingError(
            f"the key in {path} belongs to another user (id {status.st_uid}): chown it to the user of the manager"
        )
    # Kubernetes mounts a Secret readable by the group of the pod, so reading by the group is accepted.
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o037:
        raise KeyRingError(f"the key in {path} is open to other users (mode {mode:o}): chmod 600 {path}")
