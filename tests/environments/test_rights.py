"""The operator's rights: the generated roles grant all that it needs, and nothing else."""

from __future__ import annotations

import pytest

from kapsa.runtime import Audit, grants
from tests.behaviour.environments.full_scenario import FullScenario
from tests.environments.sandbox import Sandbox

pytestmark = pytest.mark.virtual_time

ONLY_AFTER_AN_UPGRADE = [
    f"delete {kind}webhookconfigurations.admissionregistration.k8s.io" for kind in ("mutating", "validating")
]
"""Rights to delete a registration whose last webhook an upgrade has dropped: one process cannot do that."""

CHECKED_WITHIN_OTHERS = ["bind clusterroles.rbac.authorization.k8s.io"]
"""Rights that the API server requires of the writer of a RoleBinding. No request has such a verb."""


async def test_the_rights_are_enough_and_none_is_left_over(sandbox: Sandbox) -> None:
    scenario = FullScenario(sandbox)
    await scenario.run()
    await scenario.delete_project()
    audit = Audit()
    for recorded in sandbox.harness.calls:
        audit(recorded.call, recorded.status, 0)
    granted = grants(scenario.operator.rights(), namespace=scenario.settings.namespace)
    assert audit.missing(granted) == []
    expected = [*ONLY_AFTER_AN_UPGRADE, *CHECKED_WITHIN_OTHERS]
    left_over = [each for each in audit.surplus(granted) if each not in expected]
    assert not left_over, left_over
