"""A git server on loopback: real repositories behind git's own http-backend, with failures on demand.

    with GitServer(directory) as server:
        app = server.repository("team/app")
        commit = app.commit({"chart/Chart.yaml": "..."})           # on main
        app.commit({"src/app.py": "..."}, branch="feature/login")  # a branch from main
        app.pull_request(7, {"src/app.py": "..."})                 # only refs/pull/7/head leads to it
        app.force_push({"src/app.py": "..."}, branch="feature/login")
        app.delete_branch("feature/login")
        await Git(protocols=["http"]).ls_remote(app.url)

It runs in a thread, so that tests on virtual time can use it.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import os
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import msgspec
from aiohttp import web

from kapsa.adapters.process.tools import find_tool
from kapsa.adapters.testing._received_request import ReceivedRequest
from kapsa.adapters.testing.loopback_tls import loopback_tls
from kapsa.runtime.testing import background_loop


class Link(msgspec.Struct, frozen=True):
    """A symbolic link in a commit."""

    target: str


class Executable(msgspec.Struct, frozen=True):
    """An executable file in a commit."""

    content: str


Content = str | bytes | Link | Executable | None
"""The new content of a path; None removes it."""


class GitRepository:
    """A bare repository, and the changes that developers make to it."""

    def __init__(self, path: Path, url: str) -> None:
        self.path = path
        self.url = url
        """The URL of the repository over HTTP."""
        self.file_url = f"file://{path}"
        self.epoch = int(time.time())
        """The time of commits, in seconds since 1970; each is a second later than the one before."""
        self._commits = 0
        self.git("init", "--quiet", "--bare", "--initial-branch=main", str(path))
        self.git("config", "http.receivepack", "false")

    def commit(
        self,
        files: Mapping[str, Content],
        *,
        branch: str = "main",
        message: str = "Change",
        start: str | None = "main",
    ) -> str:
        """Commit changes to a branch. A new branch starts at `start`."""
        reference = f"refs/heads/{branch}"
        parent = self._tip(reference) or (self._tip(f"refs/heads/{start}") if start else None)
        return self._import(files, reference, message, parent)

    def commit_to_new_branches(
        self, changes: Mapping[str, Mapping[str, Content]], *, start: str = "main"
    ) -> None:
        """Create many branches with one commit each, in a single run of git."""
        parent = self._tip(f"refs/heads/{start}")
        commits = [
            self._commit(files, f"refs/heads/{branch}", "Change", parent) for branch, files in changes.items()
        ]
        self._fast_import(b"".join(commits))

    def pull_request(self, number: int, files: Mapping[str, Content], *, base: str = "main") -> str:
        """Push to a pull request from a fork: only its own reference leads to the commit."""
        reference = f"refs/pull/{number}/head"
        parent = self._tip(reference) or self._tip(f"refs/heads/{base}")
        return self._import(files, reference, f"Pull request {number}", parent)

    def force_push(self, files: Mapping[str, Content], *, branch: str = "main") -> str:
        """Replace the history of a branch with one new commit."""
        return self._import(files, f"refs/heads/{branch}", "Rewritten", None, force=True)

    def delete_branch(self, branch: str) -> None:
        self.git("update-ref", "-d", f"refs/heads/{branch}")

    def close_pull_request(self, number: int) -> None:
        self.git("update-ref", "-d", f"refs/pull/{number}/head")

    def git(self, *arguments: str, stdin: bytes = b"") -> str:
        """Run git on the repository."""
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.path.parent), "GIT_CONFIG_NOSYSTEM": "1"}
        if arguments[0] != "init":
            environment["GIT_DIR"] = str(self.path)
        finished = _run_git(arguments, stdin, environment)
        if finished.returncode:
            raise RuntimeError(f"git {arguments[0]}: {finished.stderr.decode().strip()}")
        return finished.stdout.decode().strip()

    def _tip(self, reference: str) -> str | None:
        return self.git("for-each-ref", "--format=%(objectname)", reference) or None

    def _import(
        self,
        files: Mapping[str, Content],
        reference: str,
        message: str,
        parent: str | None,
        *,
        force: bool = False,
    ) -> str:
        commit = self._commit(files, reference, message, parent, whole=force)
        self._fast_import((f"reset {reference}\n\n".encode() if force else b"") + commit)
        tip = self._tip(reference)
        assert tip is not None
        return tip

    def _commit(
        self,
        files: Mapping[str, Content],
        reference: str,
        message: str,
        parent: str | None,
        *,
        whole: bool = False,
    ) -> bytes:
        """Return a commit in the format of fast-import. With `whole`, it has only these files."""
        self._commits += 1
        when = f"A Developer <developer@example.com> {self.epoch + self._commits} +0000"
        stream = f"commit {reference}\nauthor {when}\ncommitter {when}\n".encode() + _data(message.encode())
        if parent is not None:
            stream += f"from {parent}\n".encode()
        elif whole:
            stream += b"deleteall\n"
        return stream + b"".join(_change(path, content) for path, content in files.items())

    def _fast_import(self, stream: bytes) -> None:
        self.git("fast-import", "--quiet", "--force", stdin=stream)


def _run_git(
    arguments: Sequence[str], stdin: bytes, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[bytes]:
    command = [str(_git()), *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, env=environment, check=False)  # noqa: S603


@functools.cache
def _git() -> Path:
    return find_tool("git").path


def _change(path: str, content: Content) -> bytes:
    if content is None:
        return f"D {path}\n".encode()
    if isinstance(content, Link):
        return f"M 120000 inline {path}\n".encode() + _data(content.target.encode())
    mode, text = ("100755", content.content) if isinstance(content, Executable) else ("100644", content)
    return f"M {mode} inline {path}\n".encode() + _data(text if isinstance(text, bytes) else text.encode())


def _data(content: bytes) -> bytes:
    return b"data %d\n%s\n" % (len(content), content)


class GitServer:
    """A server of repositories over HTTP, or over HTTPS with `tls`."""

    def __init__(self, directory: Path, *, tls: bool = False, by_commit: bool = True) -> None:
        self._directory = directory
        self._tls = tls
        self._by_commit = by_commit
        """True if commits are served by hash, as large servers do; otherwise only references are."""
        self.login: tuple[str, str] | None = None
        """The required user name and password; None allows anonymous access."""
        self.failures: list[int] = []
        """Statuses of the next responses, in order."""
        self.redirect_to: str = ""
        """The URL that all requests are redirected to, if set."""
        self.page: str | None = None
        """A web page to answer all requests with, as a login or a proxy does."""
        self.hangs = False
        """True if requests are accepted and never answered."""
        self.requests: list[ReceivedRequest] = []
        self.max_concurrent = 0
        """The largest number of concurrent requests so far."""
        self._concurrent = 0
        self._hanging = threading.Event()
        self.authority = ""
        """The PEM certificate that clients must trust, with TLS."""
        self.port = 0
        self._repositories: dict[str, GitRepository] = {}
        self._stack = ExitStack()

    def repository(self, name: str) -> GitRepository:
        """Return the repository of this name, and create it if necessary."""
        if name not in self._repositories:
            path = self._directory / f"{name}.git"
            path.parent.mkdir(parents=True, exist_ok=True)
            self._repositories[name] = GitRepository(path, f"{self.url}/{name}.git")
        return self._repositories[name]

    async def hanging(self) -> None:
        """Wait until a client waits for a response that never comes."""
        assert await asyncio.to_thread(self._hanging.wait, 120)

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        wait = self._stack.enter_context(background_loop())
        runner = web.AppRunner(self._application(), shutdown_timeout=0.1)
        wait(self._start(runner))
        self._stack.callback(_call, wait, runner.cleanup)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    async def _start(self, runner: web.AppRunner) -> None:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self._context() if self._tls else None)
        await site.start()
        self.port = runner.addresses[0][1]

    def _context(self) -> ssl.SSLContext:
        context, self.authority = loopback_tls("git server of the tests")
        return context

    def _application(self) -> web.Application:
        application = web.Application(client_max_size=64 * 1024 * 1024)
        application.router.add_route("*", "/{path:.*}", self._handle)
        return application

    async def _handle(self, request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.requests.append(ReceivedRequest(request.method, request.path_qs, headers))
        self._concurrent += 1
        self.max_concurrent = max(self.max_concurrent, self._concurrent)
        try:
            return await self._respond(request)
        finally:
            self._concurrent -= 1

    async def _respond(self, request: web.Request) -> web.Response:
        if self.redirect_to:
            raise web.HTTPFound(self.redirect_to + request.path_qs)
        if self.failures:
            return web.Response(status=self.failures.pop(0), text="failed on purpose")
        if self.login is not None and request.headers.get("Authorization") != _basic(*self.login):
            return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="git"'})
        if self.page is not None:
            return web.Response(text=self.page, content_type="text/html")
        if self.hangs:
            self._hanging.set()
            await asyncio.sleep(3600)
        return await asyncio.to_thread(self._backend, request, await request.read())

    def _backend(self, request: web.Request, body: bytes) -> web.Response:
        """Pass one request to git's own CGI program."""
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self._directory),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_NOSYSTEM": "1",
            "HOME": str(self._directory),
            "REQUEST_METHOD": request.method,
            "PATH_INFO": request.path,
            "QUERY_STRING": request.query_string,
            "CONTENT_TYPE": request.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "REMOTE_ADDR": "127.0.0.1",
        }
        if self._by_commit:
            environment["GIT_PROTOCOL"] = request.headers.get("Git-Protocol", "")
        finished = _run_git(["http-backend"], body, environment)
        head, _, content = finished.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
        status = int(headers.pop("Status", "200").split()[0])
        return web.Response(status=status, body=content, headers=headers)


def _call(
    wait: Callable[[Coroutine[Any, Any, Any]], Any], work: Callable[[], Coroutine[Any, Any, Any]]
) -> None:
    wait(work())


def _basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()
