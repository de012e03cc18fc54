"""Moved to kapsa.environments.testing."""

from kapsa.environments.testing.registry_server import *  # noqa: F403
