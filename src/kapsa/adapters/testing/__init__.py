"""The world around environments on loopback, for tests, the demo and benchmarks: a git server and an image registry."""

from kapsa.adapters.testing.git_server import GitRepository, GitServer
from kapsa.adapters.testing.registry_server import RegistryServer

__all__ = ["GitRepository", "GitServer", "RegistryServer"]
