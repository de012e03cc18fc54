"""Calls of the API from the command line: proxies, and answers that no manager gives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kapsa.cli.fleet.client.manager_api import ManagerApi
from kapsa.cli.fleet.client.problems import ManagerUnavailable


class CannedServer:
    """A server that answers each request with the same response, and records the first line of each."""

    def __init__(self, body: bytes, status: str, kind: str) -> None:
        self.requests: list[str] = []
        self.address = ""
        self._response = (
            f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readline():
            self.requests.append(head.decode().strip())
            while (await reader.readline()).strip():
                pass
            writer.write(self._response)
            await writer.drain()
        writer.close()


@asynccontextmanager
async def canned(
    body: bytes = b"", *, status: str = "200 OK", kind: str = "application/json"
) -> AsyncIterator[CannedServer]:
    canned = CannedServer(body, status, kind)
    server = await asyncio.start_server(canned.answer, "127.0.0.1", 0)
    canned.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield canned


async def test_a_password_in_netrc_is_in_nobodys_way_and_a_proxy_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login ada password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("NO_PROXY", "other.example.com")
    async with canned(status="502 Bad Gateway") as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.address)
        api = ManagerApi("https://fleet.example.com", "a.b.c")
        try:
            with pytest.raises(ManagerUnavailable, match="no answer from the manager"):
                await api.patch("/clusters/a", {})
        finally:
            await api.close()
    assert proxy.requests == ["CONNECT fleet.example.com:443 HTTP/1.1"]
