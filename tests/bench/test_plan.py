"""The order of a whole run, its budget, and the bench's command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bench.plan import Budget, Cell, Step, shortfalls, whole_run
from bench.results import Measurement, Run
from bench.scenarios import Extra, Scenario, scenarios

REPOSITORY = Path(__file__).resolve().parents[2]


async def nothing(n: int, directory: Path) -> list[Measurement]:
    return []


def scenario(name: str, *sizes: int, **options: object) -> Scenario:
    return Scenario(name=name, about="", sizes=sizes, run=nothing, **options)  # type: ignore[arg-type]


def told(steps: list[Step]) -> list[str]:
    return [f"{step.round}: {step.cell}" for step in steps]


def test_every_round_does_all_and_what_takes_minutes_last() -> None:
    steps = whole_run([scenario("a", 1, 8000), scenario("b", 2)], repeat=2)
    assert told(steps) == ["1: b n=2", "1: a n=1", "1: a n=8,000", "2: b n=2", "2: a n=1", "2: a n=8,000"]


def test_what_only_explains_is_done_once() -> None:
    steps = whole_run([scenario("a", 1, once={1: Extra("another way", nothing)})], repeat=3)
    assert told(steps) == ["1: a n=1", "1: a n=1 (another way)", "2: a n=1", "3: a n=1"]


def test_what_can_best_be_spared_comes_after_all_rounds() -> None:
    steps = whole_run([scenario("a", 1, late={1: Extra("the slowest", nothing)}), scenario("b", 1)], repeat=2)
    late = ["1: a n=1 (the slowest)", "2: a n=1 (the slowest)"]
    assert told(steps) == ["1: a n=1", "1: b n=1", "2: a n=1", "2: b n=1", *late]


def test_a_step_that_would_not_end_in_time_is_left_out_and_said() -> None:
    cell = Cell(scenario("slow", 10), 10)
    steps = [Step(cell, 1), Step(cell, 2), Step(cell, 3)]
    budget = Budget(seconds=300)
    budget.note(cell, 120)
    assert budget.allows(steps[1], elapsed=180)
    assert not budget.allows(steps[2], elapsed=181)
    assert shortfalls(steps, steps[:2], minutes=5) == [
        "slow n=10: measured 2 of 3 times, to end within 5 minutes"
    ]


def test_each_scenario_of_the_whole_run_has_a_line_of_its_own() -> None:
    for name, known in scenarios().items():
        assert name == known.name
        assert known.about
        assert known.default_size > 0


def bench(*arguments: str, path: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", *arguments]
    environment = {**os.environ, "PATH": path}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, cwd=REPOSITORY
    )


def test_without_go_what_needs_it_is_left_out_loudly_and_the_rest_is_measured(tmp_path: Path) -> None:
    done = bench("noop", "status-writes", "--n", "20", path=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "NO GO TOOLCHAIN" in done.stderr
    assert "status-writes" in done.stderr
    assert "reconciles per CPU s" in done.stdout
    assert "wall s" not in done.stdout


def test_a_scenario_that_is_not_there_names_those_that_are() -> None:
    done = bench("nope", path=os.environ["PATH"])
    assert done.returncode == 2
    assert "no scenario nope; there are: status-writes, owned-children" in done.stderr


def test_kept_results_make_the_page_anew(tmp_path: Path) -> None:
    run = Run(date="2026-01-02", machine={}, versions={}, complete=True)
    run.measurements.append(Measurement("at-rest", "kapsa", 1, {"RSS MB": 48.0}))
    kept = run.save(tmp_path)
    done = bench("--page", str(kept), "--output", str(tmp_path), path=os.environ["PATH"])
    assert done.returncode == 0, done.stderr
    assert (
        "| at-rest | 1 | the myapp operator at rest, MB | ≤ 50 | 48 | holds |"
        in (tmp_path / "RESULTS.md").read_text()
    )
