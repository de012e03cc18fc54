"""Health: three states of evidence, what each check makes of what was read, and what that means for a gate.

- `verdicts`: evidence, checks, and the health of an operator on a cluster.
- `gates`: the checks of a new revision, and the decision of its gate.
- `workloads`, `webhooks`, `resources`, `leases`: the judgement of each part of an operator.
- `memory`: what one reading leaves for the next, and the baseline that an upgrade is judged against.
- `certificates`: certificates of webhooks that expire soon.
- `owned_fields`: who has set which fields of an object.
- `drift`: fields of a release that somebody else has changed. It is shown, and judged by nobody.
- `templates`: pod templates that are not as they were approved. They pass no gate.
- `judgement`: all parts of an operator together.
"""

from kapsa.fleet.domain.health.gates import (
    FAILED_CHECKS_LIMIT,
    GateProgress,
    GateVerdict,
    accept,
    begin_of_soak,
    judge_gate,
    record_check,
    record_unknown,
)
from kapsa.fleet.domain.health.verdicts import CheckKind, Evidence, HealthCheck, OperatorHealth, combined

__all__ = [
    "FAILED_CHECKS_LIMIT",
    "CheckKind",
    "Evidence",
    "GateProgress",
    "GateVerdict",
    "HealthCheck",
    "OperatorHealth",
    "accept",
    "begin_of_soak",
    "combined",
    "judge_gate",
    "record_check",
    "record_unknown",
]
