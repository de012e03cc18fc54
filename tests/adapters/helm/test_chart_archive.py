"""Chart archives: good ones, and hostile ones that must not leave a file anywhere."""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kapsa.adapters.errors import LimitExceeded, Refused
from kapsa.adapters.helm.chart_archive import ArchiveLimits, read_archive
from kapsa.adapters.testing.chart_server import pack_chart

CHART = b"apiVersion: v2\nname: app\nversion: 1.0.0\n"
Change = Callable[[tarfile.TarInfo], None]
packed = functools.partial(gzip.compress, mtime=0)
"""The same bytes at any time: they are in the names of tests."""


def tar(*entries: tuple[str, bytes] | tuple[str, bytes, Change], pax: bool = True) -> bytes:
    """Return a chart archive with these entries after its Chart.yaml."""
    buffer = io.BytesIO()
    form = tarfile.PAX_FORMAT if pax else tarfile.GNU_FORMAT
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for name, content, *changes in (("app/Chart.yaml", CHART), *entries):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            for change in changes:
                change(entry)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def kind(type_: bytes, link: str = "") -> Change:
    def change(entry: tarfile.TarInfo) -> None:
        entry.type, entry.linkname = type_, link

    return change


def header(name: str, value: str) -> Change:
    def change(entry: tarfile.TarInfo) -> None:
        entry.pax_headers = {name: value}

    return change


def test_a_chart_is_read_and_unpacked_with_its_digest(tmp_path: Path) -> None:
    content = pack_chart(
        "app", "v1.2.3-rc.1", {"templates/a.yaml": "kind: A\n"}, appVersion="1.2", kubeVersion=">=1.30"
    )
    archive = read_archive(content)
    assert archive.digest == f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert (archive.metadata.name, archive.metadata.version) == ("app", "v1.2.3-rc.1")
    assert (archive.metadata.app_version, archive.metadata.kube_version) == ("1.2", ">=1.30")
    root = archive.unpack(tmp_path)
    assert root == tmp_path / "app"
    assert (root / "templates" / "a.yaml").read_text() == "kind: A\n"


def test_directories_a_long_name_and_a_byte_order_mark_are_fine() -> None:
    long = f"app/templates/{'a' * 150}.yaml"
    for pax in (True, False):
        content = tar(("app/templates/", b"", kind(tarfile.DIRTYPE)), (long, b"x"), pax=pax)
        assert long.removeprefix("app/") in read_archive(packed(content)).files
    marked = pack_chart("app", "1.0.0", {"Chart.yaml": b"\xef\xbb\xbf" + CHART})
    assert read_archive(marked).metadata.version == "1.0.0"


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (("app/../../evil", b"x"), "leads out"),
        (("../evil", b"x"), "leads out"),
        (("/etc/evil", b"x"), "absolute path"),
        (("app//etc", b"x"), "not a plain path"),
        (("app/./a", b"x"), "not a plain path"),
        (("app/..\\evil", b"x"), "not portable"),
        (("C:/evil", b"x"), "not portable"),
        (("app/a\nb", b"x"), "not portable"),
        (("other/values.yaml", b"x"), "one top directory"),
        (("values.yaml", b"x"), "one top directory"),
        (("app/link", b"", kind(tarfile.SYMTYPE, "/etc/passwd")), "the link"),
        (("app/link", b"", kind(tarfile.LNKTYPE, "app/Chart.yaml")), "the link"),
        (("app/null", b"", kind(tarfile.CHRTYPE)), "the device"),
        (("app/disk", b"", kind(tarfile.BLKTYPE)), "the device"),
        (("app/pipe", b"", kind(tarfile.FIFOTYPE)), "the device"),
        (("app/odd", b"", kind(b"Z")), "not a plain file"),
        (("app/Chart.yaml", CHART), "twice"),
        (("app/Chart.yaml/a", b"x"), "both as a file and as a directory"),
        (("app/sparse", b"x", header("GNU.sparse.major", "1")), "app/sparse|not a tar"),
        (("app/linked", b"x", header("linkpath", "/etc/passwd")), "extended header"),
        (("app/sized", b"x", header("size", "0")), "app/sized|not a tar|after its end"),
    ],
)
def test_an_entry_that_could_do_harm_is_refused(entry: tuple[str, bytes], reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        read_archive(packed(tar(entry)))


def test_a_file_that_becomes_a_directory_and_the_reverse_are_refused() -> None:
    for entries in (
        (("app/a", b"x"), ("app/a/b", b"x")),
        (("app/a/b", b"x"), ("app/a", b"x")),
        (("app/a", b"x"), ("app/a/", b"", kind(tarfile.DIRTYPE))),
    ):
        with pytest.raises(Refused, match="both as a file and as a directory"):
            read_archive(packed(tar(*entries)))


def test_bombs_are_stopped_by_ratio_size_count_and_depth() -> None:
    blanks = packed(tar(("app/a", b"\0" * (30 * 1024 * 1024))))
    with pytest.raises(LimitExceeded, match="100 times"):
        read_archive(blanks)
    with pytest.raises(LimitExceeded, match="unpacks to more than 1 MB"):
        read_archive(blanks, ArchiveLimits(unpacked_bytes=1024 * 1024, ratio=10_000))
    with pytest.raises(LimitExceeded, match="larger than 1000 bytes"):
        read_archive(blanks, ArchiveLimits(packed_bytes=1000))
    with pytest.raises(LimitExceeded, match="more than 3 entries"):
        read_archive(packed(tar(*((f"app/{i}", b"x") for i in range(3)))), ArchiveLimits(entries=3))
    with pytest.raises(LimitExceeded, match="too long or too deep"):
        read_archive(packed(tar(("app/" + "a/" * 30 + "b", b"x"))))
    with pytest.raises(LimitExceeded, match="too long or too deep"):
        read_archive(packed(tar(("app/" + "a" * 600, b"x"))))


def test_subcharts_in_archives_are_checked_as_the_chart_is() -> None:
    good = pack_chart("sub", "1.0.0")
    assert (
        "charts/sub-1.0.0.tgz"
        in read_archive(pack_chart("app", "1.0.0", {"charts/sub-1.0.0.tgz": good})).files
    )
    evil = packed(tar(("app/link", b"", kind(tarfile.SYMTYPE, "/etc/passwd"))))
    with pytest.raises(Refused, match=r"charts/sub\.tgz in the chart archive has the link"):
        read_archive(pack_chart("app", "1.0.0", {"charts/sub.tgz": evil}))
    nested = good
    for _ in range(6):
        nested = pack_chart("sub", "1.0.0", {"charts/sub.tgz": nested})
    with pytest.raises(LimitExceeded, match="more than 4 archives"):
        read_archive(nested)
    # Each of the inner archives is small, and all of them together are a bomb.
    bomb = pack_chart("sub", "1.0.0", {"a": b"\0" * (1024 * 1024)})
    with pytest.raises(LimitExceeded, match="times its size"):
        read_archive(pack_chart("app", "1.0.0", {f"charts/{i}.tgz": bomb for i in range(50)}))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not a gzip file"),
        (b"PK\x03\x04", "not a gzip file"),
        (b"\x1f\x8b" + b"junk" * 20, "not a gzip file"),
        (packed(b"not a tar at all" * 100), "not a tar archive"),
        (packed(b""), "not a tar archive"),
        (packed(tar())[:-20], "not whole"),
        (packed(tar()[:530]), "not a tar archive|not whole"),
        (packed(tar() + b"more"), "data after its end"),
        (packed(tar()) + packed(tar(("app/evil", b"x"))), "data after its end"),
    ],
)  # fmt: skip
def test_something_that_is_not_a_whole_archive_is_refused(content: bytes, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        read_archive(content)


@pytest.mark.parametrize(
    ("chart", "reason"),
    [
        (b"apiVersion: v2\nname: app\nversion: '1.0'\n", "semantic version such as 1.4.0, got '1.0'"),
        (b"apiVersion: v2\nname: app\nversion: 1.0\n", "semantic version"),
        (b"apiVersion: v2\nname: app\nversion: 01.0.0\n", "semantic version"),
        (b"apiVersion: v2\nname: app\n", "got nothing"),
        (b"apiVersion: v2\nname: ..\nversion: 1.0.0\n", "name in Chart.yaml"),
        (b"apiVersion: v2\nname: a/b\nversion: 1.0.0\n", "name in Chart.yaml"),
        (b"apiVersion: v3\nname: app\nversion: 1.0.0\n", "apiVersion in Chart.yaml must be v1 or v2"),
        (b"name: app\nname: app\n", "duplicated"),
        (b"[1, 2]", "not a mapping"),
        (b"a: &a [1]\nb: [*a, *a]\nc: {", "not YAML"),
    ],
)
def test_metadata_that_is_not_a_charts_is_refused_by_its_field(chart: bytes, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        read_archive(pack_chart("app", "1.0.0", {"Chart.yaml": chart}))


def test_an_archive_without_a_chart_is_refused() -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("app/values.yaml"))
    with pytest.raises(Refused, match=r"no Chart\.yaml"):
        read_archive(buffer.getvalue())
