"""RESULTS.md: method, machine, versions, tables with ratios, and plots of growth as SVG."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from bench.fleet.limits import MEMORY, REST, Limit
from bench.results import Run, Spread, Table, shown, tables
from bench.scenarios import Scenario
from bench.targets import judge

METHOD = """# Benchmarks

Written by `make bench` (`python -m bench --page FILE` writes it again from a results file); do not edit. [NOTES.md](NOTES.md) explains the numbers.

Kapsa and its peers do the same work on the same machine in the same run. Each number is the median of the repetitions, with the lowest and the highest in brackets; **×** is the ratio to Kapsa's number. **Ratios are the result**: absolute numbers depend on the machine. Peers take turns. Each gets a fresh control plane without controllers, which is only an API server and its store, started on a copy of the same data. Wall time runs from the start of the operator's process until the watch of an observer delivers the last finished resource; the write rate is measured from the first to the last. If the host of a virtual machine takes more than 3 % of the CPU during a measurement of up to 2,000 resources, it is repeated once, and the less disturbed one counts, for every peer. With children at 2,000, which takes minutes, Kapsa and the load generator are measured before and after the others. CPU and memory are those of the operator's own process. p50 and p99 are of 100 single changes, one resource each, from before the write until the watch delivers the reconciled status. Requests are counted by the API server, for the resources and their children.

Fairness: Kapsa, controller-runtime and kube-rs work on 32 resources at a time, kopf on an unlimited number, which is its default. None limits its own requests, and all write the status with a merge patch of the status subresource; the load generator has 32 connections. On the real control plane all of them authenticate with the token of a service account, as in a Pod, and the API server collects garbage half as often as by default, as in all devclusters (GOGC=200). Kapsa and the load generator avoid the second parsing of an apply (`fieldValidation=Ignore`), which is Kapsa's default. Leader election is off. Kapsa runs with its defaults (`kapsa run`), metrics and probes on; controller-runtime with metrics off; kube-rs without metrics, with streaming lists and a filter by generation; kopf with uvloop, asynchronous handlers and without posting events. All watch the children they own and revert manual changes; *kopf, blind* does not. The Services are headless: allocating cluster IPs would take nearly half of the API server's time, growing with the number of Services, and does not depend on the operator. The load generator makes the same requests as Kapsa and nothing else, so an operator can hardly be faster. The programs are in [peers](peers).
"""
COLORS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e")
NOT_COMPARED = ("taken by the host %",)
"""Quantities of the machine, for which a ratio has no meaning."""
NO_LIMITS: Mapping[str, Limit] = {}
PLOTTED = (
    "wall s",
    "CPU s",
    "peak RSS MB",
    "GET /operators ms p99",
    "POST /deployments ms p99",
    "full operator check ms p99",
    REST,
    MEMORY,
)


def write_page(directory: Path, run: Run, available: Mapping[str, Scenario]) -> Path:
    """Write RESULTS.md and its plots from a run."""
    by_size = tables(run.measurements)
    lines = [METHOD, *circumstances(run), *verdicts(by_size)]
    measured = {scenario for scenario, _ in by_size}
    for name in [*(name for name in available if name in measured), *sorted(measured - available.keys())]:
        about = f"{available[name].about}." if name in available else ""
        limits = available[name].limits if name in available else {}
        lines.append(f"\n## {name}\n\n{about}\n")
        sizes = {n: table for (scenario, n), table in by_size.items() if scenario == name}
        for n, table in sizes.items():
            lines += one_table(n, table, limits)
        lines += plots(directory, name, sizes)
    path = directory / "RESULTS.md"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def circumstances(run: Run) -> list[str]:
    lines = [
        f"Measured on {run.date} in {run.minutes:.0f} minutes; the load of the machine before was {run.load:.1f}.  ",
        "Machine: " + ", ".join(f"{name} {value}" for name, value in run.machine.items()) + ".  ",
        "Versions: " + ", ".join(f"{name} {value}" for name, value in run.versions.items()) + ".",
    ]
    lines += [f"  \nMeasured separately: {what}." for what in run.separate]
    if run.left_out:
        lines.append("\n**Not measured, or less often than others:**\n")
        lines += [f"- {what}" for what in run.left_out]
    return lines


def verdicts(by_size: Mapping[tuple[str, int], Table]) -> list[str]:
    """Return the table of the design's targets, with the measured values."""
    lines = [
        "\n## Targets\n",
        "| scenario | n | quantity | target | measured | |",
        "|---|---|---|---|---|---|",
    ]
    for verdict in judge(by_size):
        target = verdict.target
        value = "" if verdict.measured is None else shown(verdict.measured)
        lines.append(
            f"| {target.scenario} | {target.n:,} | {target.text} | {verdict.bound} | {value} | {verdict.word} |"
        )
    return lines


def one_table(n: int, table: Table, limits: Mapping[str, Limit] = NO_LIMITS) -> list[str]:
    """Return a table with a row for each quantity, the ratios of the other peers, and limits if there are any."""
    first = next(iter(table))
    quantities = list(dict.fromkeys(name for values in table.values() for name in values))
    times = {peer: max(spread.count for spread in values.values()) for peer, values in table.items()}
    most = max(times.values())
    heads = [peer if times[peer] == most else f"{peer} ({times[peer]} of {most})" for peer in table]
    lines = [
        f"n = {n:,}, measured {'once' if most == 1 else f'{most} times'}\n",
        f"| | {' | '.join([*heads, *(('specified', 'ours') if limits else ())])} |",
        "|---" * (len(table) + (3 if limits else 1)) + "|",
    ]
    for quantity in quantities:
        ours = table[first].get(quantity) if quantity not in NOT_COMPARED else None
        cells = [
            cell(values.get(quantity), ours if peer != first else None) for peer, values in table.items()
        ]
        if limits:
            cells += bounds(limits.get(quantity))
        lines.append(f"| {quantity} | {' | '.join(cells)} |")
    return [*lines, ""]


def bounds(limit: Limit | None) -> list[str]:
    """Return the cells of a limit: as specified, and ours."""
    return ["", ""] if limit is None else [f"≤ {shown(limit.specified)}", f"≤ {shown(limit.ours)}"]


def cell(value: Spread | None, ours: Spread | None) -> str:
    if value is None:
        return ""
    if ours is None or not ours.median or not value.median:
        return str(value)
    return f"{value}, **×{shown(value.median / ours.median)}**"


def plots(directory: Path, name: str, sizes: Mapping[int, Table]) -> list[str]:
    """Write plots over the size, if there are several sizes. Return the lines that embed them."""
    lines = []
    for quantity in PLOTTED:
        series = {
            peer: [
                (n, table[peer][quantity].median)
                for n, table in sizes.items()
                if quantity in table.get(peer, {})
            ]
            for peer in dict.fromkeys(peer for table in sizes.values() for peer in table)
        }
        series = {peer: points for peer, points in series.items() if len(points) > 1}
        if series:
            file = f"results/{name}-{re.sub('[^a-z0-9]+', '-', quantity.lower())}.svg"
            (directory / "results").mkdir(exist_ok=True)
            (directory / file).write_text(svg(f"{name}: {quantity}", series), encoding="utf-8")
            lines.append(f"![{name}: {quantity} over n]({file})")
    return lines


def svg(title: str, series: Mapping[str, list[tuple[int, float]]]) -> str:
    """Return a small line plot with both axes from zero."""
    width, height, margin = 520, 280, 48
    right = max(n for points in series.values() for n, _ in points)
    top = max(value for points in series.values() for _, value in points) or 1.0

    def position(n: float, value: float) -> tuple[float, float]:
        x = margin + n / right * (width - 2 * margin)
        return x, height - margin - value / top * (height - 2 * margin)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{margin}" y="20" font-size="14">{title}</text>',
        f'<path d="M{margin} {margin} V{height - margin} H{width - margin}" fill="none" stroke="#888"/>',
        f'<text x="4" y="{margin}">{shown(top)}</text>',
        f'<text x="{width - margin - 20}" y="{height - margin + 18}">n = {right:,}</text>',
    ]
    for (peer, points), color in zip(series.items(), COLORS, strict=False):
        placed = [position(n, value) for n, value in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in placed]
        x, y = placed[-1]
        parts.append(f'<text x="{x - 110:.1f}" y="{y - 6:.1f}" fill="{color}">{peer}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
