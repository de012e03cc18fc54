"""Make the virtual environment the Makefile's targets run in; safe to run again and again.

Runs under any Python 3 without third-party packages, because it is the first thing a newcomer starts: a wrong
Python, a full disk or an unreachable package registry must each end in one line that says what to do.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / ".kapsa-installed"
INPUTS = (ROOT / "pyproject.toml", ROOT / "constraints.txt")
OLDEST = (3, 11)
FREE_BYTES_NEEDED = 700 * 1024 * 1024


def fail(message):
    sys.exit("kapsa setup: " + message)


def check_python():
    if sys.version_info < OLDEST:
        fail(
            "Python %d.%d is too old, Kapsa needs %d.%d or newer: install one and run `make PYTHON=/path/to/python3 ...`"
            % (sys.version_info[0], sys.version_info[1], OLDEST[0], OLDEST[1])
        )


def check_disk():
    free = shutil.disk_usage(ROOT).free
    if free < FREE_BYTES_NEEDED:
        fail(
            "%d MB are free under %s, the installation needs %d MB: free some space and run it again"
            % (free >> 20, ROOT, FREE_BYTES_NEEDED >> 20)
        )


def fingerprint():
    digest = hashlib.sha256(repr(sys.version_info[:3]).encode())
    for path in INPUTS:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def run(step, command):
    environment = dict(os.environ, PIP_CONSTRAINT=str(ROOT / "constraints.txt"), PIP_DISABLE_PIP_VERSION_CHECK="1")
    done = subprocess.run(
        command, cwd=str(ROOT), env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True
    )
    if done.returncode == 0:
        return
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR") or "Errno" in line] or lines[-1:]
    log = ROOT / ".setup.log"
    try:
        log.write_text(done.stdout)
        where = " (whole output: %s)" % log.name
    except OSError:
        where = ""
    fail("%s failed: %s%s" % (step, errors[0] if errors else "exit code %d" % done.returncode, where))


def runs_this_python(python):
    """Whether the environment is there, whole, and made from the Python that runs now."""
    probe = "import pip, sys; print(sys.version_info[:3])"
    try:
        done = subprocess.run([str(python), "-c", probe], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError:
        return False
    return done.stdout.decode().strip() == repr(tuple(sys.version_info[:3]))


def main():
    check_python()
    wanted = fingerprint()
    if STAMP.exists() and STAMP.read_text() == wanted:
        return
    check_disk()
    started = time.monotonic()
    print("kapsa setup: installing Kapsa and its development tools into .venv (once, about a minute) ...", flush=True)
    python = VENV / "bin" / "python"
    if not runs_this_python(python):
        run("making the virtual environment", [sys.executable, "-m", "venv", "--clear", str(VENV)])
    run("installing the packages", [str(python), "-m", "pip", "install", "--editable", ".[dev]"])
    STAMP.write_text(wanted)
    print("kapsa setup: done in %.0f s" % (time.monotonic() - started), flush=True)


if __name__ == "__main__":
    main()
