"""Settings of managers that change real clusters."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy.engine import URL

from kapsa.fleet.infrastructure.vault.encryption_keys import new_key_text
from kapsa.fleet.settings import FleetSettings


@pytest.fixture
def settings(database_url: URL, tmp_path: Path) -> FleetSettings:
    """Settings for clusters and repositories on loopback, with a health check every second."""
    return FleetSettings(
        database_url=database_url.render_as_string(hide_password=False),
        data_directory=tmp_path / "fleet",
        encryption_keys=new_key_text(),
        listen_port=0,
        internal_addresses=True,
        plain_http_repositories=True,
        health_check_seconds=1,
    )
