"""Servers on loopback and checkouts for the tests of adapters."""

from tests.adapters.checkouts import checkout, recording_server
from tests.adapters.servers.fixtures import git_repository, git_server, registry_server

__all__ = ["checkout", "git_repository", "git_server", "recording_server", "registry_server"]
