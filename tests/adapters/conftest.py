"""Servers on loopback for the tests of adapters."""

from tests.adapters.servers.fixtures import git_repository, git_server, registry_server

__all__ = ["git_repository", "git_server", "registry_server"]
