"""A checkout that a test writes its files into, a renderer with the real tools, and a server that nothing should ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from kapsa.adapters.git.checkout import Checkout
from kapsa.environments.render import Renderer

Writes = Callable[[Mapping[str, str]], Checkout]


@pytest.fixture
def checkout(tmp_path: Path) -> Writes:
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
def renderer() -> Renderer:
    return Renderer(timeout=30)


@pytest.fixture
def asked() -> Iterator[tuple[str, list[str]]]:
    """The address of a server on loopback, and what it was asked for."""
    seen: list[str] = []

    class Records(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.path)
            self.send_error(404)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Records)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
