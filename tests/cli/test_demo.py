"""`kapsa demo`, as a newcomer runs it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

KAPSA = Path(sys.executable).with_name("kapsa")


def test_the_demo_tells_each_step_and_ends_well(tmp_path: Path) -> None:
    done = subprocess.run([KAPSA, "demo"], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    for line in (
        "all replicas are ready",
        "the new version is rolled out",
        "the operator puts it back",
        "an event names who changed it",
        "its Deployment and pods are gone",
        "nothing is left behind",
    ):
        assert line in done.stdout
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_demo_keeps_running_when_asked(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [KAPSA, "demo", "--keep"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if "Ctrl-C ends it" in line:
                break
        assert "server:" in (tmp_path / "demo.kubeconfig").read_text()
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert process.returncode == 0
    assert not (tmp_path / "demo.kubeconfig").exists()


def test_the_demo_overwrites_no_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "demo.kubeconfig").write_text("mine")
    done = subprocess.run([KAPSA, "demo", "--keep"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "exists already" in done.stderr
    assert (tmp_path / "demo.kubeconfig").read_text() == "mine"
