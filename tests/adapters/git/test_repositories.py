"""Commits fetched and checked out from a real git server, and hostile repositories."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import os
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
)
from kapsa.adapters.git.checkout import CheckoutLimits
from kapsa.adapters.git.client import Git
from kapsa.adapters.git.credentials import GitCredentials
from kapsa.adapters.git.repositories import Repositories
from kapsa.adapters.testing.git_server import Executable, GitRepository, GitServer, Link

pytestmark = pytest.mark.sampled(24, of="module")


@pytest.fixture
def git() -> Git:
    return Git(protocols=["http"], timeout=20)


@pytest.fixture
def repositories(tmp_path: Path, git: Git) -> Repositories:
    return Repositories(tmp_path / "cache", git)


def files_of(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


async def test_a_checkout_has_exactly_the_files_of_its_commit(
    repositories: Repositories, git_repository: GitRepository
) -> None:
    first = git_repository.commit({"a.txt": "one", "deep/er/b.txt": "two", "run": Executable("#!/bin/sh\n")})
    second = git_repository.commit({"a.txt": "changed", "deep/er/b.txt": None})
    async with repositories.checkout(git_repository.url, first) as checkout:
        assert files_of(checkout.root) == {
            "README.md": "An application.\n", "a.txt": "one", "deep/er/b.txt": "two", "run": "#!/bin/sh\n",
        }  # fmt: skip
        assert os.access(checkout.root / "run", os.X_OK)
    async with repositories.checkout(git_repository.url, second) as checkout:
        assert files_of(checkout.root)["a.txt"] == "changed"


async def test_a_commit_that_only_a_pull_request_leads_to_is_checked_out(
    repositories: Repositories, git_repository: GitRepository
) -> None:
    commit = git_repository.pull_request(7, {"fork.txt": "from a fork"})
    async with repositories.checkout(git_repository.url, commit, pull_request=7) as checkout:
        assert files_of(checkout.root)["fork.txt"] == "from a fork"


async def test_a_commit_survives_a_force_push(
    repositories: Repositories, git_repository: GitRepository
) -> None:
    old = git_repository.commit({"a": "old"}, branch="feature")
    new = git_repository.force_push({"a": "new"}, branch="feature")
    for commit, content in ((new, "new"), (old, "old")):
        async with repositories.checkout(git_repository.url, commit, branch="feature") as checkout:
            assert files_of(checkout.root)["a"] == content


@pytest.mark.long
async def test_references_are_searched_if_the_server_serves_no_commits_by_hash(
    tmp_path: Path, repositories: Repositories
) -> None:
    with GitServer(tmp_path, by_commit=False) as server:
        repository = server.repository("team/app")
        old = repository.commit({"a": "old"})
        repository.commit({"a": "new"})
        fork = repository.pull_request(3, {"a": "fork"})
        repository.pull_request(3, {"a": "fork, later"})
        async with repositories.checkout(repository.url, old, branch="main") as checkout:
            assert files_of(checkout.root)["a"] == "old"
        async with repositories.checkout(repository.url, fork) as checkout:  # without a hint
            assert files_of(checkout.root)["a"] == "fork"
        with pytest.raises(ExternalNotFound, match="has no commit"):
            async with repositories.checkout(repository.url, "0123456789" * 4, branch="main"):
                pass


async def test_a_commit_that_does_not_exist_is_not_found(
    repositories: Repositories, git_repository: GitRepository
) -> None:
    with pytest.raises(ExternalNotFound) as error:
        async with repositories.checkout(git_repository.url, "0123456789" * 4):
            pass
    assert error.value.reason == "CommitNotFound"


@pytest.mark.parametrize(
    "commit", ["main", "HEAD", "--upload-pack=x", "-c", "a" * 39, "A" * 40, "HEAD~1", "", "a" * 40 + "^"]
)
async def test_only_a_full_commit_hash_is_accepted(
    repositories: Repositories, git_repository: GitRepository, commit: str
) -> None:
    with pytest.raises(Refused):
        async with repositories.checkout(git_repository.url, commit):
            pass


@pytest.mark.parametrize(
    "branch", ["--upload-pack=x", "a..b", "a b", "a:b", "+main:other", "*", "a.lock", "@{u}", "/a", "a//b"]
)
async def test_a_branch_that_git_could_misread_is_refused(
    repositories: Repositories, git_repository: GitRepository, branch: str
) -> None:
    with pytest.raises(Refused, match="not a valid branch name"):
        await repositories.complete(git_repository.url, "abcdef12", branch=branch)


async def test_what_is_cached_is_not_fetched_again(
    repositories: Repositories, git_server: GitServer, git_repository: GitRepository
) -> None:
    commit = git_repository.commit({"a": "1"})
    async with repositories.checkout(git_repository.url, commit):
        pass
    git_server.failures = [503] * 10
    async with repositories.checkout(git_repository.url, commit) as checkout:
        assert files_of(checkout.root)["a"] == "1"


async def test_the_cache_outlives_the_process(
    tmp_path: Path, git: Git, git_server: GitServer, git_repository: GitRepository
) -> None:
    commit = git_repository.commit({"a": "1"})
    first = Repositories(tmp_path / "cache", git)
    async with first.checkout(git_repository.url, commit):
        pass
    git_server.failures = [503] * 10
    async with Repositories(tmp_path / "cache", git).checkout(git_repository.url, commit) as checkout:
        assert files_of(checkout.root)["a"] == "1"


async def test_what_a_killed_process_left_behind_does_no_harm(
    tmp_path: Path, git: Git, git_repository: GitRepository
) -> None:
    first = git_repository.commit({"a": "1"})
    second = git_repository.commit({"a": "2"})
    async with Repositories(tmp_path / "cache", git).checkout(git_repository.url, first):
        pass
    (bare,) = (tmp_path / "cache" / "repositories").glob("*.git")
    (bare / "shallow.lock").touch()
    (bare / "objects" / "pack").mkdir(exist_ok=True)
    (bare / "objects" / "pack" / "tmp_pack_x").write_bytes(b"half")
    abandoned = tmp_path / "cache" / "checkouts" / "abandoned"
    abandoned.mkdir()
    async with Repositories(tmp_path / "cache", git).checkout(git_repository.url, second) as checkout:
        assert files_of(checkout.root)["a"] == "2"
    assert not abandoned.exists()


async def test_a_broken_cache_is_replaced_at_the_next_try(
    tmp_path: Path, git: Git, git_repository: GitRepository
) -> None:
    commit = git_repository.commit({"a": "1"})
    async with Repositories(tmp_path / "cache", git).checkout(git_repository.url, commit):
        pass
    (bare,) = (tmp_path / "cache" / "repositories").glob("*.git")
    for pack in (bare / "objects" / "pack").glob("*.pack"):
        pack.chmod(0o600)
        pack.write_bytes(b"rubbish")
    fresh = Repositories(tmp_path / "cache", git)
    with pytest.raises(ExternalError) as error:
        async with fresh.checkout(git_repository.url, commit):
            pass
    assert error.value.retryable
    async with fresh.checkout(git_repository.url, commit) as checkout:
        assert files_of(checkout.root)["a"] == "1"


async def test_one_tenants_cache_is_not_anothers(
    repositories: Repositories, git_server: GitServer, git_repository: GitRepository
) -> None:
    commit = git_repository.commit({"secret.txt": "of the first tenant"})
    git_server.login = ("first", "password")
    async with repositories.checkout(
        git_repository.url, commit, credentials=GitCredentials(username="first", password="password")
    ):
        for other in (None, GitCredentials(username="second", password="guessed")):
            with pytest.raises(AuthFailed):
                async with repositories.checkout(git_repository.url, commit, credentials=other):
                    pass


async def test_several_readers_share_a_checkout_and_none_loses_it(
    tmp_path: Path, git: Git, git_repository: GitRepository
) -> None:
    repositories = Repositories(tmp_path / "cache", git, max_checkouts=1)
    commits = [git_repository.commit({"a": str(number)}) for number in range(4)]

    async def read(commit: str) -> str:
        async with repositories.checkout(git_repository.url, commit) as checkout:
            await asyncio.sleep(0.01)
            return files_of(checkout.root)["a"]

    seen = await asyncio.gather(*(read(commit) for commit in commits * 3))
    assert seen == ["0", "1", "2", "3"] * 3
    assert len(list((tmp_path / "cache" / "checkouts").glob("*/*"))) <= 1


async def test_the_least_recently_used_repositories_go_when_the_cache_is_full(
    tmp_path: Path, git: Git, git_server: GitServer
) -> None:
    repositories = Repositories(tmp_path / "cache", git, max_bytes=150_000)
    for number in range(4):
        repository = git_server.repository(f"team/app{number}")
        commit = repository.commit({"data": os.urandom(60_000)})
        async with repositories.checkout(repository.url, commit):
            pass
    assert len(list((tmp_path / "cache" / "repositories").glob("*.git"))) == 2


async def test_a_repository_that_grew_past_its_limit_over_time_is_fetched_from_scratch(
    git_repository: GitRepository, tmp_path: Path
) -> None:
    repositories = Repositories(tmp_path / "cache", Git(protocols=["http"], timeout=20, max_bytes=1_500_000))
    for number in range(4):
        content = os.urandom(600_000)
        commit = git_repository.commit({"large": content, "number": str(number)})
        async with repositories.checkout(git_repository.url, commit) as checkout:
            assert (checkout.root / "large").read_bytes() == content


async def test_a_repository_past_its_size_limit_is_refused(
    tmp_path: Path, git_repository: GitRepository
) -> None:
    commit = git_repository.commit({"data": os.urandom(3_000_000)})
    repositories = Repositories(tmp_path / "cache", Git(protocols=["http"], timeout=20, max_bytes=1_000_000))
    for _ in range(2):  # the partial fetch of the first time does not count as fetched the second time
        with pytest.raises(LimitExceeded, match="wrote more than 1000000 bytes"):
            async with repositories.checkout(git_repository.url, commit):
                pass
    assert not (tmp_path / "cache" / "checkouts").exists()
    assert sum(path.stat().st_size for path in (tmp_path / "cache").rglob("*") if path.is_file()) < 1_000_000


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (CheckoutLimits(files=5), "more than 5 files"),
        (CheckoutLimits(total_bytes=1_000), "more than"),
        (CheckoutLimits(file_bytes=500), "'file0' in commit"),
    ],
)
async def test_a_commit_past_its_limits_is_refused_before_a_byte_is_written(
    tmp_path: Path, git: Git, git_repository: GitRepository, limits: CheckoutLimits, message: str
) -> None:
    commit = git_repository.commit({f"file{number}": "x" * 800 + str(number) for number in range(10)})
    repositories = Repositories(tmp_path / "cache", git, limits=limits)
    with pytest.raises(LimitExceeded, match=message):
        async with repositories.checkout(git_repository.url, commit):
            pass
    assert not [path for path in (tmp_path / "cache" / "checkouts").rglob("*") if path.is_file()]


async def test_a_bomb_of_nested_trees_is_refused(
    repositories: Repositories, git_repository: GitRepository
) -> None:
    """Ten levels of ten equal directories: a few kilobytes that stand for ten billion files."""
    blob = git_repository.git("hash-object", "-w", "--stdin", stdin=b"x" * 100)
    files = "".join(f"100644 blob {blob}\tf{n}\n" for n in range(10))
    commit = nested(git_repository, git_repository.git("mktree", stdin=files.encode()))
    with pytest.raises(LimitExceeded, match="files"):
        async with repositories.checkout(git_repository.url, commit):
            pass


def nested(repository: GitRepository, tree: str) -> str:
    """Create a commit of ten levels of ten equal directories, with this tree in each of the last."""
    for _ in range(10):
        directories = "".join(f"040000 tree {tree}\td{n}\n" for n in range(10))
        tree = repository.git("mktree", stdin=directories.encode())
    commit = repository.git(
        "-c", "user.name=x", "-c", "user.email=x@example.com", "commit-tree", tree, "-m", "bomb"
    )
    repository.git("update-ref", "refs/heads/bomb", commit)
    return commit


async def test_a_forest_of_empty_directories_is_rejected_without_a_retry(
    repositories: Repositories, git_repository: GitRepository, monkeypatch: Any
) -> None:
    monkeypatch.setattr("kapsa.adapters.git.checkout._LISTING_SECONDS", 0.5)
    commit = nested(git_repository, git_repository.git("mktree"))
    with pytest.raises(LimitExceeded, match="directories") as error:
        async with repositories.checkout(git_repository.url, commit):
            pass
    assert not error.value.retryable


async def test_a_path_that_no_disk_can_hold_is_refused(
    repositories: Repositories, git_repository: GitRepository
) -> None:
    commit = git_repository.commit({"/".join(["d" * 200] * 30): "deep"})
    with pytest.raises(Refused, match="name too long") as error:
        async with repositories.checkout(git_repository.url, commit):
            pass
    assert error.value.reason == "PathRefused"


async def test_links_that_leave_the_checkout_are_omitted_and_reported(
    repositories: Repositories, git_repository: GitRepository, tmp_path: Path
) -> None:
    commit = git_repository.commit(
        {
            "chart/values.yaml": Link("../config/values.yaml"),
            "config/values.yaml": "inside: true\n",
            "evil/absolute": Link("/etc/passwd"),
            "evil/up": Link("../../../../etc/passwd"),
            "evil/etc": Link("/etc"),
            "evil/through": Link("etc/passwd"),
            "evil/deep/relative": Link("../../../outside"),
            "loop/self": Link("."),
        }
    )
    async with repositories.checkout(git_repository.url, commit) as checkout:
        assert (checkout.root / "chart/values.yaml").read_text() == "inside: true\n"
        assert checkout.resolve("chart/values.yaml").name == "values.yaml"
        assert not [path for path in (checkout.root / "evil").rglob("*") if path.is_symlink()]
        for path in ("evil/absolute", "evil/up", "evil/etc/passwd", "evil/through", "evil/deep/relative"):
            with pytest.raises(Refused, match="leaves the repository"):
                checkout.resolve(path)
        with pytest.raises(Refused, match="symbolic link to '/etc/passwd'"):
            checkout.directory("evil")
        with pytest.raises(Refused, match="a directory that contains it"):
            checkout.directory("loop")
        assert checkout.directory("chart").is_dir()


@pytest.mark.parametrize(
    "path",
    ["../other", "/etc/passwd", "a/../../b", "~/x", "-x", ".git/config", "a/.GIT/config", "a\0b", "a\\b", ""],
)
async def test_a_path_that_leaves_the_checkout_is_refused(
    repositories: Repositories, git_repository: GitRepository, path: str
) -> None:
    commit = git_repository.commit({"a/b": "1"})
    async with repositories.checkout(git_repository.url, commit) as checkout:
        with pytest.raises(Refused):
            checkout.resolve(path)


@pytest.mark.parametrize("path", ["-x", "~x"])
async def test_a_path_that_programs_misread_is_rejected_with_a_safe_spelling(
    repositories: Repositories, git_repository: GitRepository, path: str
) -> None:
    commit = git_repository.commit({f"{path}/b": "1"})
    async with repositories.checkout(git_repository.url, commit) as checkout:
        with pytest.raises(Refused, match=f"'./{path}'"):
            checkout.resolve(path)
        assert checkout.directory(f"./{path}").is_dir()


async def test_a_path_that_does_not_exist_is_not_found(
    repositories: Repositories, git_repository: GitRepository
) -> None:
    commit = git_repository.commit({"a/b": "1"})
    async with repositories.checkout(git_repository.url, commit) as checkout:
        assert checkout.directory(".") == checkout.root
        with pytest.raises(ExternalNotFound, match="has no 'charts/app'"):
            checkout.directory("./charts/app")
        with pytest.raises(ExternalNotFound, match="is a file"):
            checkout.directory("a/b")


async def test_submodules_are_not_fetched(
    repositories: Repositories, git_server: GitServer, git_repository: GitRepository
) -> None:
    other = git_server.repository("team/other")
    inner = other.commit({"x": "1"})
    commit = git_repository.commit({".gitmodules": f'[submodule "lib"]\n\tpath = lib\n\turl = {other.url}\n'})
    tree = git_repository.git("ls-tree", commit) + f"\n160000 commit {inner}\tlib\n"
    made = git_repository.git("mktree", "--missing", stdin=tree.encode())
    commit = git_repository.git(
        "-c", "user.name=x", "-c", "user.email=x@example.com", "commit-tree", made, "-m", "with a submodule"
    )
    git_repository.git("update-ref", "refs/heads/sub", commit)
    async with repositories.checkout(git_repository.url, commit) as checkout:
        with pytest.raises(Refused, match="'lib' is a submodule, which is not fetched"):
            checkout.resolve("lib/x")
    assert not [request for request in git_server.requests if "other" in request.path]


async def test_filters_and_hooks_of_a_repository_do_not_run(
    repositories: Repositories, git_repository: GitRepository, tmp_path: Path
) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 5\n"
    commit = git_repository.commit(
        {
            ".gitattributes": "*.bin filter=lfs\n*.txt export-ignore\n*.id export-subst ident\n*.crlf text eol=crlf\n",
            "big.bin": pointer,
            "kept.txt": "kept",
            "x.id": "$Id$ $Format:%H$",
            "x.crlf": "a\nb\n",
        }
    )
    async with repositories.checkout(git_repository.url, commit) as checkout:
        files = files_of(checkout.root)
    assert (files["big.bin"], files["kept.txt"]) == (pointer, "kept")
    assert (files["x.id"], files["x.crlf"]) == ("$Id$ $Format:%H$", "a\nb\n")


async def test_a_tree_with_gits_own_directory_in_it_is_refused(
    repositories: Repositories, git_repository: GitRepository
) -> None:
    blob = git_repository.git("hash-object", "-w", "--stdin", stdin=b"[core]\n")
    inner = b"100644 config\0" + bytes.fromhex(blob)
    tree = git_repository.git("hash-object", "-w", "-t", "tree", "--literally", "--stdin", stdin=inner)
    outer = b"40000 .git\0" + bytes.fromhex(tree)
    root = git_repository.git("hash-object", "-w", "-t", "tree", "--literally", "--stdin", stdin=outer)
    commit = git_repository.git(
        "-c", "user.name=x", "-c", "user.email=x@example.com", "commit-tree", root, "-m", "evil"
    )
    git_repository.git("update-ref", "refs/heads/evil", commit)
    with pytest.raises(Refused):
        async with repositories.checkout(git_repository.url, commit):
            pass


async def test_an_abbreviated_commit_is_completed_from_references_or_from_a_branchs_history(
    repositories: Repositories, git_repository: GitRepository
) -> None:
    old = git_repository.commit({"a": "1"})
    new = git_repository.commit({"a": "2"})
    assert await repositories.complete(git_repository.url, new[:8] + "...") == new
    assert await repositories.complete(git_repository.url, old[:8], branch="main") == old
    assert await repositories.complete(git_repository.url, old) == old
    with pytest.raises(ExternalNotFound):
        await repositories.complete(git_repository.url, "deadbeef", branch="main")


def colliding_commit(repository: GitRepository, tree: str, prefix: str) -> str:
    """Return a commit whose hash starts with these digits, as anybody can make one."""
    author = "x <x@example.com> 1700000000 +0000"
    for number in itertools.count():
        content = f"tree {tree}\nauthor {author}\ncommitter {author}\n\nfork {number}\n".encode()
        header = f"commit {len(content)}\0".encode()
        if hashlib.sha1(header + content, usedforsecurity=False).hexdigest().startswith(prefix):
            break
    return repository.git("hash-object", "-w", "-t", "commit", "--stdin", stdin=content)


@pytest.mark.long
async def test_an_abbreviated_commit_is_not_completed_with_one_of_a_fork(
    repositories: Repositories, git_repository: GitRepository
) -> None:
    old = git_repository.commit({"a": "1"})
    git_repository.commit({"a": "2"})
    prefix = old[:4]
    fork = colliding_commit(git_repository, git_repository.git("rev-parse", f"{old}^{{tree}}"), prefix)
    git_repository.git("update-ref", "refs/pull/7/head", fork)
    url = git_repository.url
    assert await repositories.complete(url, prefix, branch="main") == old
    async with repositories.checkout(url, fork, pull_request=7):
        pass  # from here on the cache has the fork's commit, too
    assert await repositories.complete(url, prefix, branch="main") == old
    with pytest.raises(ExternalNotFound):
        await repositories.complete(url, fork[:8], branch="main", pull_request=8)
    assert await repositories.complete(url, prefix, pull_request=7) == fork


async def test_only_a_commit_in_the_history_of_a_branch_is_in_branches(
    repositories: Repositories, git_repository: GitRepository
) -> None:
    old = git_repository.commit({"a": "1"})
    new = git_repository.commit({"a": "2"})
    tree = git_repository.git("rev-parse", f"{old}^{{tree}}")
    fork = colliding_commit(git_repository, tree, old[:1])
    git_repository.git("update-ref", "refs/pull/7/head", fork)
    url = git_repository.url
    async with repositories.checkout(url, fork, pull_request=7):
        pass
    assert await repositories.in_branches(url, old)
    assert await repositories.in_branches(url, new)
    assert not await repositories.in_branches(url, fork)
    assert not await repositories.in_branches(url, "0" * 40)


async def test_cancelling_a_fetch_leaves_nothing_half_done(
    tmp_path: Path, repositories: Repositories, git_server: GitServer, git_repository: GitRepository
) -> None:
    commit = git_repository.commit({"a": "1"})
    git_server.hangs = True

    async def check_out() -> Any:
        async with repositories.checkout(git_repository.url, commit) as checkout:
            return files_of(checkout.root)["a"]

    task = asyncio.create_task(check_out())
    await git_server.hanging()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    git_server.hangs = False
    assert await check_out() == "1"
    await repositories.close()
    assert not list((tmp_path / "cache" / "checkouts").iterdir())


async def test_a_cache_that_cannot_be_written_is_reported_and_retried(
    git: Git, git_repository: GitRepository, tmp_path: Path
) -> None:
    commit = git_repository.commit({"a": "1"})
    (tmp_path / "file").write_text("not a directory")
    repositories = Repositories(tmp_path / "file" / "cache", git)
    for look in (
        repositories.checkout(git_repository.url, commit).__aenter__(),
        repositories.complete(git_repository.url, "0123456", branch="main"),
    ):
        with pytest.raises(
            ExternalFailure, match=r"the cache of repositories in .* cannot be written"
        ) as error:
            await look
        assert error.value.reason == "CacheNotWritable"
        assert "cache directory" in error.value.hint
