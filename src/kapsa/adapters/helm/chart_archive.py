"""Chart archives that are not trusted: read within limits, checked entry by entry, and unpacked by us alone.

Nothing is extracted by tarfile. Each entry must be a regular file or a directory below one top directory, under
a name that every reader of the archive understands in the same way. Packed subcharts count against the same limits.
"""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
import zlib
from pathlib import Path, PurePosixPath

import msgspec

from kapsa.adapters.errors import LimitExceeded, Refused
from kapsa.adapters.helm.chart_metadata import ChartMetadata, read_metadata

__all__ = ["ArchiveLimits", "ChartArchive", "read_archive"]

_MIB = 1024 * 1024
_CHUNK = 64 * 1024
_GZIP = 31
"""zlib's window size for gzip data: the largest."""
_HARMLESS_PAX = re.compile(r"(?:path|[amc]time|[ug]id|[ug]name|comment|charset|SCHILY\..+|LIBARCHIVE\..+)")
"""Extended headers that all readers treat alike, or ignore. `size`, `linkpath` and sparse maps are not among them."""


class ArchiveLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The most that one archive may contain, its packed subcharts included."""

    packed_bytes: int = 16 * _MIB
    unpacked_bytes: int = 96 * _MIB
    ratio: int = 100
    """Unpacked bytes for each packed byte, from the first MiB on. Text compresses about tenfold."""
    entries: int = 10_000
    path_depth: int = 24
    path_length: int = 512
    nesting: int = 4
    """Archives in archives: a subchart of a subchart is the second level."""


class ChartArchive(msgspec.Struct, frozen=True):
    """A chart as an archive whose every entry has been checked."""

    content: bytes
    digest: str
    """`sha256:…` of the archive."""
    metadata: ChartMetadata
    files: dict[str, bytes]
    """The content of each file by its path in the chart. Packed subcharts are among them as they are."""

    def unpack(self, directory: Path) -> Path:
        """Write the files below a directory, which must be empty. Return the directory of the chart."""
        root = directory / self.metadata.name
        for name, content in self.files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                file.write(content)
        return root

    def __repr__(self) -> str:
        return f"ChartArchive({self.metadata.name} {self.metadata.version}, {self.digest})"


def read_archive(content: bytes, limits: ArchiveLimits | None = None) -> ChartArchive:
    """Return the chart in an archive.

    Raises `Refused` with the entry and the reason if it is not a chart or may do harm when unpacked, and
    `LimitExceeded` if it is too large.
    """
    limits = limits or ArchiveLimits()
    if len(content) > limits.packed_bytes:
        raise LimitExceeded(f"the chart archive is larger than {_size(limits.packed_bytes)}")
    files = _Reader(limits, len(content)).read(content, "the chart archive", level=0)
    if "Chart.yaml" not in files:
        raise Refused(
            "the archive is not a chart: it has no Chart.yaml in its top directory", reason="NoChart"
        )
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    return ChartArchive(content, digest, read_metadata(files["Chart.yaml"]), files)


class _Reader:
    """A reader of an archive and the archives in it, against one budget."""

    def __init__(self, limits: ArchiveLimits, packed: int) -> None:
        self._limits = limits
        self._unpacked_left = limits.unpacked_bytes
        # A small archive may unpack to one MiB whatever its ratio: a page of blanks is harmless.
        self._ratio_left = max(_MIB, packed * limits.ratio)
        self._entries_left = limits.entries

    def read(self, content: bytes, what: str, *, level: int) -> dict[str, bytes]:
        if level > self._limits.nesting:
            raise LimitExceeded(f"{what} is nested in more than {self._limits.nesting} archives")
        files = self._entries(content, what)
        for name, nested in files.items():
            if _is_packed_subchart(name):
                self.read(nested, f"{name} in {what}", level=level + 1)
        return files

    def _entries(self, content: bytes, what: str) -> dict[str, bytes]:
        stream = io.BytesIO(self._decompress(content, what))
        names = _Names(what, self._limits)
        files: dict[str, bytes] = {}
        try:
            with tarfile.open(fileobj=stream, mode="r:") as archive:
                for member in archive:
                    self._entries_left -= 1
                    if self._entries_left < 0:
                        raise LimitExceeded(f"{what} has more than {self._limits.entries} entries")
                    _check_kind(member, what)
                    name = names.check(member)
                    if member.isreg() and (opened := archive.extractfile(member)) is not None:
                        files[name] = opened.read()
                        if len(files[name]) != member.size:
                            raise Refused(f"{what} is not whole: it ends inside {name!r}")
                end = archive.offset
        except (tarfile.TarError, OverflowError, ValueError, UnicodeError, EOFError) as error:
            raise Refused(f"{what} is not a tar archive: {_text(error)}", reason="NotAnArchive") from None
        # Data behind the end would be invisible here, and visible to a reader that goes on.
        if stream.getbuffer()[end:].tobytes().strip(b"\0"):
            raise Refused(f"{what} has data after its end")
        return files

    def _decompress(self, content: bytes, what: str) -> bytes:
        """Return the unpacked bytes. Each chunk is counted before the next one is unpacked."""
        if not content.startswith(b"\x1f\x8b"):
            raise Refused(
                f"{what} is not a gzip file",
                hint="Package the chart with `helm package`",
                reason="NotAnArchive",
            )
        unpacked = bytearray()
        member = zlib.decompressobj(wbits=_GZIP)
        try:
            for start in range(0, len(content), _CHUNK):
                waiting = content[start : start + _CHUNK]
                while waiting:
                    if member.eof:  # gzip files can follow each other
                        member = zlib.decompressobj(wbits=_GZIP)
                    chunk = member.decompress(waiting, _CHUNK)
                    waiting = member.unused_data or member.unconsumed_tail
                    self._count(len(chunk), what)
                    unpacked += chunk
        except zlib.error as error:
            raise Refused(f"{what} is not a gzip file: {_text(error)}", reason="NotAnArchive") from None
        if not member.eof:
            raise Refused(f"{what} is not whole: it ends too early", reason="NotAnArchive")
        return bytes(unpacked)

    def _count(self, size: int, what: str) -> None:
        self._unpacked_left -= size
        self._ratio_left -= size
        if self._unpacked_left < 0:
            raise LimitExceeded(f"{what} unpacks to more than {_size(self._limits.unpacked_bytes)}")
        if self._ratio_left < 0:
            raise LimitExceeded(
                f"{what} unpacks to more than {self._limits.ratio} times its size, as an archive bomb does"
            )


class _Names:
    """The names in one archive: safe, below one top directory, and without duplicates."""

    def __init__(self, what: str, limits: ArchiveLimits) -> None:
        self._what = what
        self._limits = limits
        self._top = ""
        self._files: set[str] = set()
        self._directories: set[str] = set()

    def check(self, member: tarfile.TarInfo) -> str:
        """Return the path of an entry in the chart, without the top directory."""
        parts = self._safe_parts(member)
        self._top = self._top or parts[0]
        if parts[0] != self._top or (len(parts) == 1 and not member.isdir()):
            raise Refused(
                f"{self._what} must have one top directory, named as the chart; {_quoted(member.name)} is outside it"
            )
        name = "/".join(parts[1:])
        parents = {"/".join(parts[1:end]) for end in range(2, len(parts))}
        if parents & self._files or (name in self._directories and not member.isdir()):
            raise Refused(f"{self._what} has {_quoted(member.name)} both as a file and as a directory")
        self._directories |= parents
        if member.isdir():
            if name in self._files:
                raise Refused(f"{self._what} has {_quoted(member.name)} both as a file and as a directory")
            self._directories.add(name)
        elif name in self._files:
            raise Refused(f"{self._what} contains {_quoted(member.name)} twice")
        else:
            self._files.add(name)
        return name

    def _safe_parts(self, member: tarfile.TarInfo) -> tuple[str, ...]:
        name = member.name.removeprefix("./")
        if not name.isprintable() or "\\" in name or (len(name) > 1 and name[1] == ":"):
            raise Refused(f"{self._what} has an entry whose name is not portable: {_quoted(member.name)}")
        if name.startswith("/"):
            raise Refused(f"{self._what} has the absolute path {_quoted(member.name)}")
        raw = name.split("/")
        parts = PurePosixPath(name).parts
        if ".." in raw:
            raise Refused(
                f"{self._what} has the entry {_quoted(member.name)}, which leads out of its directory"
            )
        if "." in raw or "" in raw[:-1] or not parts:
            raise Refused(f"{self._what} has the entry {_quoted(member.name)}, which is not a plain path")
        if len(name) > self._limits.path_length or len(parts) > self._limits.path_depth:
            raise LimitExceeded(
                f"{self._what} has a path that is too long or too deep: {_quoted(member.name)}"
            )
        return parts


def _check_kind(member: tarfile.TarInfo, what: str) -> None:
    if member.issym() or member.islnk():
        raise Refused(f"{what} has the link {_quoted(member.name)}; a chart has files and directories only")
    if member.ischr() or member.isblk() or member.isfifo():
        raise Refused(f"{what} has the device {_quoted(member.name)}; a chart has files and directories only")
    if member.issparse() or member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE):
        raise Refused(f"{what} has {_quoted(member.name)}, which is not a plain file")
    for header in member.pax_headers:
        if not _HARMLESS_PAX.fullmatch(header):
            raise Refused(
                f"{what}: {_quoted(member.name)} has the extended header {_quoted(header)}, which is not accepted"
            )


def _is_packed_subchart(name: str) -> bool:
    path = PurePosixPath(name)
    return path.suffix in (".tgz", ".gz") and path.parent.name == "charts"


def _quoted(text: str) -> str:
    return repr(text[:120])


def _text(error: Exception) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__


def _size(count: int) -> str:
    return f"{count // _MIB} MB" if count >= _MIB else f"{count} bytes"
