"""Tools for testing operators: an embedded cluster per test, virtual time, recorded calls, injected faults.

- `Harness` runs operators on a devcluster; `settle()` waits until nothing is left to do, and assertions check
  the result.
- `InProcessTransport` carries a client's requests into a devcluster without sockets.
- `Scenario` describes steps that sweeps run again and again, each time on a cluster of its own.
- `crash_at_every_write` kills the operator at each write and compares the outcome.
- `disturb_every_call` and `disturb_every_watch` make each request and each event fail in every way.
- `miss_every_step` and `restart_in_every_past` hide changes from the operator, or make its reads lag behind.
- `SweepReport` lists the points whose outcome differed; a `Sample` runs a seeded choice of the points.
- `kapsa.runtime.testing.plugin` provides the pytest fixtures: `pytest_plugins =
  ["kapsa.runtime.testing.plugin"]`.
"""

from kapsa.devcluster import DevCluster, FaultPlan, VirtualClock, VirtualTimeLoop, run_on_virtual_time
from kapsa.runtime.testing._absences import miss_every_step, restart_in_every_past
from kapsa.runtime.testing._background import background_loop
from kapsa.runtime.testing._crashes import CRASH_MOMENTS, CrashMoment, CrashPoint, crash_at_every_write
from kapsa.runtime.testing._harness import Harness, NotSettledError, RecordedCall
from kapsa.runtime.testing._scenario import Scenario, ScenarioOutcome
from kapsa.runtime.testing._sweep_report import Sample, SweepReport
from kapsa.runtime.testing._sweeps import CALL_FAULTS, WATCH_FAULTS, disturb_every_call, disturb_every_watch
from kapsa.runtime.testing._transport import InProcessTransport
from kapsa.runtime.webhooks.certificates import issue_certificate, make_authority

__all__ = [
    "CALL_FAULTS",
    "CRASH_MOMENTS",
    "WATCH_FAULTS",
    "CrashMoment",
    "CrashPoint",
    "DevCluster",
    "FaultPlan",
    "Harness",
    "InProcessTransport",
    "NotSettledError",
    "RecordedCall",
    "Sample",
    "Scenario",
    "ScenarioOutcome",
    "SweepReport",
    "VirtualClock",
    "VirtualTimeLoop",
    "background_loop",
    "crash_at_every_write",
    "disturb_every_call",
    "disturb_every_watch",
    "issue_certificate",
    "make_authority",
    "miss_every_step",
    "restart_in_every_past",
    "run_on_virtual_time",
]
