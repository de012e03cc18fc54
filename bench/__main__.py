"""`python -m bench` runs all scenarios and writes results and a page.

`python -m bench SCENARIO [--n N] [--repeat R]` runs one.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from rich.table import Table as RichTable

from bench.console import output, say, warn
from bench.machine import machine, versions
from bench.page import write_page
from bench.plan import Budget, Cell, Step, shortfalls, whole_run
from bench.programs import HERE, compile_kapsa, rust_program
from bench.results import Measurement, PartlyMeasured, Run, tables
from bench.scenarios import Scenario, scenarios
from kapsa.devcluster.real.build import ensure_binaries
from kapsa.runtime import logs


def arguments(available: dict[str, Scenario]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "scenario", nargs="*", help="the scenarios to run (default: all, with results written to files)"
    )
    parser.add_argument("--n", type=int, action="append", help="the size; can be repeated")
    parser.add_argument(
        "--repeat",
        type=int,
        help="the number of repetitions (default: 3 for a complete run, 1 for single scenarios)",
    )
    parser.add_argument(
        "--minutes", type=float, default=39.0, help="the time limit of a complete run (default: 39)"
    )
    parser.add_argument(
        "--output", type=Path, default=HERE, help="the directory for results and page (default: bench)"
    )
    parser.add_argument("--list", action="store_true", help="list the scenarios and exit")
    parser.add_argument(
        "--page", type=Path, metavar="FILE", help="write the page from a results file and exit"
    )
    parser.add_argument(
        "--add",
        type=Path,
        metavar="FILE",
        help="add the measurements of single scenarios to a results file, and write the page again",
    )
    options = parser.parse_args()
    unknown = [name for name in options.scenario if name not in available]
    if unknown:
        parser.error(f"unknown scenario {', '.join(unknown)}; choose from: {', '.join(available)}")
    if (options.repeat is not None and options.repeat < 1) or any(n < 1 for n in options.n or ()):
        parser.error("--n and --repeat must be at least 1")
    if options.add is not None and not (options.scenario and options.add.is_file()):
        parser.error("--add needs the scenarios to measure, and a file with the results of a complete run")
    return options


async def measure(
    steps: Sequence[Step], run: Run, budget: Budget, save: Callable[[Run], object] = lambda _: None
) -> list[Step]:
    """Run the steps and return those that succeeded.

    A failure is recorded with what was measured before it, and the other steps go on. The run is saved after each step.
    """
    done: list[Step] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kapsa-bench-") as directory:
        for number, step in enumerate(steps, 1):
            elapsed = time.monotonic() - began
            if not budget.allows(step, elapsed):
                warn(f"skipped for lack of time: {step.cell}, repetition {step.round}")
                continue
            say(f"[{number}/{len(steps)}, {elapsed / 60:.1f} min] {step.cell}, repetition {step.round}")
            try:
                async with asyncio.timeout(budget.left(elapsed)):
                    measured = await step.cell.work(step.cell.n, Path(directory))
            except Exception as error:
                record_failure(run, step, error)
                keep_logs(Path(directory))
                save(run)
                if interrupted():
                    raise asyncio.CancelledError from error
                continue
            budget.record(step.cell, time.monotonic() - began - elapsed)
            run.measurements += measured
            run.minutes = (time.monotonic() - began) / 60
            done.append(step)
            save(run)
    return done


def record_failure(run: Run, step: Step, error: Exception) -> None:
    """Record why a step failed, and keep what it measured before."""
    warn(f"{step.cell} failed: {error!r}")
    run.left_out.append(f"{step.cell}, repetition {step.round}, failed: {str(error)[:200]}")
    if isinstance(error, PartlyMeasured):
        run.measurements += error.measurements


def keep_logs(directory: Path) -> None:
    """Copy the logs of a step that failed to a directory that stays, and print where."""
    if logs := [*directory.glob("*.log")]:
        kept = Path(tempfile.mkdtemp(prefix="kapsa-bench-logs-"))
        for log in logs:
            shutil.copy(log, kept)
        warn(f"its logs are in {kept}")


def interrupted() -> bool:
    """Return whether the run is to end. The time limit of a step, which has passed by then, does not count."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def show(measurements: list[Measurement]) -> None:
    for (scenario, n), peers in tables(measurements).items():
        table = RichTable(title=f"{scenario}, n={n:,}")
        quantities = list(dict.fromkeys(name for values in peers.values() for name in values))
        table.add_column("")
        for peer in peers:
            table.add_column(peer, justify="right")
        for quantity in quantities:
            cells = [str(values[quantity]) if quantity in values else "" for values in peers.values()]
            table.add_row(quantity, *cells)
        output.print(table)


def without_go(chosen: list[Scenario], run: Run) -> list[Scenario]:
    """Return the scenarios that need no Go, and report the others."""
    missing = [scenario.name for scenario in chosen if scenario.needs_go]
    run.left_out.append(
        f"NO GO TOOLCHAIN: controller-runtime, the load generator and the real control plane are skipped, and with "
        f"them the scenarios {', '.join(missing) or 'that need them'}"
    )
    warn(run.left_out[-1])
    return [scenario for scenario in chosen if not scenario.needs_go]


def build_kube_rs(chosen: list[Scenario], run: Run) -> None:
    """Build kube-rs before the measurements if it takes part, and report why it does not if it cannot be built."""
    if not any(scenario.has_kube_rs for scenario in chosen):
        return
    if reason := rust_program("kube-rs").reason:
        run.left_out.append(f"NO KUBE-RS: it is missing from all tables, since {reason}")
        warn(run.left_out[-1])


async def alone(chosen: list[Scenario], options: argparse.Namespace, run: Run) -> bool:
    cells = []
    for scenario in chosen:
        for n in options.n or (scenario.default_size,):
            cells += [
                Cell(scenario, n),
                *(Cell(scenario, n, late) for late in (scenario.late.get(n),) if late),
            ]
    steps = [Step(cell, number) for cell in cells for number in range(1, (options.repeat or 1) + 1)]
    if options.add is None:
        done = await measure(steps, run, Budget(float("inf")))
    else:
        done = await measure(steps, run, Budget(float("inf")), adding(options.add, options.output))
    show(run.measurements)
    return len(done) == len(steps)


def adding(file: Path, directory: Path) -> Callable[[Run], None]:
    """Return a function that adds what a run has so far to the results that a file has now, and writes the page."""
    earlier = file.read_bytes()

    def add(run: Run) -> None:
        together = msgspec.json.decode(earlier, type=Run)
        together.take(run)
        together.write(file)
        say(f"results: {file}, {write_page(directory, together, scenarios())}")

    return add


async def whole(chosen: list[Scenario], options: argparse.Namespace, run: Run) -> bool:
    directory: Path = options.output
    directory.mkdir(parents=True, exist_ok=True)
    steps = whole_run(chosen, options.repeat or 3, options.n)
    failed_before = len(run.left_out)
    try:
        done = await measure(
            steps, run, Budget(options.minutes * 60), save=lambda run: run.save(directory / "results")
        )
    except asyncio.CancelledError:
        warn(f"interrupted; the measurements so far are in {run.save(directory / 'results')}")
        raise
    failed = len(run.left_out) > failed_before
    run.left_out += shortfalls(steps, done, options.minutes)
    run.complete = True
    show(run.measurements)
    say(f"results: {run.save(directory / 'results')}, {write_page(directory, run, scenarios())}")
    return not failed


async def start(chosen: list[Scenario], options: argparse.Namespace) -> bool:
    task = asyncio.current_task()
    assert task is not None
    # As with Ctrl-C: measurements are kept, and no peer is left running.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    run = Run(
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        machine=machine(),
        versions=versions(),
        load=os.getloadavg()[0],
    )
    compile_kapsa()
    if shutil.which("go") is None:
        chosen = without_go(chosen, run)
    elif any(scenario.needs_go for scenario in chosen):
        await ensure_binaries(("etcd", "kube-apiserver"))  # before the measurements: it is built once
    build_kube_rs(chosen, run)
    return await (alone if options.scenario else whole)(chosen, options, run)


def main() -> int:
    available = scenarios()
    options = arguments(available)
    if options.list:
        for scenario in available.values():
            output.print(f"{scenario.name:24} n={scenario.default_size:<6} {scenario.about}")
        return 0
    if options.page is not None:
        say(str(write_page(options.output, Run.load_from(options.page), available)))
        return 0
    chosen = [available[name] for name in options.scenario] or list(available.values())
    logs.configure(level="warning")
    try:
        return 0 if asyncio.run(start(chosen, options)) else 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130


if __name__ == "__main__":
    sys.exit(main())
