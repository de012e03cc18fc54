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

pytestmark = pytest.mark.timeout(240)  # half a minute each on a machine with nothing else to do

KAPSA = Path(sys.executable).with_name("kapsa")
STORY = (
    "production serves at https://production.preview.test",
    "the preview serves at https://cart.preview.test",
    "the preview shows the new commit, at the same address",
    "could not be built: the build ended with an error",
    "goes on serving",
    "a second one must agree",
    "production followed main to",
    "preview cart is gone, with namespace team-shop-cart and its host",
)
"""What happens, in order."""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """Its temporary files are this test's own, so that what it leaves behind is found."""
    (tmp_path / "tmp").mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KAPSA_", "COLUMNS"))}
    return {**kept, "TMPDIR": str(tmp_path / "tmp"), "NO_COLOR": "1"}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "here").mkdir()
    return tmp_path / "here"


def told_in_order(output: str) -> None:
    text, place = " ".join(output.split()), 0
    for line in STORY:
        place = text.find(line, place)
        assert place >= 0, f"{line!r} is missing, or too early, in:\n{output}"


def on_a_terminal(command: list[str], directory: Path, env: dict[str, str], columns: int) -> tuple[int, str]:
    """Exit code and everything that a terminal of this width was sent."""
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
        except OSError:  # what Linux says at the end of a terminal
            break
        if not chunk:
            break
        chunks.append(chunk)
    os.close(ours)
    return process.wait(30), b"".join(chunks).decode()


def test_a_terminal_shows_each_step_and_a_live_table_in_80_columns(
    directory: Path, env: dict[str, str]
) -> None:
    code, output = on_a_terminal([str(KAPSA), "demo"], directory, env, 80)
    assert code == 0, output
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output).replace("\r", "\n")
    told_in_order(re.sub(r"^[┏┃┡│└].*$", "", plain, flags=re.MULTILINE))
    assert re.search(r"│ cart\s+│ Ready\s+│ [0-9a-f]{7} │ https://cart\.preview\.test\s+│ \d+ s", plain)
    assert re.search(r"│ cart\s+│ Building\s+│", plain)
    assert max(len(line) for line in plain.splitlines()) <= 80
    assert "its environments, their namespaces and their hosts are gone" in plain
    assert "Traceback" not in plain
    assert list(directory.iterdir()) == []
    assert list(Path(env["TMPDIR"]).iterdir()) == []


def lines_of(process: subprocess.Popen[str]) -> Iterator[str]:
    assert process.stdout is not None
    for line in process.stdout:  # not `yield from`: that would close it with the generator  # noqa: UP028
        yield line


def test_it_is_left_running_when_asked_and_takes_pushes_until_it_is_interrupted(
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
            if "Ctrl-C ends it" in line:
                break
        told = "".join(output)
        told_in_order(told)
        kubeconfig = directory / "demo.kubeconfig"
        assert "server:" in kubeconfig.read_text()
        assert kubeconfig.stat().st_mode & 0o077 == 0
        assert f"export KUBECONFIG={kubeconfig}" in told
        clone = re.search(r"^ +cd (.+)$", told, re.MULTILINE)
        assert clone is not None
        for command in ("switch -q -c idea main", "commit -q --allow-empty -m Try", "push -q origin idea"):
            subprocess.run(["git", "-C", clone[1], *command.split()], env=env, check=True, timeout=30)
        assert any("idea is Ready" in line for line in lines)
    finally:
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=30)
    assert process.returncode == 0, "".join(output) + rest
    assert "nothing is left behind" in rest
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


def test_it_ends_in_order_when_nobody_reads_it_any_more(directory: Path, env: dict[str, str]) -> None:
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


def test_what_does_not_come_about_in_time_is_told_in_one_line(directory: Path, env: dict[str, str]) -> None:
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
        "kapsa: it did not come about in 0.2 s that production is ready with commit"
    )
    assert list(Path(env["TMPDIR"]).iterdir()) == []


def test_without_git_it_says_so_in_one_line(directory: Path, env: dict[str, str]) -> None:
    (directory / "bin").mkdir()
    env["PATH"] = str(directory / "bin")
    done = subprocess.run([KAPSA, "demo"], cwd=directory, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert re.match(r"kapsa: git [0-9.]+ or newer is needed \(none is on PATH\)", done.stderr)


def test_without_the_packages_of_the_devcluster_it_says_so_in_one_line(
    directory: Path, env: dict[str, str]
) -> None:
    hidden = "import sys; sys.modules['cel_expr_python'] = None; from kapsa.cli import main; main()"
    command = [sys.executable, "-c", hidden, "demo"]
    done = subprocess.run(command, cwd=directory, env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "kapsa: the demo needs an embedded cluster, which needs cel_expr_python: pip install 'kapsa[devcluster]'\n"
    )


def test_it_overwrites_no_kubeconfig(directory: Path, env: dict[str, str]) -> None:
    (directory / "demo.kubeconfig").write_text("mine")
    done = subprocess.run(
        [KAPSA, "demo", "--keep"], cwd=directory, env=env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "exists already" in done.stderr
    assert (directory / "demo.kubeconfig").read_text() == "mine"


def test_a_kubeconfig_that_cannot_be_written_is_told_before_anything_starts(
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
    assert "can't be written" in done.stderr
    assert "control plane" not in done.stdout
