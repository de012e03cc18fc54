"""The pair of engines for this directory's tests, and the page that a whole run writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.devcluster.conformance.pair import Pair, engines
from tests.devcluster.conformance.report import write_report

PAGE = Path(__file__).resolve().parents[3] / "docs" / "devcluster-conformance.md"


@pytest.fixture(scope="session")
def pair() -> Iterator[Pair]:
    """Both engines, one pair a test process."""
    with engines() as both:
        yield both


class Recorder:
    """Collects what the tests of all processes recorded, in the process that reports."""

    def __init__(self) -> None:
        self.cases: list[list[Any]] = []
        self.programs: list[list[Any]] = []
        self.failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call":
            return
        for name, value in report.user_properties:
            if name == "conformance":
                self.cases.append(list(value))  # type: ignore[call-overload]
                self.failed |= report.failed
            elif name == "programs":
                self.programs.append(list(value))  # type: ignore[call-overload]

    def pytest_sessionfinish(self) -> None:
        write_report(PAGE, self.cases, self.programs, whole=not self.failed)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(), "conformance-recorder")
