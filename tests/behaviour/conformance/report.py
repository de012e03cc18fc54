"""The results of all test processes, written to docs/devcluster-conformance.md after a complete run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.behaviour.conformance.divergences import DIVERGENCES, ON_THE_WIRE

PAGE = Path(__file__).resolve().parents[3] / "docs" / "devcluster-conformance.md"
HEAD = """# Devcluster conformance

`make test-real` writes this page; do not edit it. Each case is sent to the embedded engine and to a real kube-apiserver. The status codes, the relevant headers, the bodies and the watch streams are compared, with uids, revisions and times masked. The cases are in `tests/behaviour/conformance`.

"""


class ConformanceRecorder:
    """A pytest plugin that collects the results of all processes in the one that reports."""

    def __init__(self) -> None:
        self.cases: dict[str, list[Any]] = {}
        """The last result of each test: a rerun reports the results before it again."""
        self.programs: list[list[Any]] = []
        self.mutations: list[list[Any]] = []
        self.failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call":
            return
        for name, value in report.user_properties:
            if name == "conformance":
                self.cases[report.nodeid] = list(value)  # type: ignore[call-overload]
                self.failed |= report.failed
            elif name == "programs":
                self.programs.append(list(value))  # type: ignore[call-overload]
            elif name == "mutations":
                self.mutations.append(list(value))  # type: ignore[call-overload]

    def pytest_sessionfinish(self) -> None:
        generated = [(f"histories of {kind}", played, played) for kind, played in sorted(self.programs)]
        generated += [
            (f"broken objects of {kinds} kinds", sent, sent - open_) for kinds, sent, open_ in self.mutations
        ]
        write_report(PAGE, [*self.cases.values()], generated, whole=not self.failed)


def write_report(page: Path, cases: Sequence[Any], generated: Sequence[Any], *, whole: bool) -> None:
    """Write the page after a complete run; a partial or failed one does not measure conformance."""
    if not whole or len(generated) < 4 or len(cases) < 300:
        return
    topics = Counter(topic for topic, _, _ in cases)
    matches = Counter(topic for topic, _, outcome in cases if outcome == "matches")
    lines = ["| topic | cases | match |", "|---|---|---|"]
    lines += [f"| {topic} | {topics[topic]} | {matches[topic]} |" for topic in sorted(topics)]
    lines += [f"| **hand-written** | **{len(cases)}** | **{matches.total()}** |"]
    lines += [f"| generated: {name} | {sent} | {matching} |" for name, sent, matching in generated]
    lines += ["", "## Known divergences", ""]
    lines += [f"- *{name}*: {reason}" for name, reason in sorted((DIVERGENCES | ON_THE_WIRE).items())] or [
        "None."
    ]
    page.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")
