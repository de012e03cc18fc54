"""Moved to kapsa.environments.testing."""

from kapsa.environments.testing.git_server import *  # noqa: F403
