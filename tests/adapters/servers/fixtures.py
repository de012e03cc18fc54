"""Fixtures for servers on loopback: `git_server`, `git_repository`, `registry_server`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kapsa.adapters.testing.git_server import GitRepository, GitServer
from kapsa.adapters.testing.registry_server import RegistryServer


@pytest.fixture
def git_server(tmp_path: Path) -> Iterator[GitServer]:
    """A git server over plain HTTP: allow it with `Git(protocols=["http"])`."""
    directory = tmp_path / "git-server"
    directory.mkdir()
    with GitServer(directory) as server:
        yield server


@pytest.fixture
def git_repository(git_server: GitServer) -> GitRepository:
    """A repository on it, with one commit on main."""
    repository = git_server.repository("team/app")
    repository.commit({"README.md": "An application.\n"}, message="Begin")
    return repository


@pytest.fixture
def registry_server() -> Iterator[RegistryServer]:
    """An empty image registry over plain HTTP, with anonymous access."""
    with RegistryServer() as server:
        yield server
