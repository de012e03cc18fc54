"""The world around environments on loopback, for tests, the demo and benchmarks: a git server and an image registry."""

from .git_server import GitRepository, GitServer
from .registry_server import RegistryServer

__all__ = ["GitRepository", "GitServer", "RegistryServer"]
