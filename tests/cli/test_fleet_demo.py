"""`kapsa demo fleet`, as a newcomer runs it: on fewer clusters, because `make demo` runs the whole story."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.timeout(1000), pytest.mark.long]

MOST_CPU_SECONDS = 100
"""Processor time of the demo: less than a minute on two cores that have nothing else to do."""

SMALL = """
from kapsa.cli import main
from kapsa.cli.demo.fleet import services, walkthrough
few = {"dev-1": "Dev", "dev-2": "Dev", "prod-eu": "Production"}
services.ENVIRONMENTS = walkthrough.ENVIRONMENTS = few
main()
"""
MILESTONES = (
    "3 clusters are registered (2 Dev, 1 Production)",
    "gadget-operator is registered with versions 1.0.0, 1.1.0, 2.0.0",
    "it runs everywhere",
    "berta approved exactly these bytes; ada, who asked for them, could not",
    "1.1.0 is healthy on all clusters, in stages of 1, 2",
    "caught: dev-2: ",
    "run 1.1.0 again, the finished stage too",
    "2.0.0 is not deployed again",
    "all 30 Gadgets have the same content as before: nothing is lost",
)
"""Texts that the demo prints, in order."""


@pytest.fixture
def env() -> Iterator[dict[str, str]]:
    """An environment with a directory for temporary files that any user may pass through, as PostgreSQL must."""
    directory = Path(tempfile.mkdtemp(prefix="kapsa-test-"))
    directory.chmod(0o711)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KAPSA_", "COLUMNS"))}
    yield {**kept, "TMPDIR": str(directory), "NO_COLOR": "1", "TERM": "xterm"}
    shutil.rmtree(directory)


def output_of(terminal: int) -> Iterator[str]:
    """Yield what a program prints on a terminal, until it ends."""
    while True:
        try:
            chunk = os.read(terminal, 65536)
        except OSError:  # Linux reports the end of a terminal like this
            return
        if not chunk:
            return
        yield chunk.decode(errors="replace")


def test_a_terminal_shows_the_stages_and_with_keep_the_manager_answers_until_it_is_interrupted(
    env: dict[str, str], tmp_path: Path
) -> None:
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    command = [sys.executable, "-c", SMALL, "demo", "fleet", "--keep"]
    process = subprocess.Popen(command, cwd=tmp_path, env=env, stdin=its, stdout=its, stderr=its)
    os.close(its)
    output = ""
    try:
        chunks = output_of(ours)
        for chunk in chunks:
            output += chunk
            if "Press Ctrl-C to stop" in output:
                break
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output).replace("\r", "\n")
        url = re.search(r"export FLEET=(\S+)", plain)
        token = re.search(r"export TOKEN=(\S+)", plain)
        assert url is not None, plain
        assert token is not None, plain
        request = urllib.request.Request(
            f"{url[1]}/deployments", headers={"Authorization": f"Bearer {token[1]}"}
        )
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=20) as reply:
            phases = [each["phase"] for each in json.load(reply)["items"]]
        assert phases == ["RolledBack", "Completed", "Completed"]
    finally:
        process.send_signal(signal.SIGINT)
        output += "".join(output_of(ours))
        os.close(ours)
        code = process.wait(30)
    assert code == 0, output
    text, position = " ".join(re.sub(r"^[┏┃┡│└ ].*[┓┃┩│┘]$", "", plain, flags=re.MULTILINE).split()), 0
    for line in MILESTONES:
        position = text.find(line, position)
        assert position >= 0, f"{line!r} is missing, or too early, in:\n{text}"
    assert re.search(r"│ 2\s+│ prod-eu\s+│ Production\s+│ Validating\s+│", plain)
    assert "all files are removed" in output
    assert "Traceback" not in output
    assert list(Path(env["TMPDIR"]).iterdir()) == []


def test_the_whole_story_on_ten_clusters_says_how_long_it_took_and_takes_little_of_the_processor(
    env: dict[str, str], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    command = [sys.executable, "-c", "from kapsa.cli import main; main()", "demo", "fleet"]
    before = cpu_seconds()
    # Next to other tests the story waits for its turn: it prints its time by the clock, which says nothing here.
    ended = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=900)
    used = cpu_seconds() - before
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "10 clusters are registered" in ended.stdout
    last = re.search(r"([0-9.]+) s  everything is stopped", ended.stdout)
    assert last is not None, ended.stdout
    record_property("sweep", f"the demo of the fleet: {float(last[1]):.0f} s, {used:.0f} s of processor time")
    assert used < MOST_CPU_SECONDS


def cpu_seconds() -> float:
    """Return the processor time of all processes that this one has waited for, and that they have waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
