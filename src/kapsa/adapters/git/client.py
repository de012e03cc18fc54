"""A git client with a hardened configuration: no hooks, submodules or filters, and limits on everything.

`Git` is the only class that runs git. Addresses and references are checked first (`address`), credentials are
passed through files in memory that only an askpass script reads (`credentials`), and git's error messages become
`ExternalError`s without secrets.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.request import getproxies_environment, proxy_bypass

import msgspec

from kapsa.adapters.errors import ExternalNotFound, Refused, Unreachable
from kapsa.adapters.git._failures import failure, not_a_repository, not_written
from kapsa.adapters.git._host_limits import HostLimits
from kapsa.adapters.git._secret_files import SecretFiles
from kapsa.adapters.git.address import SAFE_PROTOCOLS, RepositoryAddress, check_branch, is_commit
from kapsa.adapters.git.credentials import GitCredentials
from kapsa.adapters.http.address_guard import AddressGuard, is_ip
from kapsa.adapters.process.limited_process import (
    FinishedProcess,
    ProcessLimits,
    private_environment,
    run_program,
)
from kapsa.adapters.process.tools import Tool, find_tool, version_tuple

__all__ = ["HARDENED", "Git", "Refs"]


_MIB = 1024 * 1024
_LISTING_LIMIT = 64 * _MIB
_FILE_MARGIN = 16 * _MIB
_PINS_ADDRESSES = (2, 37)
"""The first version of git that can be given the address of a host name."""

_PACKET = "packet:"
"""The mark of git's protocol in its trace. A server of plain files, or of web pages, sends no packets."""

_PATTERNS = (
    "HEAD",
    "refs/heads/*",
    "refs/pull/*/head",
    "refs/merge-requests/*/head",
    "refs/pull-requests/*/from",
)
_PULL_REQUEST = re.compile(
    r"refs/(?:(?:pull|merge-requests)/([1-9][0-9]{0,8})/head|pull-requests/([1-9][0-9]{0,8})/from)"
)

HARDENED: Mapping[str, str] = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.attributesFile": "/dev/null",
    "core.excludesFile": "/dev/null",
    "core.bigFileThreshold": "16m",  # larger files are streamed instead of held in memory
    "core.protectHFS": "true",
    "core.protectNTFS": "true",
    "credential.helper": "",  # resets the list of helpers
    "fetch.recurseSubmodules": "false",
    "fetch.unpackLimit": "1",  # packs are kept as received, for the size limits
    "submodule.recurse": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "http.followRedirects": "false",  # a redirect could forward the credentials, or lead to an unchecked address
    "http.sslVerify": "true",
    "http.lowSpeedLimit": "1000",
    "http.lowSpeedTime": "30",
    "protocol.version": "2",
    "transfer.fsckObjects": "true",
    "transfer.bundleURI": "false",
    # Mistakes of old tools, harmless and present in many histories.
    "fetch.fsck.zeroPaddedFilemode": "ignore",
    "fetch.fsck.badTimezone": "ignore",
    "fetch.fsck.missingSpaceBeforeDate": "ignore",
    "fetch.fsck.badEmail": "ignore",
    "fetch.fsck.missingEmail": "ignore",
    "fetch.fsck.missingNameBeforeEmail": "ignore",
}  # fmt: skip
"""The configuration that git runs with, here and in builds. Nothing in a repository, home directory or system
overrides it."""


class Refs(msgspec.Struct, frozen=True):
    """The branches and pull (or merge) requests of a repository, each with its commit."""

    branches: Mapping[str, str]
    pull_requests: Mapping[int, str]
    head: str = ""
    """The commit of its default branch."""
    head_branch: str = ""
    """The name of its default branch."""

    def complete(self, abbreviated: str, *, pull_request: int | None = None) -> str:
        """Return the full hash of the only branch's commit that starts with `abbreviated`.

        Only the named pull request counts: anybody can open one from a fork, with a commit whose hash starts like
        that of another commit.

        Raises `ExternalNotFound` when no commit or several commits match.
        """
        prefix = abbreviated.removesuffix("...").lower()
        if is_commit(prefix):
            return prefix
        requested = self.pull_requests.get(pull_request, "") if pull_request is not None else ""
        commits = {self.head, *self.branches.values(), requested} - {""}
        matches = sorted(commit for commit in commits if commit.startswith(prefix))
        if len(prefix) >= 4 and len(matches) == 1:
            return matches[0]
        places = "branch" if pull_request is None else f"branch, nor pull request {pull_request},"
        problem = "several commits start" if matches else f"no {places} is at a commit that starts"
        raise ExternalNotFound(f"{problem} with {prefix[:64]!r}", hint="Use the full commit hash")


class Git:
    """A git client for repositories that are not trusted."""

    def __init__(
        self,
        *,
        protocols: Collection[str] = SAFE_PROTOCOLS,
        timeout: float = 120.0,
        max_bytes: int = 2048 * _MIB,
        concurrency: int = 4,
        address_guard: AddressGuard | None = None,
        scratch: Path | None = None,
    ) -> None:
        self.protocols = tuple(protocols)
        self.timeout = timeout
        self.max_bytes = max_bytes
        """The largest size of a repository."""
        self._host_limits = HostLimits(concurrency)
        self._address_guard = address_guard
        self._scratch = scratch
        """The parent of private directories; the system's temporary directory if None."""
        self._tool: Tool | None = None

    def address(self, url: str) -> RepositoryAddress:
        """Parse a URL.

        Raises `Refused` when the URL or its protocol is not allowed.
        """
        return RepositoryAddress.parse(url, protocols=self.protocols)

    async def ls_remote(self, url: str, credentials: GitCredentials | None = None) -> Refs:
        """List the branches and pull requests of a repository. The list is always complete.

        Raises `ExternalError`, which is `retryable` if a later try can succeed.
        """
        address = self.address(url)
        finished = await self._list(address, credentials)
        if not finished.output and address.protocol in ("http", "https"):
            # git takes a web page of one line, such as that of a login, for a repository without branches.
            finished = await self._list(address, credentials, variables={"GIT_TRACE_PACKET": "1"})
            if _PACKET not in finished.stderr:
                raise not_a_repository(address)
        return _parse_refs(finished.output.decode("utf-8", "replace"))

    async def fetch(
        self,
        repository: Path,
        url: str,
        refspecs: Sequence[str],
        *,
        credentials: GitCredentials | None = None,
        depth: int | None = 1,
        without: str = "",
        measure: Callable[[], int] | None = None,
    ) -> None:
        """Fetch references or commits into a bare repository, `without` the objects that a filter names.

        Raises `ExternalError`, which is `retryable` if a later try can succeed.
        """
        address = self.address(url)
        for refspec in refspecs:
            if refspec.startswith("-"):
                raise Refused(f"{refspec[:80]!r} starts with a dash, which git would read as an option")
        options = [
            "--quiet",
            "--no-tags",
            "--no-write-fetch-head",
            "--no-auto-maintenance",
            "--no-recurse-submodules",
        ]
        options += ["--no-show-forced-updates", "--force"]
        if depth is not None:
            options += [f"--depth={depth}"]
        if without:
            options += [f"--filter={without}"]
        arguments = ("fetch", *options, "--end-of-options", address.url, *refspecs)
        await self._remote(arguments, address, credentials, repository=repository, measure=measure)

    async def local(
        self,
        repository: Path,
        arguments: Sequence[str],
        *,
        stdin: bytes = b"",
        output_file: Path | None = None,
        output_bytes: int = 64 * _MIB,
        seconds: float | None = None,
    ) -> FinishedProcess:
        """Run a git command on a local repository. The caller checks the exit code."""
        with self._private_directory() as home:
            environment = self._environment(home, repository) | {"GIT_ALLOW_PROTOCOL": "none"}
            return await run_program(
                await self._command(arguments),
                environment=environment,
                directory=home,
                limits=self._limits(output_bytes, seconds),
                stdin=stdin,
                output_file=output_file,
            )

    async def _list(
        self,
        address: RepositoryAddress,
        credentials: GitCredentials | None,
        *,
        variables: Mapping[str, str] | None = None,
    ) -> FinishedProcess:
        arguments = ("ls-remote", "--symref", "--quiet", "--end-of-options", address.url, *_PATTERNS)
        return await self._remote(
            arguments, address, credentials, output_bytes=_LISTING_LIMIT, variables=variables
        )

    async def _remote(
        self,
        arguments: Sequence[str],
        address: RepositoryAddress,
        credentials: GitCredentials | None,
        *,
        repository: Path | None = None,
        output_bytes: int = _MIB,
        measure: Callable[[], int] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> FinishedProcess:
        async with self._host_limits.request(address.host, credentials):
            configuration = await self._pinned(address)
            with self._private_directory() as home, SecretFiles(home) as files:
                environment = self._environment(home, repository, network=True) | dict(variables or {})
                if credentials is not None:
                    environment |= credentials.environment(home, address, files)
                finished = await run_program(
                    await self._command(arguments, configuration),
                    environment=environment,
                    directory=home,
                    limits=self._limits(output_bytes),
                    measure=measure,
                    measured_limit=self.max_bytes,
                )
            if finished.code:
                secrets = credentials.secrets if credentials is not None else ()
                raise failure(finished.stderr, address, secrets, with_credentials=credentials is not None)
        return finished

    async def _pinned(self, address: RepositoryAddress) -> dict[str, str]:
        """Return configuration that pins the host to addresses the guard has checked.

        A name can resolve differently later.
        """
        if self._address_guard is None or not address.host or _goes_through_proxy(address):
            return {}
        tool = await self._find()
        if version_tuple(tool.version) < _PINS_ADDRESSES:
            raise Refused(
                f"git {tool.version} cannot be pinned to an address", hint="Install git 2.37 or newer"
            )
        addresses = await _resolve(address)
        for each in addresses:
            self._address_guard(each)
        if address.protocol == "ssh" or is_ip(address.host):
            return {}  # ssh verifies the key of the server
        shown = ",".join(f"[{each}]" if ":" in each else each for each in addresses)
        return {"http.curloptResolve": f"{address.host}:{address.effective_port}:{shown}"}

    def _environment(self, home: Path, repository: Path | None, *, network: bool = False) -> dict[str, str]:
        environment = private_environment(home, network=network) | {
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_SYSTEM": "/dev/null",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "/bin/false",
            "GIT_SSH": "/bin/false",
            "GIT_ALLOW_PROTOCOL": ":".join(self.protocols),
            "GIT_LFS_SKIP_SMUDGE": "1",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_TEMPLATE_DIR": "",
            "GIT_PAGER": "cat",
            "GIT_CEILING_DIRECTORIES": str(home.parent),
        }
        if repository is not None:
            environment["GIT_DIR"] = str(repository)
        return environment

    async def _command(self, arguments: Sequence[str], more: Mapping[str, str] | None = None) -> list[str]:
        tool = await self._find()
        configuration = {**HARDENED, **(more or {})}
        options = [part for key, value in configuration.items() for part in ("-c", f"{key}={value}")]
        return [str(tool.path), "--no-pager", *options, *arguments]

    async def _find(self) -> Tool:
        if self._tool is None:
            self._tool = await asyncio.to_thread(find_tool, "git")
        return self._tool

    def _limits(self, output_bytes: int, seconds: float | None = None) -> ProcessLimits:
        seconds = min(seconds or self.timeout, self.timeout)
        # A margin above the limit: a repository that exceeds it is detected by its size, not by a failing write.
        return ProcessLimits(
            seconds=seconds, output_bytes=output_bytes, file_bytes=self.max_bytes + _FILE_MARGIN
        )

    @contextlib.contextmanager
    def _private_directory(self) -> Iterator[Path]:
        try:
            home = tempfile.TemporaryDirectory(
                prefix="kapsa-git-", dir=self._scratch, ignore_cleanup_errors=True
            )
        except OSError as error:
            raise not_written("the directory for temporary files", error) from error
        with home:
            yield Path(home.name)


def _parse_refs(listing: str) -> Refs:
    branches: dict[str, str] = {}
    pull_requests: dict[int, str] = {}
    head = head_branch = ""
    for line in listing.split("\n"):
        value, tab, name = line.partition("\t")
        if not tab:
            continue
        if value.startswith("ref: refs/heads/") and name == "HEAD":
            head_branch = value.removeprefix("ref: refs/heads/")
        elif not is_commit(value):
            continue
        elif name == "HEAD":
            head = value
        elif name.startswith("refs/heads/"):
            # A server can list any name. One that git would not create is skipped.
            with contextlib.suppress(Refused):
                branches[check_branch(name.removeprefix("refs/heads/"))] = value
        elif match := _PULL_REQUEST.fullmatch(name):
            pull_requests[int(next(filter(None, match.groups())))] = value
    return Refs(branches, pull_requests, head, head_branch if head_branch in branches else "")


def _goes_through_proxy(address: RepositoryAddress) -> bool:
    """Return whether a proxy resolves the host name. Behind one, this process often cannot."""
    if is_ip(address.host) or address.protocol not in getproxies_environment():
        return False
    return not proxy_bypass(address.host)


async def _resolve(address: RepositoryAddress) -> list[str]:
    if is_ip(address.host):
        return [address.host]
    try:
        resolved = await asyncio.get_running_loop().getaddrinfo(
            address.host, address.effective_port, type=socket.SOCK_STREAM
        )
    except OSError as error:
        raise Unreachable(
            f"{address.host} cannot be resolved: {error.strerror}", reason="NameNotResolved"
        ) from error
    return list(dict.fromkeys(str(entry[4][0]) for entry in resolved))
