"""Calls of the API from the command line: proxies, and answers that no manager gives."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from kapsa.cli.fleet.client.manager_api import ManagerApi
from kapsa.cli.fleet.client.problems import ManagerUnavailable, refusal
from kapsa.cli.fleet.people.watch import read_history
from kapsa.fleet.domain.rollout.targets import TargetState
from tests.cli.fleet.terminal import Terminal
from tests.cli.fleet.test_views import details, target


class CannedServer:
    """A server that answers requests with the same responses in turn, and records the first line of each."""

    def __init__(self, bodies: Sequence[bytes], status: str, kind: str) -> None:
        self.requests: list[str] = []
        self.address = ""
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nConnection: close\r\n"
        self._responses = itertools.cycle(
            f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body for body in bodies
        )

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.requests.append((await reader.readline()).decode().strip())
            while (await reader.readline()).strip():
                pass
            writer.write(next(self._responses))
            await writer.drain()
        except ConnectionError:
            return  # a client that does not read everything
        finally:
            writer.close()


@asynccontextmanager
async def canned(
    *bodies: bytes, status: str = "200 OK", kind: str = "application/json"
) -> AsyncIterator[CannedServer]:
    canned = CannedServer(bodies or (b"",), status, kind)
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
        monkeypatch.setenv("HTTPS_PROXY", proxy.address.replace("://", "://robot:hunter2secret@"))
        api = ManagerApi("https://fleet.example.com", "a.b.c")
        try:
            with pytest.raises(ManagerUnavailable, match="the proxy answered 502") as error:
                await api.patch("/clusters/a", {})
        finally:
            await api.close()
    assert "hunter2secret" not in str(error.value)
    assert proxy.requests == ["CONNECT fleet.example.com:443 HTTP/1.1"]


@pytest.mark.parametrize(
    ("variable", "proxy", "used"),
    [("HTTPS_PROXY", "{host}", True), ("ALL_PROXY", "{host}", True), ("ALL_PROXY", "socks5://{host}", False)],
    ids=["without-a-scheme", "for-all", "socks"],
)
async def test_a_proxy_needs_no_scheme_and_one_that_speaks_another_protocol_is_not_used(
    monkeypatch: pytest.MonkeyPatch, variable: str, proxy: str, used: bool
) -> None:
    for each in ("HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(each, raising=False)
        monkeypatch.delenv(each.lower(), raising=False)
    async with canned(status="502 Bad Gateway") as server:
        monkeypatch.setenv(variable, proxy.format(host=server.address.removeprefix("http://")))
        api = ManagerApi("https://0.0.0.0:1", "a.b.c")
        try:
            with pytest.raises(ManagerUnavailable, match="no answer from the manager"):
                await api.patch("/clusters/a", {})
        finally:
            await api.close()
    assert server.requests == (["CONNECT 0.0.0.0:1 HTTP/1.1"] if used else [])


async def test_a_proxy_that_is_not_an_address_is_reported_without_its_password(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "robot:hunter2secret@proxy.example:31x8")
    terminal = Terminal(tmp_path / "fleet.json")
    terminal.login.write_text(json.dumps({"server": "https://fleet.example.com", "token": "a.b.c"}))
    terminal.login.chmod(0o600)
    line = await asyncio.to_thread(terminal.fail, "whoami")
    assert (
        "no answer from the manager at https://fleet.example.com: the proxy 'proxy.example:31x8' of" in line
    )
    assert "hunter2secret" not in line


@asynccontextmanager
async def called(server: CannedServer) -> AsyncIterator[ManagerApi]:
    api = ManagerApi(server.address, "a.b.c")
    try:
        yield api
    finally:
        await api.close()


@pytest.mark.parametrize("body", [b"[1,2]", b"null", b'{"x":1}', b'{"items":3}', b'{"items":["x"]}'])
async def test_a_list_of_another_shape_is_reported_in_one_sentence(body: bytes) -> None:
    async with canned(body) as server, called(server) as api:
        with pytest.raises(ManagerUnavailable, match="is not what kapsa"):
            [each async for each in api.items("/clusters")]


async def test_a_list_without_an_end_is_ended() -> None:
    async with canned(b'{"items":[{"name":"a"}],"nextCursor":"b"}') as server, called(server) as api:
        with pytest.raises(ManagerUnavailable, match="repeats a page"):
            [each async for each in api.items("/clusters")]
        assert [each async for each in api.items("/clusters", limit=1)] == [{"name": "a"}]


async def test_a_list_that_goes_round_in_a_circle_is_ended() -> None:
    pages = (b'{"items":[{"name":"a"}],"nextCursor":"%s"}' % cursor for cursor in (b"b", b"c", b"b"))
    async with canned(*pages) as server, called(server) as api:
        with pytest.raises(ManagerUnavailable, match="repeats a page"):
            [each async for each in api.items("/clusters")]
    assert len(server.requests) == 3


async def test_a_history_without_an_end_is_ended() -> None:
    event = b'{"kind":"Created","message":"","cluster":"","at":"2026-01-01T00:00:00Z","sequence":1}'
    body = b'{"items":[%s],"lastSequence":1}' % event
    async with canned(body) as server, called(server) as api:
        assert len([each async for each in read_history(api, "1", after=1)]) == 1
        assert len(server.requests) == 1


async def test_an_answer_that_is_too_large_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kapsa.cli.fleet.client.manager_api._LARGEST_ANSWER", 1 << 20)
    async with canned(b" " * (2 << 20)) as server, called(server) as api:
        with pytest.raises(ManagerUnavailable, match="larger than 1 MB"):
            await api.get("/clusters")


async def test_a_filter_is_sent_whatever_its_word_is() -> None:
    async with canned(b'{"items":[]}') as server, called(server) as api:
        await api.get(
            "/deployments", operator="false", cluster="None", active=False, all=True, after=0, phase=None
        )
    assert server.requests[0].split()[1].partition("?")[2] == "operator=false&cluster=None&all=true&after=0"


def test_a_problem_of_any_shape_is_a_refusal() -> None:
    for problem in ({"errors": 3}, {"errors": {"a": 1}}, {"errors": [3], "detail": [1]}, [1], None):
        assert "was refused (400)" in str(refusal("GET /x", 400, problem))


@pytest.mark.parametrize(
    ("command", "question"),
    [
        (
            ("abort",),
            "Abort deployment {id} of widget 1.1.0 (Validating; dev-0, dev-1, dev-2, dev-3, dev-4 and 1 more)",
        ),
        (("rollback", "--reason", "slow"), "Roll back deployment {id} of widget 1.1.0 (Validating; dev-0"),
    ],
    ids=["abort", "rollback"],
)
async def test_a_question_names_the_operator_the_version_and_the_clusters(
    tmp_path: Path, command: tuple[str, ...], question: str
) -> None:
    asked = details(*(target(f"dev-{number}", TargetState.VALIDATING) for number in range(6)))
    identifier = str(asked.deployment.id)
    terminal = Terminal(tmp_path / "fleet.json")
    async with canned(msgspec.json.encode(asked)) as server:
        terminal.login.write_text(json.dumps({"server": server.address, "token": "a.b.c"}))
        terminal.login.chmod(0o600)
        verb, *options = command
        line = await asyncio.to_thread(terminal.fail, "deployments", verb, identifier, *options)
    assert question.format(id=identifier[:8]) in line
    assert [each.split()[0] for each in server.requests] == ["GET"]
