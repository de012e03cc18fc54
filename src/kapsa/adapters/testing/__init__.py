"""Servers on loopback for tests, benchmarks and the demo: a git server and an image registry."""

from kapsa.adapters.testing.git_server import GitRepository, GitServer
from kapsa.adapters.testing.registry_server import RegistryServer

__all__ = ["GitRepository", "GitServer", "RegistryServer"]
