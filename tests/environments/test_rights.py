"""The operator's rights: what the generator grants is all that it needs, and it needs all of it."""

from __future__ import annotations

import pytest

from kapsa.runtime.generate.audit import Audit
from kapsa.runtime.generate.rbac import grants
from tests.behaviour.environments.everything import Everything
from tests.environments.stage import Stage

pytestmark = pytest.mark.virtual_time


async def test_the_rights_are_enough_and_none_is_left_over(stage: Stage) -> None:
    everything = Everything(stage)
    await everything.happens()
    await everything.the_end()
    audit = Audit()
    for recorded in stage.harness.calls:
        audit(recorded.call, recorded.status, 0)
    granted = grants(everything.operator.rights(), namespace=everything.settings.namespace)
    assert audit.missing(granted) == []
    assert not (left_over := audit.surplus(granted)), left_over
