"""Operators whose charts are not rendered."""

from __future__ import annotations

import pytest

from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.registry.operator_repository import PostgresOperators
from kapsa.fleet.infrastructure.vault.local_vault import LocalVault
from kapsa.fleet.orchestrator.registry.operators import Operators
from tests.fleet.audit_recorder import AuditRecorder
from tests.fleet.orchestrator.registry.operator_examples import FakeCharts


@pytest.fixture
def quick(database: Database, audit: AuditRecorder, vault: LocalVault) -> Operators:
    """The use cases on charts that are not rendered."""
    return Operators(database, PostgresOperators(), FakeCharts(), vault, audit)
