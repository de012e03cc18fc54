"""The metrics and traces of a manager that has just started."""

from __future__ import annotations

import subprocess
import sys

import pytest
from prometheus_client import generate_latest

from kapsa.fleet.server.telemetry import build_telemetry
from tests.fleet.seed_metrics import seed_values

LOADED = """
import sys
import kapsa.cli.fleet.command, kapsa.fleet.server.lifecycle
from kapsa.fleet.server.telemetry import build_telemetry
build_telemetry()
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""


def test_a_manager_shows_each_metric_of_the_specification_before_anything_happens() -> None:
    """Prometheus sees no increase in a series that begins with its first event."""
    shown = seed_values(generate_latest(build_telemetry().collectors).decode())
    assert set(shown.values()) == {0.0}
    assert len(shown) == 14


@pytest.mark.long
def test_a_manager_that_exports_no_spans_does_not_load_opentelemetry() -> None:
    command = [sys.executable, "-c", LOADED]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "[]"
