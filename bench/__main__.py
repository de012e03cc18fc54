"""`python -m bench`: everything, kept as results and a page. `python -m bench SCENARIO [--n N] [--repeat R]`: one alone."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.table import Table as RichTable

from bench.console import output, say, say_loudly
from bench.page import write_page
from bench.peer_programs import HERE, compile_kapsa, machine, versions
from bench.plan import Budget, Cell, Step, shortfalls, whole_run
from bench.results import Measurement, Run, tables
from bench.scenarios import Scenario, scenarios
from kapsa.devcluster.real.build import ensure_binaries
from kapsa.runtime import logs


def arguments(known: dict[str, Scenario]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("scenario", nargs="*", help="one or more; all, kept as results, when none is named")
    parser.add_argument("--n", type=int, action="append", help="size; may be repeated")
    parser.add_argument("--repeat", type=int, help="repetitions; 3 for a whole run, 1 for a scenario alone")
    parser.add_argument("--minutes", type=float, default=39.0, help="what a whole run may take (default: 39)")
    parser.add_argument(
        "--output", type=Path, default=HERE, help="where results and page go (default: bench)"
    )
    parser.add_argument("--list", action="store_true", help="tell the scenarios and end")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the page from kept results and end")
    given = parser.parse_args()
    unknown = [name for name in given.scenario if name not in known]
    if unknown:
        parser.error(f"no scenario {', '.join(unknown)}; there are: {', '.join(known)}")
    if (given.repeat is not None and given.repeat < 1) or any(n < 1 for n in given.n or ()):
        parser.error("--n and --repeat must be at least 1")
    return given


async def measure(steps: Sequence[Step], run: Run, budget: Budget, keep: Path | None) -> list[Step]:
    """Do the steps; what one that failed said is kept, and the others go on. Returns what was done."""
    done: list[Step] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kapsa-bench-") as directory:
        for number, step in enumerate(steps, 1):
            elapsed = time.monotonic() - began
            if not budget.allows(step, elapsed):
                say_loudly(f"left out for want of time: {step.cell}, repetition {step.round}")
                continue
            say(f"[{number}/{len(steps)}, {elapsed / 60:.1f} min] {step.cell}, repetition {step.round}")
            try:
                async with asyncio.timeout(budget.left(elapsed)):
                    found = await step.cell.work(step.cell.n, Path(directory))
            except Exception as error:
                say_loudly(f"{step.cell} failed: {error!r}")
                run.left_out.append(f"{step.cell}, repetition {step.round}, failed: {str(error)[:200]}")
                continue
            budget.note(step.cell, time.monotonic() - began - elapsed)
            run.measurements += found
            run.minutes = (time.monotonic() - began) / 60
            done.append(step)
            if keep is not None:
                run.save(keep)
    return done


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
    """What can be measured where there is no Go; the rest is named, loudly."""
    missing = [scenario.name for scenario in chosen if scenario.needs_go]
    run.left_out.append(
        f"NO GO TOOLCHAIN: controller-runtime, the load generator and the real control plane are left out, and with "
        f"them the scenarios {', '.join(missing) or 'that need them'}"
    )
    say_loudly(run.left_out[-1])
    return [scenario for scenario in chosen if not scenario.needs_go]


async def alone(chosen: list[Scenario], given: argparse.Namespace, run: Run) -> bool:
    cells = []
    for scenario in chosen:
        for n in given.n or (scenario.default_size,):
            cells += [
                Cell(scenario, n),
                *(Cell(scenario, n, late) for late in (scenario.late.get(n),) if late),
            ]
    steps = [Step(cell, number) for cell in cells for number in range(1, (given.repeat or 1) + 1)]
    done = await measure(steps, run, Budget(float("inf")), keep=None)
    show(run.measurements)
    return len(done) == len(steps)


async def whole(chosen: list[Scenario], given: argparse.Namespace, run: Run) -> bool:
    directory: Path = given.output
    directory.mkdir(parents=True, exist_ok=True)
    steps = whole_run(chosen, given.repeat or 3, given.n)
    failed_before = len(run.left_out)
    try:
        done = await measure(steps, run, Budget(given.minutes * 60), keep=directory / "results")
    except asyncio.CancelledError:
        say_loudly(f"interrupted; what was measured so far is in {run.save(directory / 'results')}")
        raise
    failed = len(run.left_out) > failed_before
    run.left_out += shortfalls(steps, done, given.minutes)
    run.complete = True
    show(run.measurements)
    say(f"results: {run.save(directory / 'results')}, {write_page(directory, run, scenarios())}")
    return not failed


async def start(chosen: list[Scenario], given: argparse.Namespace) -> bool:
    task = asyncio.current_task()
    assert task is not None
    # As Ctrl-C does it: what was measured is kept, and no peer is left running.
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
        await ensure_binaries(("etcd", "kube-apiserver"))  # outside the clock: it is built once and kept
    return await (alone if given.scenario else whole)(chosen, given, run)


def main() -> int:
    known = scenarios()
    given = arguments(known)
    if given.list:
        for scenario in known.values():
            output.print(f"{scenario.name:24} n={scenario.default_size:<6} {scenario.about}")
        return 0
    if given.page is not None:
        say(str(write_page(given.output, Run.load_from(given.page), known)))
        return 0
    chosen = [known[name] for name in given.scenario] or list(known.values())
    logs.configure(level="warning")
    try:
        return 0 if asyncio.run(start(chosen, given)) else 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130


if __name__ == "__main__":
    sys.exit(main())
