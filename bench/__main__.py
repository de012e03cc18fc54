"""`python -m bench [SCENARIO ...] [--n N] [--repeat R]`: measure, print, and keep a whole run's results."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.table import Table as RichTable

from bench.lab import HERE, machine
from bench.page import write_page
from bench.results import Measurement, Run, tables
from bench.scenarios import Scenario, scenarios

console = Console(width=160 if not sys.stdout.isatty() else None)


def arguments(known: dict[str, Scenario]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "scenario", nargs="*", help=f"one or more of: {', '.join(known)}; all when none is named"
    )
    parser.add_argument("--n", type=int, help="size; each scenario's own sizes when not given")
    parser.add_argument("--repeat", type=int, default=3, help="how often each is measured (default: 3)")
    parser.add_argument("--list", action="store_true", help="tell the scenarios and end")
    given = parser.parse_args()
    unknown = [name for name in given.scenario if name not in known]
    if unknown:
        parser.error(f"no scenario {', '.join(unknown)}; there are: {', '.join(known)}")
    if given.repeat < 1 or (given.n is not None and given.n < 1):
        parser.error("--n and --repeat must be at least 1")
    return given


async def measure(chosen: list[Scenario], n: int | None, repeat: int, run: Run) -> None:
    with tempfile.TemporaryDirectory(prefix="kapsa-bench-") as directory:
        for scenario in chosen:
            for size in (n,) if n is not None else scenario.sizes:
                for turn in range(repeat):
                    started = time.monotonic()
                    console.print(f"[bold]{scenario.name}[/bold] n={size} ({turn + 1}/{repeat}) ...", end=" ")
                    found = await scenario.run(size, Path(directory))
                    console.print(f"{time.monotonic() - started:.0f} s")
                    run.measurements += found
                show([one for one in run.measurements if one.scenario == scenario.name and one.n == size])


def show(measurements: list[Measurement]) -> None:
    for (scenario, n), peers in tables(measurements).items():
        table = RichTable(title=f"{scenario}, n={n}")
        quantities = list(dict.fromkeys(name for values in peers.values() for name in values))
        table.add_column("")
        for peer in peers:
            table.add_column(peer, justify="right")
        for quantity in quantities:
            cells = [str(values[quantity]) if quantity in values else "" for values in peers.values()]
            table.add_row(quantity, *cells)
        console.print(table)


def main() -> None:
    known = scenarios()
    given = arguments(known)
    if given.list:
        for scenario in known.values():
            console.print(f"{scenario.name:16} {scenario.about}")
        return
    chosen = [known[name] for name in given.scenario] or list(known.values())
    left_out = []
    if shutil.which("go") is None:
        left_out = [scenario.name for scenario in chosen if scenario.needs_go]
        console.print(f"[bold red]NO GO TOOLCHAIN: left out are {', '.join(left_out)}[/bold red]")
        chosen = [scenario for scenario in chosen if not scenario.needs_go]
    packages = ("kapsa", "kopf", "aiohttp", "msgspec", "uvloop")
    run = Run(
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        machine=machine(),
        versions={name: version(name) for name in packages},
        left_out=left_out,
    )
    asyncio.run(measure(chosen, given.n, given.repeat, run))
    if not given.scenario:
        console.print(f"results: {run.save(HERE / 'results')}, {write_page(HERE, run, known)}")


if __name__ == "__main__":
    main()
