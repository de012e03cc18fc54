"""The start-up time of the embedded engine, as a process and in a running one.

It is measured in CPU time, because other tests may keep the cores busy; the wall time is printed, too. The
process runs from compiled bytecode, as an installed package does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kapsa.devcluster import DevCluster

UP = [sys.executable, "-c", "from kapsa.cli import main; main()", "devcluster", "up", "--engine=embedded"]


def start_once(directory: Path) -> tuple[float, float]:
    """Return the CPU and wall seconds from the start of the process until it reports that it is ready."""
    env = {**os.environ, "PYTHONPYCACHEPREFIX": str(directory / "bytecode"), "XDG_CACHE_HOME": str(directory)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    began = time.monotonic()
    with subprocess.Popen(
        [*UP, f"--kubeconfig={directory / 'kubeconfig'}"], env=env, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        ready = any(line.startswith("ready in") for line in process.stderr)
        wall = time.monotonic() - began
        assert ready
        used = _cpu_seconds(process.pid)
        process.terminate()
        process.communicate(timeout=30)
    return used, wall


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.long
def test_a_process_is_ready_in_under_half_a_second(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    start_once(tmp_path)  # compiles
    starts = [start_once(tmp_path)]
    # On busy cores the same work takes more CPU time; the fastest of several starts is hardly disturbed.
    while min(starts)[0] >= 0.5 and len(starts) < 6:
        starts.append(start_once(tmp_path))
    used, wall = min(starts)
    with capsys.disabled():
        sys.stdout.write(f"\ndevcluster up: ready after {used:.2f} s of CPU time, {wall:.2f} s in all\n")
    assert used < 0.5


async def test_in_a_running_process_it_starts_in_under_20_ms(capsys: pytest.CaptureFixture[str]):
    used = []
    for _ in range(5):
        cluster = DevCluster(http=False)
        began = time.process_time()
        await cluster.start()
        used.append(time.process_time() - began)
        await cluster.stop()
    with capsys.disabled():
        sys.stdout.write(f"\nin-process start: {min(used[1:]) * 1000:.1f} ms of CPU time\n")
    assert min(used[1:]) < 0.020


def test_ten_clusters_with_tls_start_in_two_seconds_and_100_mb(capsys: pytest.CaptureFixture[str]) -> None:
    """The CPU time and the memory are those of the whole process, with its imports; the wall time is without them."""
    command, root = [sys.executable, "-m", "bench.tls_clusters", "10"], Path(__file__).parents[2]
    measured: list[dict[str, float]] = []

    def best_of(quantity: str) -> float:
        return min(each[quantity] for each in measured)

    # On busy cores the same work takes more CPU time, and waits for its turn.
    while not measured or (max(best_of("CPU s"), best_of("wall s")) >= 2 and len(measured) < 4):
        measured.append(json.loads(subprocess.run(command, cwd=root, capture_output=True, check=True).stdout))
    best = {quantity: best_of(quantity) for quantity in measured[0]}
    with capsys.disabled():
        sys.stdout.write(
            f"\nten clusters with TLS: {best['CPU s']:.2f} s of CPU time, {best['wall s']:.2f} s in all, "
            f"{best['peak RSS MB']:.0f} MB\n"
        )
    assert best["CPU s"] < 2
    assert best["wall s"] < 2
    assert best["peak RSS MB"] < 100


def test_a_server_loads_none_of_the_modules_that_its_first_requests_do_without() -> None:
    """A start would take a tenth longer, or more, with each: the log, YAML, CEL, HTTP to webhooks, certificates."""
    script = (
        "import sys\n"
        "from kapsa.devcluster.embedded.server import Server\n"
        "from kapsa.devcluster.wire.listener import HttpFront\n"
        "Server()\n"
        "print(*sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(result.stdout.split())
    late = {"aiohttp", "cryptography", "kapsa.schemas.cel.expressions", "rich", "structlog", "typer", "yaml"}
    assert loaded & late == set()
