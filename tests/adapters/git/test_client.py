"""git with a real server on loopback: listings, failures, and secrets that never leak."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kapsa.adapters.errors import (
    AuthFailed,
    ExternalError,
    ExternalFailure,
    ExternalNotFound,
    LimitExceeded,
    Refused,
    TimedOut,
    Unreachable,
)
from kapsa.adapters.git._failures import failure
from kapsa.adapters.git._secret_files import SecretFiles
from kapsa.adapters.git.address import RepositoryAddress
from kapsa.adapters.git.client import Git, Refs
from kapsa.adapters.git.credentials import GitCredentials
from kapsa.adapters.http.address_guard import reject_internal_address
from kapsa.adapters.testing.git_server import GitRepository, GitServer

pytestmark = pytest.mark.sampled(28, of="module")

PASSWORD = "hunter2-very-secret"
LOGIN = GitCredentials(username="robot", password=PASSWORD)


@pytest.fixture
def git(tmp_path: Path) -> Git:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return Git(protocols=["http", "https"], timeout=20, scratch=scratch)


async def test_branches_pull_requests_and_the_default_branch_are_listed(
    git: Git, git_repository: GitRepository
) -> None:
    main = git_repository.commit({"a": "1"})
    login = git_repository.commit({"b": "1"}, branch="feature/login")
    fork = git_repository.pull_request(7, {"c": "1"})
    git_repository.git("update-ref", "refs/merge-requests/9/head", login)
    git_repository.git("tag", "v1", main)

    refs = await git.ls_remote(git_repository.url)

    assert refs.branches == {"main": main, "feature/login": login}
    assert refs.pull_requests == {7: fork, 9: login}
    assert (refs.head, refs.head_branch) == (main, "main")


async def test_a_repository_without_commits_lists_nothing(git: Git, git_server: GitServer) -> None:
    refs = await git.ls_remote(git_server.repository("team/empty").url)
    assert (refs.branches, refs.pull_requests, refs.head) == ({}, {}, "")


@pytest.mark.parametrize(
    "page", ["<html>Log in</html>", "<html>\n<body>Log in\n", ""], ids=["line", "lines", "empty"]
)
async def test_a_web_page_is_not_a_repository_without_branches(
    git: Git, git_server: GitServer, page: str
) -> None:
    git_server.page = page
    with pytest.raises(ExternalNotFound, match="git") as caught:
        await git.ls_remote(git_server.repository("team/app").url)
    assert caught.value.reason == "RepositoryNotFound"
    assert "credentials" in caught.value.hint


async def test_references_that_are_not_branches_or_pull_requests_are_skipped(
    git: Git, git_repository: GitRepository
) -> None:
    main = git_repository.git("rev-parse", "refs/heads/main")
    strange = [
        "heads/--upload-pack=x",
        "heads/-x",
        "pull/0/head",
        "pull/007/head",
        "pull/99999999999/head",
        "pull/x/head",
    ]
    named = "".join(f"{main} refs/{name}\n" for name in [*strange, "heads/$(id)", "pull/7/head"])
    (git_repository.path / "packed-refs").write_text(named)
    refs = await git.ls_remote(git_repository.url)
    assert set(refs.branches) == {"main", "$(id)"}
    assert refs.pull_requests == {7: main}


async def test_a_private_repository_is_listed_with_credentials(
    git: Git, git_server: GitServer, git_repository: GitRepository
) -> None:
    git_server.login = ("robot", PASSWORD)
    assert "main" in (await git.ls_remote(git_repository.url, LOGIN)).branches


async def test_wrong_or_missing_credentials_are_distinct_from_a_missing_repository(
    git: Git, git_server: GitServer, git_repository: GitRepository
) -> None:
    with pytest.raises(ExternalNotFound) as missing:
        await git.ls_remote(f"{git_server.url}/team/nothing.git")
    git_server.login = ("robot", "another")
    with pytest.raises(AuthFailed) as wrong:
        await git.ls_remote(git_repository.url, LOGIN)
    with pytest.raises(AuthFailed) as none:
        await git.ls_remote(git_repository.url)
    assert missing.value.reason == "RepositoryNotFound"
    assert "Check the credentials" in wrong.value.hint
    assert "Add a Secret" in none.value.hint
    assert "could not read Username" in str(none.value)
    assert "askpass" not in str(none.value)
    assert not any(error.value.retryable for error in (missing, wrong, none))


@pytest.mark.parametrize("status", [500, 502, 503])
async def test_a_server_in_trouble_is_retryable(
    git: Git, git_server: GitServer, git_repository: GitRepository, status: int
) -> None:
    git_server.failures = [status]
    with pytest.raises(Unreachable) as error:
        await git.ls_remote(git_repository.url)
    assert error.value.retryable
    await git.ls_remote(git_repository.url)


async def test_a_closed_port_is_retryable(git: Git, git_server: GitServer) -> None:
    with pytest.raises(Unreachable) as error:
        await git.ls_remote("http://127.0.0.1:1/team/app.git")
    assert error.value.retryable


async def test_a_server_that_never_responds_times_out(
    git_server: GitServer, git_repository: GitRepository
) -> None:
    git_server.hangs = True
    with pytest.raises(TimedOut) as error:
        await Git(protocols=["http"], timeout=0.5).ls_remote(git_repository.url)
    assert error.value.retryable


async def test_cancelling_kills_git_and_its_children(
    git: Git, git_server: GitServer, git_repository: GitRepository, tmp_path: Path
) -> None:
    git_server.hangs = True
    listing = asyncio.create_task(git.ls_remote(git_repository.url))
    await git_server.hanging()
    listing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await listing
    assert not _processes_with(str(tmp_path / "scratch"))
    assert not list((tmp_path / "scratch").iterdir())


async def test_a_redirect_is_refused_and_gets_no_credentials(
    git: Git, git_server: GitServer, git_repository: GitRepository, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    with GitServer(tmp_path / "other") as other:
        git_server.redirect_to = other.url
        with pytest.raises(Refused, match="redirects are not followed") as error:
            await git.ls_remote(git_repository.url, LOGIN)
    assert error.value.reason == "Redirected"
    assert other.requests == []


async def test_a_password_is_not_in_the_arguments_or_environment_of_git(
    git: Git, git_server: GitServer, git_repository: GitRepository, tmp_path: Path
) -> None:
    git_server.login = ("robot", PASSWORD)
    git_server.hangs = True
    listing = asyncio.create_task(git.ls_remote(git_repository.url, LOGIN))
    await git_server.hanging()
    seen = _processes_with(str(tmp_path / "scratch"))
    listing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await listing
    assert seen
    assert not [text for text in seen if PASSWORD in text or "HTTP_AUTHORIZATION" in text]


async def test_a_password_that_the_server_repeats_is_not_in_the_error(
    git: Git, git_server: GitServer, git_repository: GitRepository
) -> None:
    git_server.login = ("robot", "another")
    with pytest.raises(AuthFailed) as error:
        await git.ls_remote(git_repository.url, GitCredentials(username=PASSWORD, password=PASSWORD))
    assert PASSWORD not in f"{error.value!r} {error.value.hint} {error.value.__cause__!r}"
    assert PASSWORD not in repr(LOGIN)


async def test_a_server_with_a_certificate_of_a_private_authority_works_with_that_authority(
    tmp_path: Path,
) -> None:
    with GitServer(tmp_path, tls=True) as server:
        repository = server.repository("team/app")
        repository.commit({"a": "1"})
        with pytest.raises(Unreachable) as error:
            await Git().ls_remote(repository.url)
        assert "ca.crt" in error.value.hint
        refs = await Git().ls_remote(repository.url, GitCredentials(authority=server.authority))
    assert "main" in refs.branches


@pytest.mark.parametrize(
    "address",
    [
        "--upload-pack=touch /tmp/owned",
        "-oProxyCommand=touch",
        "ext::sh -c touch% /tmp/owned",
        "ext::sh",
        "fd::17",
        "fd::17/foo",
        "file:///etc",
        "/etc",
        "../other.git",
        "http://git.example.com/team/app.git",
        "git://git.example.com/team/app.git",
        "ftp://git.example.com/team/app.git",
        "https://-oProxyCommand=x/app.git",
        "ssh://-oProxyCommand=touch/app.git",
        "ssh://git@-oProxyCommand=touch/app.git",
        "git@-oProxyCommand=touch:app.git",
        "-u@host:app.git",
        "https://git.example.com/--upload-pack=x/app.git",
        "https://git.example.com/team/../../app.git",
        "https://git.example.com/team/%2e%2e/app.git",
        "https://git.example.com/app.git?x=1",
        "https://git.example.com/app.git#main",
        "https://git.example.com",
        "https://git.example.com:0/app.git",
        "https://git.example.com/app.git\n--upload-pack=x",
        "https://git.example.com/a pp.git",
        "https://git.example.com\\@evil.example.com/app.git",
        "",
    ],
)
async def test_an_address_that_git_could_misread_is_refused_before_git_sees_it(address: str) -> None:
    with pytest.raises(Refused):
        await Git().ls_remote(address)


async def test_credentials_in_an_address_are_refused_without_repeating_them() -> None:
    for address in (
        f"https://robot:{PASSWORD}@git.example.com/app.git",
        f"https://{PASSWORD}@git.example.com/app.git",
    ):
        with pytest.raises(Refused, match="credentials") as error:
            await Git().ls_remote(address)
        assert PASSWORD not in str(error.value)


def test_an_scp_like_address_is_parsed() -> None:
    git = Git()
    assert git.address("git@git.example.com:team/app.git").url == "ssh://git@git.example.com/team/app.git"
    assert git.address("ssh://git@git.example.com:2222/team/app.git").effective_port == 2222
    assert git.address("https://Git.Example.com/team/app.git").url == "https://git.example.com/team/app.git"


async def test_file_repositories_need_the_setting(git_repository: GitRepository) -> None:
    with pytest.raises(Refused, match="'file' is not allowed"):
        await Git().ls_remote(git_repository.file_url)
    assert "main" in (await Git(protocols=["file"]).ls_remote(git_repository.file_url)).branches


async def test_an_ssh_repository_needs_a_key_and_the_servers_own() -> None:
    with pytest.raises(AuthFailed, match="key"):
        await Git().ls_remote("git@git.example.com:team/app.git", GitCredentials(password="x"))
    secret = {"stringData": {"ssh-privatekey": "-----BEGIN OPENSSH PRIVATE KEY-----"}}
    with pytest.raises(AuthFailed, match="known_hosts"):
        GitCredentials.from_secret(secret)


async def test_ssh_runs_without_configuration_and_agent_and_with_strict_host_keys(
    tmp_path: Path, monkeypatch: Any
) -> None:
    """A fake ssh records its arguments."""
    record = tmp_path / "record"
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin" / "ssh"
    fake.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {record}\nexit 1\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("SSH_AUTH_SOCK", "/agent")
    credentials = GitCredentials(ssh_key="the key\n", known_hosts="git.example.com ssh-ed25519 AAAA")
    with pytest.raises(Exception, match=r"git\.example\.com"):
        await Git().ls_remote("git@git.example.com:team/app.git", credentials)
    given = record.read_text().splitlines()
    assert given[:2] == ["-F", "/dev/null"]
    assert {"BatchMode=yes", "StrictHostKeyChecking=yes", "IdentityAgent=none", "IdentitiesOnly=yes"} <= set(
        given
    )
    assert "git@git.example.com" in given
    assert "the key" not in "".join(given)


def test_a_key_that_ssh_accepts_is_read_from_memory(tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "made"], check=True)
    with SecretFiles(tmp_path) as files:
        key = files.add("key", (tmp_path / "made").read_text())
        read = subprocess.run(["ssh-keygen", "-y", "-f", key], capture_output=True, text=True, check=False)
    assert read.stdout.split()[:2] == (tmp_path / "made.pub").read_text().split()[:2], read.stderr
    assert not key.exists()


_LISTS_FOREVER = """
import asyncio, sys
from pathlib import Path
from kapsa.adapters.git.client import Git
from kapsa.adapters.git.credentials import GitCredentials

git = Git(protocols=["http"], scratch=Path(sys.argv[1]))
login = GitCredentials(username="the-user-name", password=sys.stdin.readline().strip())
asyncio.run(git.ls_remote(sys.argv[2], login))
"""


async def test_a_killed_process_leaves_no_password_on_the_disk(tmp_path: Path, git_server: GitServer) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    git_server.hangs = True
    url = git_server.repository("team/app").url
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _LISTS_FOREVER, scratch, url, stdin=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    process.stdin.write(f"{PASSWORD}\n".encode())
    try:
        await git_server.hanging()
    finally:
        process.kill()
        await process.wait()
    left = [path for path in scratch.rglob("*") if path.is_file()]
    assert any(path.name == "askpass" for path in left), "the process was killed while git ran"
    texts = [path.read_text(errors="replace") for path in left]
    assert not any(PASSWORD in text or "the-user-name" in text for text in texts)


async def test_a_guard_keeps_git_from_internal_addresses(
    git_repository: GitRepository, git_server: GitServer
) -> None:
    guarded = Git(protocols=["http"], address_guard=reject_internal_address)
    for url in (git_repository.url, git_repository.url.replace("127.0.0.1", "localhost")):
        with pytest.raises(Refused, match="is not allowed for a server"):
            await guarded.ls_remote(url)
    assert git_server.requests == []


async def test_git_connects_to_the_addresses_that_the_guard_checked(git_repository: GitRepository) -> None:
    seen: list[str] = []
    url = git_repository.url.replace("127.0.0.1", "localhost")
    refs = await Git(protocols=["http"], address_guard=seen.append).ls_remote(url)
    assert "127.0.0.1" in seen
    assert "main" in refs.branches


async def test_a_proxy_resolves_names_and_the_guard_checks_addresses(
    git_server: GitServer, git_repository: GitRepository, monkeypatch: Any
) -> None:
    monkeypatch.setenv("http_proxy", git_server.url)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    guarded = Git(protocols=["http"], address_guard=reject_internal_address)
    assert "main" in (await guarded.ls_remote("http://nowhere.invalid/team/app.git")).branches
    with pytest.raises(Refused, match="is not allowed for a server"):
        await guarded.ls_remote("http://169.254.169.254/team/app.git")


async def test_an_endless_listing_is_aborted(
    git: Git, git_repository: GitRepository, monkeypatch: Any
) -> None:
    monkeypatch.setattr("kapsa.adapters.git.client._LISTING_LIMIT", 10)
    with pytest.raises(LimitExceeded):
        await git.ls_remote(git_repository.url)


async def test_configuration_of_the_machine_and_of_the_user_is_ignored(
    git: Git, git_repository: GitRepository, tmp_path: Path, monkeypatch: Any
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text('[url "http://127.0.0.1:1/"]\n\tinsteadOf = http://\n')
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "url.http://127.0.0.1:1/.insteadOf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "http://")
    assert "main" in (await git.ls_remote(git_repository.url)).branches


async def test_requests_to_one_host_are_limited(git_server: GitServer, git_repository: GitRepository) -> None:
    git = Git(protocols=["http"], concurrency=1)
    await asyncio.gather(*(git.ls_remote(git_repository.url) for _ in range(4)))
    assert git_server.max_concurrent == 1


@pytest.mark.virtual_time
async def test_virtual_time_stands_still_while_git_runs(git_repository: GitRepository) -> None:
    loop = asyncio.get_running_loop()
    before = loop.time()
    async with asyncio.timeout(0.001):
        await Git(protocols=["http"]).ls_remote(git_repository.url)
    assert loop.time() == before


def test_an_abbreviated_commit_is_completed_only_if_it_is_unambiguous() -> None:
    refs = Refs({"main": "a1b2c3d4" + "0" * 32, "dev": "a1b2ffff" + "0" * 32}, {})
    assert refs.complete("a1b2c3d4...") == "a1b2c3d4" + "0" * 32
    for beginning in ("a1b2", "dead", ""):
        with pytest.raises(ExternalNotFound):
            refs.complete(beginning)


def test_a_fork_whose_commit_starts_like_another_one_completes_nothing_but_its_own_pull_request() -> None:
    fork = "0123456b" + "0" * 32
    refs = Refs({"main": "f" * 40, "old": "abcdef01" + "0" * 32}, {7: fork, 8: "abcdef02" + "0" * 32})
    with pytest.raises(ExternalNotFound):
        refs.complete("0123456")
    with pytest.raises(ExternalNotFound, match="pull request 8"):
        refs.complete("0123456", pull_request=8)
    assert refs.complete("0123456", pull_request=7) == fork
    assert refs.complete("abcdef0") == "abcdef01" + "0" * 32


def test_secrets_of_all_common_types_are_read() -> None:
    basic = GitCredentials.from_secret({"data": {"username": "cm9ib3Q=", "password": "c2VjcmV0Cg=="}})
    assert (basic.username, basic.password) == ("robot", "secret")
    token = GitCredentials.from_secret({"stringData": {"token": "abcdef"}})
    assert (token.username, token.password) == ("git", "abcdef")
    with pytest.raises(AuthFailed, match="no credentials"):
        GitCredentials.from_secret({"data": {}})


def _processes_with(text: str) -> list[str]:
    """Return the command lines and environments of processes that contain this text."""
    matches = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            content = (process / "cmdline").read_bytes() + b"\0" + (process / "environ").read_bytes()
        except OSError:
            continue
        shown = content.decode("utf-8", "replace")
        if text in shown and process.name != str(os.getpid()):
            matches.append(shown)
    return matches


async def test_a_full_disk_for_temporary_files_is_reported(
    git_repository: GitRepository, tmp_path: Path
) -> None:
    git = Git(protocols=["http"], scratch=tmp_path / "missing")
    with pytest.raises(ExternalFailure, match="temporary files cannot be written") as error:
        await git.ls_remote(git_repository.url)
    assert error.value.reason == "CacheNotWritable"


@pytest.mark.parametrize(
    ("stderr", "kind", "reason"),
    [
        (
            "fatal: early EOF\nfatal: fetch-pack: invalid index-pack output",
            Unreachable,
            "Unreachable",
        ),
        (
            "error: RPC failed; curl 18 transfer closed\nfatal: early EOF\nfatal: index-pack failed",
            Unreachable,
            "Unreachable",
        ),
        (
            "fatal: fsck error in packed object\nfatal: early EOF\nfatal: fetch-pack: invalid index-pack output",
            Refused,
            "Refused",
        ),
        (
            "fatal: pack has bad object at offset 12\nfatal: fetch-pack: invalid index-pack output",
            Refused,
            "Refused",
        ),
        (
            "fatal: write error: No space left on device\nfatal: fetch-pack: invalid index-pack output",
            ExternalFailure,
            "CacheNotWritable",
        ),
    ],
)
def test_a_truncated_pack_a_broken_pack_and_a_full_disk_are_distinct_errors(
    stderr: str, kind: type[ExternalError], reason: str
) -> None:
    address = RepositoryAddress.parse("https://git.example.com/team/app.git")
    error = failure(stderr, address, (), with_credentials=False)
    assert (type(error), error.reason) == (kind, reason)
