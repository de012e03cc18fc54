"""The operator's rights: the generated roles grant all that it needs, and nothing else."""

from __future__ import annotations

import pytest

from kapsa.runtime import Audit, grants
from tests.behaviour.environments.full_scenario import FullScenario
from tests.environments.sandbox import Sandbox

pytestmark = pytest.mark.virtual_time


async def test_the_rights_are_enough_and_none_is_left_over(sandbox: Sandbox) -> None:
    scenario = FullScenario(sandbox)
    await scenario.run()
    await scenario.delete_project()
    audit = Audit()
    for recorded in sandbox.harness.calls:
        audit(recorded.call, recorded.status, 0)
    granted = grants(scenario.operator.rights(), namespace=scenario.settings.namespace)
    assert audit.missing(granted) == []
    assert not (left_over := audit.surplus(granted)), left_over
