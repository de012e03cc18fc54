"""Measurements as tables, verdicts, the page and its plots."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.page import write_page
from bench.results import Measurement, Run, Spread, shown, tables
from bench.scenarios import scenarios
from bench.targets import TARGETS, judge


def one(peer: str, n: int = 2000, **values: float) -> Measurement:
    named = {name.replace("_", " "): value for name, value in values.items()}
    return Measurement("status-writes", peer, n, named)


def a_run(*measurements: Measurement) -> Run:
    return Run(
        date="2026-01-02", machine={"cores": "2"}, versions={"kapsa": "1"}, measurements=[*measurements]
    )


def test_repetitions_become_a_median_with_its_spread() -> None:
    table = tables([one("kapsa", wall_s=value) for value in (3.0, 1.0, 2.0)])["status-writes", 2000]
    assert table["kapsa"]["wall s"] == Spread(median=2.0, low=1.0, high=3.0, count=3)
    assert str(table["kapsa"]["wall s"]) == "2 (1–3)"


def test_smaller_sizes_come_first_whenever_they_were_measured() -> None:
    by_size = tables(
        [one("kapsa", 8000, wall_s=1), one("kapsa", 500, wall_s=1), one("kapsa", 2000, wall_s=1)]
    )
    assert [n for _, n in by_size] == [500, 2000, 8000]


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.12345, "0.123"), (45.67, "45.7"), (12345.6, "12,346")]
)
def test_numbers_are_shown_with_three_figures(value: float, text: str) -> None:
    assert shown(value) == text


def verdict_of(text: str, run: Run) -> str:
    (word,) = [
        verdict.word
        for verdict in judge(tables(run.measurements))
        if verdict.target.text == text and verdict.target.scenario == "status-writes"
    ]
    return word


def test_a_target_holds_is_missed_or_was_not_measured() -> None:
    run = a_run(
        one("kapsa", wall_s=6.0, CPU_s=1.0),
        one("controller-runtime", wall_s=5.0, CPU_s=1.0),
        one("kopf", wall_s=30.0, CPU_s=11.0),
    )
    assert verdict_of("wall time of kopf over Kapsa's", run) == "holds"
    assert verdict_of("wall time over controller-runtime's", run) == "**MISSED**"
    assert verdict_of("write rate over the bare load generator's", run) == "not measured"


def test_every_target_is_for_a_size_that_a_complete_run_measures() -> None:
    available = scenarios()
    assert [target for target in TARGETS if target.n not in available[target.scenario].sizes] == []


def test_the_page_has_ratios_targets_and_omissions(tmp_path: Path) -> None:
    run = a_run(
        *(one("kapsa", n, wall_s=n / 400, CPU_s=1.0) for n in (500, 2000)),
        *(one("controller-runtime", n, wall_s=n / 800, CPU_s=0.5) for n in (500, 2000)),
    )
    run.left_out = ["kopf: not there"]
    text = write_page(tmp_path, run, scenarios()).read_text()
    assert "| wall s | 5 | 2.5, **×0.5** |" in text
    assert "- kopf: not there" in text
    assert "| status-writes | 2,000 | wall time over controller-runtime's | ≤ 1.15 | 2 | **MISSED** |" in text
    plot = tmp_path / "results" / "status-writes-wall-s.svg"
    assert f"](results/{plot.name})" in text
    lines = ElementTree.parse(plot).getroot().findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 2


def test_specified_limits_are_shown_next_to_the_values(tmp_path: Path) -> None:
    values = {"GET /operators ms p50": 12.0, "GET /operators ms p99": 40.0}
    run = a_run(
        Measurement("fleet", "one replica", 100, values), Measurement("fleet", "three replicas", 100, values)
    )
    text = write_page(tmp_path, run, scenarios()).read_text()
    assert "| | one replica | three replicas | specified | ours |" in text
    assert "| GET /operators ms p99 | 40 | 40, **×1** | ≤ 100 | ≤ 50 |" in text
    assert "| GET /operators ms p50 | 12 | 12, **×1** |  |  |" in text
    assert "| fleet | 100 | GET /operators ms p99, one replica | ≤ 50 | 40 | holds |" in text


def test_growth_is_plotted_to_a_file_with_a_plain_name(tmp_path: Path) -> None:
    points = [Measurement("fleet", "one replica", n, {"GET /operators ms p99": 1.0 * n}) for n in (25, 100)]
    text = write_page(tmp_path, a_run(*points), scenarios()).read_text()
    assert "](results/fleet-get-operators-ms-p99.svg)" in text
    assert (tmp_path / "results" / "fleet-get-operators-ms-p99.svg").is_file()


def test_a_later_run_replaces_the_same_scenario_and_size_only(tmp_path: Path) -> None:
    whole = a_run(one("kapsa", 500, wall_s=1.0), one("kapsa", 2000, wall_s=1.0))
    later = a_run(one("kapsa", 2000, wall_s=9.0))
    later.date, later.load, later.left_out = "2026-02-03", 0.4, ["fleet n=100, repetition 1, failed"]
    whole.take(later)
    walls = [(one.n, one.values["wall s"]) for one in whole.measurements]
    assert walls == [(500, 1.0), (2000, 9.0)]
    text = write_page(tmp_path, whole, scenarios()).read_text()
    assert "Measured separately: status-writes n=2,000 on 2026-02-03, load before 0.4." in text
    assert "- fleet n=100, repetition 1, failed" in text


def test_what_a_later_run_measured_is_no_longer_reported_as_missing() -> None:
    whole, later = a_run(), a_run(one("kapsa", 2, wall_s=1.0))
    reason = "not measured, for lack of time (39 minutes)"
    stays = [f"status-writes n=2,000: {reason}", f"status-writes n=25: {reason}", f"noop n=2: {reason}"]
    whole.left_out = [
        f"status-writes n=2: {reason}",
        "status-writes n=2, repetition 1, failed: a manager ended",
        f"status-writes n=2 (kopf): {reason}",
        *stays,
    ]
    whole.take(later)
    assert whole.left_out == stays


def test_a_later_run_that_measured_nothing_adds_only_its_reasons() -> None:
    whole, later = a_run(), a_run()
    later.left_out = ["fleet n=25, repetition 1, failed: a manager ended"]
    whole.take(later)
    assert (whole.separate, whole.left_out) == ([], later.left_out)


def test_a_peer_that_was_measured_less_often_is_marked(tmp_path: Path) -> None:
    run = a_run(one("kapsa", wall_s=1.0), one("kapsa", wall_s=2.0), one("kopf", wall_s=9.0))
    assert "| | kapsa | kopf (1 of 2) |" in write_page(tmp_path, run, scenarios()).read_text()


def test_an_incomplete_run_never_replaces_a_complete_one(tmp_path: Path) -> None:
    whole = a_run(one("kapsa", wall_s=1.0))
    whole.complete = True
    kept = whole.save(tmp_path)
    early = a_run(one("kapsa", wall_s=2.0))
    partial = early.save(tmp_path)
    assert partial != kept
    assert Run.load_from(kept).measurements == whole.measurements
    early.complete = True
    assert early.save(tmp_path) == kept
    assert not partial.exists()
