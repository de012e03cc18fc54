"""RESULTS.md: method, machine, versions, tables with ratios, and plots of growth as SVG."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bench.results import Run, Spread, Table, shown, tables
from bench.scenarios import Scenario
from bench.targets import judge

METHOD = """# Benchmarks

Written by `make bench` (`python -m bench --page FILE` writes it anew from kept results); do not edit: what explains the numbers is in [NOTES.md](NOTES.md).

Kapsa and its peers do the same work on the same machine in the same run. Each number is the median of the repetitions, with the lowest and the highest in brackets; **×** tells how many times Kapsa's it is. **Ratios are the result**: absolute numbers belong to the machine. Peers take turns, and each gets a fresh control plane without controllers, so that nothing but the API server and its store answers, started on a copy of the same data. Wall time runs from the start of the operator's process until an observer's watch has seen the last resource done; the write rate goes from the first to the last. A reading of up to 2,000 resources of which the machine's host took more than 3 % of the CPU for others is taken again, once, and the less disturbed one counts, whoever's it is. With children at 2,000, which takes minutes, Kapsa and the load generator are read before and after the others. CPU and memory are those of the operator's own process. p50 and p99 are of 100 single changes to one resource each, from before the write until the watch shows its reconciled status. Requests are the API server's own count, and are about the resources and their children.

Fairness: Kapsa and controller-runtime work on 32 resources at a time, kopf on as many as come, as is its default; none has a limit on requests of its own; all write the status by a merge patch of the status subresource; the load generator has 32 connections. On the real control plane all four show the token of a service account, as in a Pod, and the API server collects its garbage half as often as by default, as in every devcluster (GOGC=200). Kapsa and the load generator spare it the second parsing of an apply (`fieldValidation=Ignore`), which is Kapsa's default. Leader election is off. Kapsa runs with its defaults (`kapsa run`), metrics and probes on; controller-runtime with metrics off; kopf with uvloop, asynchronous handlers and without posting events. All three watch the children they own and put back what is changed by hand; *kopf, blind* does not. The Services are headless: giving out cluster addresses would take nearly half of the API server's time, the more the more Services there are (it counts the addresses it has given out), and tells nothing about an operator. The load generator makes the same requests as Kapsa, and nothing else: an operator can hardly be faster than that. Their programs are in [peers](peers).
"""
COLORS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd")
NOT_COMPARED = ("taken by the host %",)
"""Quantities that tell about the machine: how many times Kapsa's they are says nothing."""
PLOTTED = ("wall s", "CPU s", "peak RSS MB")


def write_page(directory: Path, run: Run, known: Mapping[str, Scenario]) -> Path:
    """RESULTS.md and its plots, from a run."""
    found = tables(run.measurements)
    lines = [METHOD, *circumstances(run), *verdicts(found)]
    measured = {scenario for scenario, _ in found}
    for name in [*(name for name in known if name in measured), *sorted(measured - known.keys())]:
        about = f"{known[name].about}." if name in known else ""
        lines.append(f"\n## {name}\n\n{about}\n")
        sizes = {n: table for (scenario, n), table in found.items() if scenario == name}
        for n, table in sizes.items():
            lines += one_table(n, table)
        lines += plots(directory, name, sizes)
    path = directory / "RESULTS.md"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def circumstances(run: Run) -> list[str]:
    lines = [
        f"Measured on {run.date} in {run.minutes:.0f} minutes; the machine's load before was {run.load:.1f}.  ",
        "Machine: " + ", ".join(f"{name} {value}" for name, value in run.machine.items()) + ".  ",
        "Versions: " + ", ".join(f"{name} {value}" for name, value in run.versions.items()) + ".",
    ]
    if run.left_out:
        lines.append("\n**Not measured, or less often than the rest:**\n")
        lines += [f"- {what}" for what in run.left_out]
    return lines


def verdicts(found: Mapping[tuple[str, int], Table]) -> list[str]:
    """The targets of the design, each with what was measured and whether it holds."""
    lines = ["\n## Targets\n", "| scenario | n | what | wanted | measured | |", "|---|---|---|---|---|---|"]
    for verdict in judge(found):
        target = verdict.target
        value = "" if verdict.measured is None else shown(verdict.measured)
        lines.append(
            f"| {target.scenario} | {target.n:,} | {target.text} | {verdict.wanted} | {value} | {verdict.word} |"
        )
    return lines


def one_table(n: int, table: Table) -> list[str]:
    """A row a quantity; behind each other peer's value, how many times Kapsa's it is."""
    first = next(iter(table))
    quantities = list(dict.fromkeys(name for values in table.values() for name in values))
    times = {peer: max(spread.count for spread in values.values()) for peer, values in table.items()}
    most = max(times.values())
    heads = [peer if times[peer] == most else f"{peer} ({times[peer]} of {most})" for peer in table]
    lines = [
        f"n = {n:,}, measured {'once' if most == 1 else f'{most} times'}\n",
        f"| | {' | '.join(heads)} |",
        "|---" * (len(table) + 1) + "|",
    ]
    for quantity in quantities:
        ours = table[first].get(quantity) if quantity not in NOT_COMPARED else None
        cells = [
            cell(values.get(quantity), ours if peer != first else None) for peer, values in table.items()
        ]
        lines.append(f"| {quantity} | {' | '.join(cells)} |")
    return [*lines, ""]


def cell(value: Spread | None, ours: Spread | None) -> str:
    if value is None:
        return ""
    if ours is None or not ours.median or not value.median:
        return str(value)
    return f"{value}, **×{shown(value.median / ours.median)}**"


def plots(directory: Path, name: str, sizes: Mapping[int, Table]) -> list[str]:
    """One plot of wall time and CPU over the size, where there are several sizes."""
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
            file = f"results/{name}-{quantity.replace(' ', '-').lower()}.svg"
            (directory / "results").mkdir(exist_ok=True)
            (directory / file).write_text(svg(f"{name}: {quantity}", series), encoding="utf-8")
            lines.append(f"![{name}: {quantity} over n]({file})")
    return lines


def svg(title: str, series: Mapping[str, list[tuple[int, float]]]) -> str:
    """A small line plot with both axes from zero."""
    width, height, margin = 520, 280, 48
    right = max(n for points in series.values() for n, _ in points)
    top = max(value for points in series.values() for _, value in points) or 1.0

    def place(n: float, value: float) -> tuple[float, float]:
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
        placed = [place(n, value) for n, value in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in placed]
        x, y = placed[-1]
        parts.append(f'<text x="{x - 110:.1f}" y="{y - 6:.1f}" fill="{color}">{peer}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
