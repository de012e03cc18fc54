"""Fixtures of the environments operator, for end-to-end tests."""

from tests.adapters.servers.fixtures import git_repository, git_server, registry_server
from tests.behaviour.environments.crash_scenario import sweep
from tests.environments.fixtures import faults, pytest_asyncio_loop_factories, sandbox, tenant

__all__ = [
    "faults",
    "git_repository",
    "git_server",
    "pytest_asyncio_loop_factories",
    "registry_server",
    "sandbox",
    "sweep",
    "tenant",
]
