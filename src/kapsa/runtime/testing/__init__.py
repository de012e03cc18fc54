"""Testing operators: an embedded cluster per test, virtual time, recorded calls, faults and crashes on command.

- `harness`: `Harness` runs operators, `settle()` waits until nothing is left to do, assertions say what is there.
- `transport`: `InProcessTransport` carries a client's requests into a devcluster without sockets.
- `crashes`: `crash_at_every_write` kills the operator at each write and compares how it ends.
- `plugin`: the pytest fixtures, by `pytest_plugins = ["kapsa.runtime.testing.plugin"]`.
"""

from kapsa.devcluster import DevCluster, FaultPlan, VirtualClock, VirtualTimeLoop
from kapsa.devcluster.clock import run as run_on_virtual_time
from kapsa.runtime.testing.crashes import CrashPoint, CrashReport, Scenario, crash_at_every_write
from kapsa.runtime.testing.harness import Harness, NotSettledError, RecordedCall
from kapsa.runtime.testing.transport import InProcessTransport

__all__ = [
    "CrashPoint",
    "CrashReport",
    "DevCluster",
    "FaultPlan",
    "Harness",
    "InProcessTransport",
    "NotSettledError",
    "RecordedCall",
    "Scenario",
    "VirtualClock",
    "VirtualTimeLoop",
    "crash_at_every_write",
    "run_on_virtual_time",
]
