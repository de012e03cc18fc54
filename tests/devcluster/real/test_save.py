"""A control plane's data is saved completely and never lost by an error, with fakes for its executables."""

import asyncio
import errno
import shutil
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from kapsa.devcluster.errors import DevClusterError
from kapsa.devcluster.real.control_plane import RealControlPlane
from tests.devcluster.real.process_watch import is_empty, program, until

STORE = """#!/bin/sh
for argument; do case "$argument" in --data-dir=*) store="${argument#*=}";; esac; done
mkdir -p "$store/member"
touch "$store/member/spare.tmp"
echo whole >> "$store/member/log"
exec sleep 600
"""

# Responds to every request with success.
API = f"""#!{sys.executable}
import http.server, ssl, sys

class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

flags = dict(argument[2:].split("=", 1) for argument in sys.argv[1:])
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(flags["tls-cert-file"], flags["tls-private-key-file"])
server = http.server.ThreadingHTTPServer((flags["bind-address"], int(flags["secure-port"])), Answer)
server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
server.serve_forever()
"""


@pytest.fixture
def bare(binaries: dict[str, Path]) -> dict[str, Path]:
    """Fake executables with an etcd that writes a log and an API server that responds."""
    program(binaries["etcd"], STORE)
    program(binaries["kube-apiserver"], API)
    return binaries


@pytest_asyncio.fixture
async def plane(scratch: Path, bare: dict[str, Path]) -> AsyncIterator[RealControlPlane]:
    running = RealControlPlane(binaries=bare, controllers=False)
    await running.start()
    until((running.directory / "etcd/member/log").exists)
    yield running
    await running.stop()
    assert is_empty(scratch)


class HeldCopy:
    """A copy that starts, and continues only after `go_on`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._copy = shutil.copytree
        self.begun, self.go_on, self.ended = threading.Event(), threading.Event(), threading.Event()
        monkeypatch.setattr(shutil, "copytree", self._hold)

    def _hold(self, *arguments: Any, **options: Any) -> None:
        self.begun.set()
        assert self.go_on.wait(20)
        try:
            self._copy(*arguments, **options)
        finally:
            self.ended.set()

    async def cancel_meanwhile(self, task: asyncio.Task[None]) -> None:
        assert await asyncio.to_thread(self.begun.wait, 20)
        task.cancel()
        # A task that does not wait for the copy would be done long before this.
        await asyncio.wait([task], timeout=0.5)
        self.go_on.set()
        assert await asyncio.to_thread(self.ended.wait, 20)
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(source: str, *_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", source)

    monkeypatch.setattr(shutil, "copyfile", fail)


def written(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): path.read_text() for path in directory.rglob("*") if path.is_file()
    }


async def test_the_data_is_saved_without_preallocated_files(plane: RealControlPlane, tmp_path: Path) -> None:
    await plane.save(tmp_path / "in/some/directory/kept")
    assert written(tmp_path / "in") == {"some/directory/kept/member/log": "whole\n"}
    assert plane.pids == {}


async def test_an_existing_directory_is_rejected_before_anything_stops(
    plane: RealControlPlane, tmp_path: Path
) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    with pytest.raises(DevClusterError, match=f"{taken} already exists"):
        await plane.save(taken)
    assert set(plane.pids) == {"etcd", "kube-apiserver"}
    await plane.save(tmp_path / "free")
    assert written(tmp_path / "free") == {"member/log": "whole\n"}


async def test_a_partial_copy_from_an_earlier_save_is_replaced(
    plane: RealControlPlane, tmp_path: Path
) -> None:
    (tmp_path / "kept.partial/member").mkdir(parents=True)
    (tmp_path / "kept.partial/member/old").touch()
    await plane.save(tmp_path / "kept")
    assert written(tmp_path / "kept") == {"member/log": "whole\n"}
    assert not (tmp_path / "kept.partial").exists()


async def test_a_failed_save_can_be_repeated_elsewhere(plane: RealControlPlane, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DevClusterError, match=f"data from .* to {tmp_path}/file/kept: Not a directory"):
        await plane.save(tmp_path / "file/kept")
    await plane.save(tmp_path / "kept")
    assert written(tmp_path / "kept") == {"member/log": "whole\n"}


@pytest.mark.usefixtures("full_disk")
async def test_a_save_on_a_full_disk_is_reported_in_one_line_and_leaves_no_partial_copy(
    plane: RealControlPlane, tmp_path: Path
) -> None:
    (tmp_path / "to").mkdir()
    with pytest.raises(DevClusterError, match=r"to/kept: .*No space left on device") as caught:
        await plane.save(tmp_path / "to/kept")
    assert "\n" not in str(caught.value)
    assert is_empty(tmp_path / "to")


@pytest.mark.usefixtures("full_disk", "scratch")
async def test_a_start_from_saved_data_on_a_full_disk_is_reported_in_one_line(
    bare: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/log").touch()
    with pytest.raises(DevClusterError, match=r"from .*/kept to .*No space left on device") as caught:
        await RealControlPlane(binaries=bare, controllers=False, data=tmp_path / "kept").start()
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("scratch")
async def test_missing_data_is_reported_with_its_path(bare: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(DevClusterError, match=f"from {tmp_path}/nowhere to .*: No such file or directory"):
        await RealControlPlane(binaries=bare, controllers=False, data=tmp_path / "nowhere").start()


async def test_a_start_cancelled_during_the_copy_leaves_nothing(
    scratch: Path, bare: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kept").mkdir()
    copy = HeldCopy(monkeypatch)
    again = RealControlPlane(binaries=bare, controllers=False, data=tmp_path / "kept")
    await copy.cancel_meanwhile(asyncio.create_task(again.start()))
    assert is_empty(scratch)


async def test_a_save_cancelled_during_the_copy_waits_for_the_copy(
    plane: RealControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def save_and_stop() -> None:
        try:
            await plane.save(tmp_path / "kept")
        finally:
            await plane.stop()

    await HeldCopy(monkeypatch).cancel_meanwhile(asyncio.create_task(save_and_stop()))
    assert written(tmp_path / "kept") == {"member/log": "whole\n"}
