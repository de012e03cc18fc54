"""Real changes of well-known operators: the findings, the way back, and whether the step can be undone."""

from __future__ import annotations

import pytest

from tests.fleet.domain.crds.histories import (
    argo_cd,
    cert_manager,
    cloudnative_pg,
    external_secrets,
    flux,
    istio,
    strimzi,
)
from tests.fleet.domain.crds.histories.change import CrdHistory
from tests.fleet.domain.crds.resources import comparison, rules

MODULES = (argo_cd, cert_manager, cloudnative_pg, external_secrets, flux, istio, strimzi)
CHANGES = [(module.__name__.rpartition(".")[2], change) for module in MODULES for change in module.CHANGES]


@pytest.mark.parametrize(
    ("operator", "change"), CHANGES, ids=[f"{name}: {change.name}" for name, change in CHANGES]
)
def test_a_real_change_gets_the_right_findings(operator: str, change: CrdHistory) -> None:
    result = comparison(change.old, change.new)
    assert rules(result.findings) == change.findings
    assert comparison(change.new, change.old).severity is change.back
    assert result.one_way is change.one_way, result.one_way_reasons


def test_there_are_at_least_sixty_changes_of_seven_operators() -> None:
    assert len(CHANGES) >= 60
    assert len({operator for operator, _ in CHANGES}) == 7
