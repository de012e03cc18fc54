"""Fixtures for the tests of controllers."""

from __future__ import annotations

import pytest

from kapsa.devcluster import DevCluster
from tests.devcluster.embedded.controllers.client import ObjectClient


@pytest.fixture
def client(cluster: DevCluster) -> ObjectClient:
    return ObjectClient(cluster)
