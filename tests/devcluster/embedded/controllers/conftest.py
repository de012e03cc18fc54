"""The world these tests play in."""

from __future__ import annotations

import pytest

from kapsa.devcluster import DevCluster
from tests.devcluster.embedded.controllers.client import World


@pytest.fixture
def world(cluster: DevCluster) -> World:
    return World(cluster)
