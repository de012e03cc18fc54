"""Testing operators: an embedded cluster per test, virtual time, recorded calls, faults and crashes on command.

- `harness`: `Harness` runs operators, `settle()` waits until nothing is left to do, assertions say what is there.
- `transport`: `InProcessTransport` carries a client's requests into a devcluster without sockets.
- `scenario`: a story played on a cluster of its own, and how it ends.
- `crashes`: `crash_at_every_write` kills the operator at each write and compares the ending.
- `sweeps`: `disturb_every_call` and `disturb_every_watch` let each request and event go wrong in every way.
- `absences`: `miss_every_step` and `restart_in_every_past` hide changes from the operator, or show it an old world.
- `sweep_report`: a `SweepReport` lists the points that ended differently; a `Sample` runs a seeded choice of them.
- `plugin`: the pytest fixtures, by `pytest_plugins = ["kapsa.runtime.testing.plugin"]`.
"""

from kapsa.devcluster import DevCluster, FaultPlan, VirtualClock, VirtualTimeLoop
from kapsa.devcluster.clock import run_on_virtual_time as run_on_virtual_time
from kapsa.runtime.testing._absences import miss_every_step, restart_in_every_past
from kapsa.runtime.testing._background import background_loop
from kapsa.runtime.testing._crashes import CRASH_MOMENTS, CrashMoment, CrashPoint, crash_at_every_write
from kapsa.runtime.testing._harness import Harness, NotSettledError, RecordedCall
from kapsa.runtime.testing._scenario import Ending, Scenario
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
    "Ending",
    "FaultPlan",
    "Harness",
    "InProcessTransport",
    "NotSettledError",
    "RecordedCall",
    "Sample",
    "Scenario",
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
