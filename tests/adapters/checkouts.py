"""Fixtures: a checkout made of given files, and a server that records what it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import pytest

from kapsa.adapters.git.checkout import Checkout

WriteCheckout = Callable[[Mapping[str, str]], Checkout]


class RecordingServer(NamedTuple):
    """A server on loopback that answers 404, and the paths requested from it."""

    url: str
    paths: list[str]


@pytest.fixture
def checkout(tmp_path: Path) -> WriteCheckout:
    """Makes a checkout of these files."""
    root = (tmp_path / "checkout").resolve()
    root.mkdir()

    def write(files: Mapping[str, str]) -> Checkout:
        for name, content in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return Checkout("0123456789abcdef0123456789abcdef01234567", root)

    return write


@pytest.fixture
def recording_server() -> Iterator[RecordingServer]:
    paths: list[str] = []

    class Recorder(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_error(404)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield RecordingServer(f"http://127.0.0.1:{server.server_port}", paths)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
