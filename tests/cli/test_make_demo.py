"""`make demo`: both stories, each of which has tests of its own in `test_demo` and `test_fleet_demo`."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KAPSA = Path(sys.executable).with_name("kapsa")


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make on PATH")
def test_make_demo_runs_both_stories_one_after_the_other() -> None:
    dry_run = ["make", "--no-print-directory", "--dry-run", "demo"]
    recipe = subprocess.run(dry_run, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
    stories = re.findall(r"^\S+/kapsa demo (.+)$", recipe, flags=re.MULTILINE)
    assert stories == ["environments", "fleet"]
    for story in stories:
        command = [KAPSA, "demo", story, "--help"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done
