"""`kapsa demo`, as a newcomer runs it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.sampled(3, of="module"),
]  # half a minute each on a machine with nothing else to do

KAPSA = Path(sys.executable).with_name("kapsa")
MILESTONES = (
    "production is ready at https://production.preview.test",
    "the preview is ready at https://cart.preview.test",
    "the preview runs the new commit, at the same URL",
    "failed to build: the build ended with an error",
    "keeps running",
    "checks a second time before it deletes anything",
    "production was updated to",
    "preview cart is deleted, with namespace team-shop-cart and its host",
)
"""Texts that the demo prints, in order."""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An environment with a directory for temporary files that belongs to this test alone."""
    (tmp_path / "tmp").mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KAPSA_", "COLUMNS"))}
    return {**kept, "TMPDIR": str(tmp_path / "tmp"), "NO_COLOR": "1"}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "here").mkdir()
    return tmp_path / "here"


def assert_milestones(output: str) -> None:
    text, position = " ".join(output.split()), 0
    for line in MILESTONES:
        position = text.find(line, position)
        assert position >= 0, f"{line!r} is missing, or too early, in:\n{output}"


def on_a_terminal(command: list[str], directory: Path, env: dict[str, str], columns: int) -> tuple[int, str]:
    """Run a command on a terminal of this width. Return its exit code and its output."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    process = subprocess.Popen(
        command, cwd=directory, env={**env, "TERM": "xterm"}, stdin=its, stdout=its, stderr=its
    )
    os.close(its)
    chunks = []
    while True:
        try:
            chunk = os.read(ours, 65536)
        except OSError:  # Linux reports the end of a terminal like this
            break
        if not chunk:
            break
        chunks.append(chunk)
    os.close(ours)
    return process.wait(30), b"".join(chunks).decode()


@pytest.mark.long
def test_a_terminal_shows_each_step_and_a_live_table_in_80_columns(
    directory: Path, env: dict[str, str]
) -> None:
    code, output = on_a_terminal([str(KAPSA), "demo"], directory, env, 80)
    assert code == 0, output
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output).replace("\r", "\n")
    assert_milestones(re.sub(r"^[┏┃┡│└].*$", "", plain, flags=re.MULTILINE))
    assert re.search(r"│ cart\s+│ Ready\s+│ [0-9a-f]{7} │ https://cart\.preview\.test\s+│ \d+ s", plain)
    assert re.search(r"│ cart\s+│ Building\s+│", plain)
    assert max(len(line) for line in plain.splitlines()) <= 80
    assert "its environments, their namespaces and their hosts are deleted" in plain
    assert "Traceback" not in plain
    assert list(directory.iterdir()) == []
    assert list(Path(env["TMPDIR"]).iterdir()) == []


def lines_of(process: subprocess.Popen[str]) -> Iterator[str]:
    assert process.stdout is not None
    for line in process.stdout:  # not `yield from`: that would close it with the generator  # noqa: UP028
        yield line


@pytest.mark.long
def test_with_keep_it_runs_and_takes_pushes_until_it_is_interrupted(
    directory: Path, env: dict[str, str]
) -> None:
    process = subprocess.Popen(
        [KAPSA, "demo", "--keep"],
        cwd=directory,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    output: list[str] = []
    try:
        lines = lines_of(process)
        for line in lines:
            output.append(line)
            if "Press Ctrl-C to stop" in line:
                break
        printed = "".join(output)
        assert_milestones(printed)
        kubeconfig = directory / "demo.kubeconfig"
        assert "server:" in kubeconfig.read_text()
        assert kubeconfig.stat().st_mode & 0o077 == 0
        assert f"export KUBECONFIG={kubeconfig}" in printed
        clone = re.search(r"^ +cd (.+)$", printed, re.MULTILINE)
        assert clone is not None
        for command in ("switch -q -c idea main", "commit -q --allow-empty -m Try", "push -q origin idea"):
            subprocess.run(["git", "-C", clone[1], *command.split()], env=env, check=True, timeout=30)
        assert any("idea is Ready" in line for line in lines)
    finally:
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=30)
    assert process.returncode == 0, "".join(output) + rest
    assert "all files are removed" in rest
    assert list(directory.iterdir()) == []
    assert list(Path(env["TMPDIR"]).iterdir()) == []


def test_an_interrupted_demo_leaves_nothing_behind(directory: Path, env: dict[str, str]) -> None:
    process = subprocess.Popen(
        [KAPSA, "demo"], cwd=directory, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert any("production is" in line for line in lines_of(process))
    finally:
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=30)
    assert process.returncode == 130, rest
    assert "interrupted" in rest
    assert "Traceback" not in rest
    assert list(Path(env["TMPDIR"]).iterdir()) == []


@pytest.mark.long
def test_it_stops_cleanly_when_its_reader_is_gone(directory: Path, env: dict[str, str]) -> None:
    done = subprocess.run(
        ["bash", "-c", f"'{KAPSA}' demo | head -n 1; exit ${{PIPESTATUS[0]}}"],
        cwd=directory,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 130
    assert done.stderr == ""
    assert list(Path(env["TMPDIR"]).iterdir()) == []


def test_a_timeout_is_reported_in_one_line(directory: Path, env: dict[str, str]) -> None:
    impatient = "from kapsa.cli import main; from kapsa.cli.demo import walkthrough; walkthrough._SECONDS = 0.2; main()"
    done = subprocess.run(
        [sys.executable, "-c", impatient, "demo"],
        cwd=directory,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(
        "kapsa: timed out after 0.2 s waiting for production to be ready with commit"
    )
    assert list(Path(env["TMPDIR"]).iterdir()) == []


def test_a_missing_git_is_reported_in_one_line(directory: Path, env: dict[str, str]) -> None:
    (directory / "bin").mkdir()
    env["PATH"] = str(directory / "bin")
    done = subprocess.run([KAPSA, "demo"], cwd=directory, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert re.match(r"kapsa: git [0-9.]+ or newer is needed \(not found on PATH\)", done.stderr)


def test_an_existing_kubeconfig_is_not_overwritten(directory: Path, env: dict[str, str]) -> None:
    (directory / "demo.kubeconfig").write_text("mine")
    done = subprocess.run(
        [KAPSA, "demo", "--keep"], cwd=directory, env=env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "already exists" in done.stderr
    assert (directory / "demo.kubeconfig").read_text() == "mine"


def test_a_kubeconfig_that_cannot_be_written_is_reported_before_anything_starts(
    directory: Path, env: dict[str, str]
) -> None:
    done = subprocess.run(
        [KAPSA, "demo", "--keep", "--kubeconfig", "missing/demo.kubeconfig"],
        cwd=directory,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert "cannot be written" in done.stderr
    assert "control plane" not in done.stdout
