"""The application over HTTP in memory, on a database of the test."""

from __future__ import annotations

import pytest

from kapsa.fleet.infrastructure.postgres.database import Database
from tests.fleet.api.harness import ApiClient, application, token


@pytest.fixture
def api(database: Database) -> ApiClient:
    """An admin of the real application."""
    return ApiClient(application(database), token("ada", "Admin"))
