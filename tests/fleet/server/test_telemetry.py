"""The metrics of a manager that has just started."""

from __future__ import annotations

from prometheus_client import generate_latest

from kapsa.fleet.server.telemetry import build_telemetry
from tests.fleet.seed_metrics import seed_values


def test_a_manager_shows_each_metric_of_the_specification_before_anything_happens() -> None:
    """Prometheus sees no increase in a series that begins with its first event."""
    shown = seed_values(generate_latest(build_telemetry().collectors).decode())
    assert set(shown.values()) == {0.0}
    assert len(shown) == 14
