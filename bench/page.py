"""RESULTS.md: method, machine, versions, tables with ratios, and plots of growth as SVG."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bench.results import Run, Spread, Table, shown, tables
from bench.scenarios import Scenario

METHOD = """# Benchmarks

Written by `make bench`; do not edit. Kapsa and its peers do the same work on the same machine in the same run; each number is the median of the run's repetitions with the lowest and highest in brackets. **Ratios are the result**; absolute numbers belong to the machine. Each repetition starts a fresh control plane without controllers. CPU and memory are the operator's own process. The peers' programs are in `bench/peers`, at the settings their documentation recommends for this work.
"""
BETTER_WHEN_HIGHER = ("per s", "per CPU s")
COLORS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd")


def write_page(directory: Path, run: Run, known: Mapping[str, Scenario]) -> Path:
    found = tables(run.measurements)
    lines = [METHOD]
    lines.append("Machine: " + ", ".join(f"{name} {value}" for name, value in run.machine.items()) + ".  ")
    lines.append("Versions: " + ", ".join(f"{name} {value}" for name, value in run.versions.items()) + ".")
    if run.left_out:
        lines.append(f"\n**Left out, for want of Go: {', '.join(run.left_out)}.**")
    for name in dict.fromkeys(scenario for scenario, _ in found):
        lines.append(f"\n## {name}\n\n{known[name].about}.\n")
        sizes = {n: table for (scenario, n), table in found.items() if scenario == name}
        for n, table in sizes.items():
            lines += one_table(n, table)
        lines += plots(directory, name, sizes)
    notes = directory / "NOTES.md"
    if notes.exists():
        lines.append("\n" + notes.read_text(encoding="utf-8"))
    path = directory / "RESULTS.md"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def one_table(n: int, table: Table) -> list[str]:
    """A row a quantity; behind each other peer's value, how many times Kapsa's it is."""
    first = next(iter(table))
    quantities = list(dict.fromkeys(name for values in table.values() for name in values))
    lines = [f"n = {n:,}\n", f"| | {' | '.join(table)} |", "|---" * (len(table) + 1) + "|"]
    for quantity in quantities:
        ours = table[first].get(quantity)
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
    for quantity in ("wall s", "CPU s", "RSS over base MB"):
        series = {
            peer: [
                (n, table[peer][quantity].median)
                for n, table in sizes.items()
                if quantity in table.get(peer, {})
            ]
            for peer in next(iter(sizes.values()))
        }
        series = {peer: points for peer, points in series.items() if len(points) > 1}
        if series:
            file = f"results/{name}-{quantity.replace(' ', '-').lower()}.svg"
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
