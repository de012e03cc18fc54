"""The order of a complete run, its budget, and the command."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from bench.__main__ import adding, arguments, measure
from bench.plan import Budget, Cell, Step, shortfalls, whole_run
from bench.results import Measurement, PartlyMeasured, Run
from bench.scenarios import Extra, Scenario, scenarios

REPOSITORY = Path(__file__).resolve().parents[2]


async def nothing(n: int, directory: Path) -> list[Measurement]:
    return []


def scenario(name: str, *sizes: int, **options: object) -> Scenario:
    return Scenario(name=name, about="", sizes=sizes, run=nothing, **options)  # type: ignore[arg-type]


def descriptions(steps: list[Step]) -> list[str]:
    return [f"{step.round}: {step.cell}" for step in steps]


def test_each_round_has_all_cells_and_the_slowest_come_last() -> None:
    steps = whole_run([scenario("a", 1, 8000), scenario("b", 2)], repeat=2)
    assert descriptions(steps) == [
        "1: b n=2",
        "1: a n=1",
        "1: a n=8,000",
        "2: b n=2",
        "2: a n=1",
        "2: a n=8,000",
    ]


def test_explanatory_work_is_done_once() -> None:
    steps = whole_run([scenario("a", 1, once={1: Extra("another way", nothing)})], repeat=3)
    assert descriptions(steps) == ["1: a n=1", "1: a n=1 (another way)", "2: a n=1", "3: a n=1"]


def test_the_least_important_work_comes_after_all_rounds() -> None:
    steps = whole_run([scenario("a", 1, late={1: Extra("the slowest", nothing)}), scenario("b", 1)], repeat=2)
    late = ["1: a n=1 (the slowest)", "2: a n=1 (the slowest)"]
    assert descriptions(steps) == ["1: a n=1", "1: b n=1", "2: a n=1", "2: b n=1", *late]


def test_a_step_that_would_not_end_in_time_is_skipped_and_reported() -> None:
    cell = Cell(scenario("slow", 10), 10)
    steps = [Step(cell, 1), Step(cell, 2), Step(cell, 3)]
    budget = Budget(seconds=300)
    budget.record(cell, 120)
    assert budget.allows(steps[1], elapsed=180)
    assert not budget.allows(steps[2], elapsed=181)
    assert shortfalls(steps, steps[:2], minutes=5) == [
        "slow n=10: measured 2 of 3 times, for lack of time (5 minutes)"
    ]


def test_what_takes_too_long_for_all_rounds_comes_last_and_as_often_as_it_says() -> None:
    steps = whole_run([scenario("slow", 2, 1, rounds=1), scenario("a", 1)], repeat=2)
    assert descriptions(steps) == ["1: a n=1", "2: a n=1", "1: slow n=2", "1: slow n=1"]
    assert len(whole_run([scenario("slow", 1, rounds=3)], repeat=2)) == 2


def test_a_step_that_was_not_measured_before_takes_as_long_as_its_scenario_expects() -> None:
    step = Step(Cell(scenario("slow", 10, expected_seconds=200), 10), 1)
    assert Budget(seconds=300).allows(step, elapsed=100)
    assert not Budget(seconds=300).allows(step, elapsed=101)


ONE_PEER = Measurement("slow", "one replica", 1, {"wall s": 1.0})


async def fails_halfway(n: int, directory: Path) -> list[Measurement]:
    raise PartlyMeasured([ONE_PEER], RuntimeError("a manager ended"))


async def hangs_halfway(n: int, directory: Path) -> list[Measurement]:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError as error:
        raise PartlyMeasured([ONE_PEER], error) from error
    return []


async def test_what_was_measured_before_a_failure_is_kept_and_the_rest_is_reported(tmp_path: Path) -> None:
    failing = Step(Cell(Scenario(name="slow", about="", sizes=(1,), run=fails_halfway), 1), 1)
    other = Step(Cell(scenario("a", 1), 1), 1)
    run = Run(date="2026-01-02", machine={}, versions={})
    done = await measure([failing, other], run, Budget(float("inf")), save=lambda run: run.save(tmp_path))
    assert done == [other], "a step that failed halfway counts as done"
    assert run.measurements == [ONE_PEER]
    reported = "slow n=1, repetition 1, failed: measured one replica and nothing after: a manager ended"
    assert run.left_out == [reported]
    assert Run.load_from(tmp_path / "2026-01-02.partial.json").measurements == [ONE_PEER]


async def test_what_was_measured_before_the_end_of_the_time_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Step(Cell(Scenario(name="slow", about="", sizes=(1,), run=hangs_halfway), 1), 1)
    budget = Budget(1000)
    monkeypatch.setattr(budget, "left", lambda elapsed: 0.01)
    run = Run(date="2026-01-02", machine={}, versions={})
    assert await measure([step], run, budget) == []
    assert run.measurements == [ONE_PEER]


async def test_a_run_that_is_interrupted_halfway_through_a_step_ends() -> None:
    step = Step(Cell(Scenario(name="slow", about="", sizes=(1,), run=hangs_halfway), 1), 1)
    run = Run(date="2026-01-02", machine={}, versions={})
    task = asyncio.create_task(measure([step, step], run, Budget(float("inf"))))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 5)
    assert run.measurements == [ONE_PEER]


async def test_added_sizes_are_saved_one_by_one_so_that_an_interruption_loses_only_its_own(
    tmp_path: Path,
) -> None:
    async def measures(n: int, directory: Path) -> list[Measurement]:
        if n == 2:
            await asyncio.Event().wait()
        return [Measurement("slow", "kapsa", n, {"wall s": 1.0})]

    file = tmp_path / "2026-01-02.json"
    earlier = Run(date="2026-01-02", machine={}, versions={}, left_out=["slow n=1: not measured"])
    earlier.measurements = [Measurement("noop", "kapsa", 1, {"wall s": 2.0})]
    earlier.write(file)
    slow = Scenario(name="slow", about="", sizes=(1, 2), run=measures)
    later = Run(date="2026-02-03", machine={}, versions={})
    steps = [Step(Cell(slow, n), 1) for n in (1, 2)]
    task = asyncio.create_task(measure(steps, later, Budget(float("inf")), adding(file, tmp_path)))
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    saved = Run.load_from(file)
    assert [(one.scenario, one.n) for one in saved.measurements] == [("noop", 1), ("slow", 1)]
    assert saved.left_out == []
    assert "## slow" in (tmp_path / "RESULTS.md").read_text()
    assert sorted(tmp_path.glob("*.json*")) == [file]


async def test_the_logs_of_a_step_that_fails_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fails(n: int, directory: Path) -> list[Measurement]:
        (directory / "manager-1.log").write_text("out of memory")
        raise RuntimeError("a manager ended")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    step = Step(Cell(Scenario(name="slow", about="", sizes=(1,), run=fails), 1), 1)
    await measure([step], Run(date="2026-01-02", machine={}, versions={}), Budget(float("inf")))
    (kept,) = tmp_path.glob("*/*.log")
    assert kept.read_text() == "out of memory"
    printed = capsys.readouterr()
    assert kept.parent.name in (printed.out + printed.err).replace("\n", "")


def test_each_scenario_has_a_description() -> None:
    for name, each in scenarios().items():
        assert name == each.name
        assert each.about
        assert each.default_size > 0


def bench(*arguments: str, path: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", *arguments]
    environment = {**os.environ, "PATH": path}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, cwd=REPOSITORY
    )


@pytest.mark.long
def test_without_go_the_scenarios_that_need_it_are_skipped_and_reported(tmp_path: Path) -> None:
    done = bench("noop", "status-writes", "--n", "20", path=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "NO GO TOOLCHAIN" in done.stderr
    assert "status-writes" in done.stderr
    assert "reconciles per CPU s" in done.stdout
    assert "wall s" not in done.stdout


def test_an_unknown_scenario_is_reported_with_the_available_ones() -> None:
    done = bench("nope", path=os.environ["PATH"])
    assert done.returncode == 2
    assert "unknown scenario nope; choose from: status-writes, owned-children" in done.stderr


@pytest.mark.parametrize("names", [["noop"], []])
def test_measurements_are_added_to_a_file_that_exists_only(
    names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", *names, "--add", str(tmp_path / "missing.json")])
    with pytest.raises(SystemExit):
        arguments(scenarios())
    printed = capsys.readouterr().err
    assert "--add needs the scenarios to measure, and a file with the results of a complete run" in printed


def test_the_page_is_written_from_stored_results(tmp_path: Path) -> None:
    run = Run(date="2026-01-02", machine={}, versions={}, complete=True)
    run.measurements.append(Measurement("at-rest", "kapsa", 1, {"RSS MB": 28.0}))
    kept = run.save(tmp_path)
    done = bench("--page", str(kept), "--output", str(tmp_path), path=os.environ["PATH"])
    assert done.returncode == 0, done.stderr
    assert (
        "| at-rest | 1 | the myapp operator at rest, MB | ≤ 30 | 28 | holds |"
        in (tmp_path / "RESULTS.md").read_text()
    )
