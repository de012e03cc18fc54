"""Make the virtual environment the Makefile's targets run in; safe to run again and again.

Runs under any Python 3 without third-party packages, because it is the first thing a newcomer starts: a wrong
Python, a full disk or an unreachable package registry must each end in one line that says what to do.
"""

import hashlib
import importlib.util
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
FREE_BYTES_NEEDED = 1000 * 1024 * 1024


def fail(message):
    sys.exit("kapsa setup: " + message)


def check_python():
    if sys.version_info < OLDEST:
        running, needed = (".".join(map(str, version[:2])) for version in (sys.version_info, OLDEST))
        fail(
            f"Python {running} is too old; Kapsa needs {needed} or newer. Install one and run: make PYTHON=/path/to/python3"
        )
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        package = "python{}.{}-venv".format(*sys.version_info[:2])
        fail(
            f"{sys.executable} cannot make virtual environments: install {package} (so called on Debian and Ubuntu), "
            "or say make PYTHON=/path/to/another/python3"
        )


def check_disk():
    free = shutil.disk_usage(ROOT).free
    if free < FREE_BYTES_NEEDED:
        needed = FREE_BYTES_NEEDED >> 20
        fail(
            f"{free >> 20} MB are free under {ROOT}, the installation needs {needed} MB: free some and run it again"
        )


def fingerprint():
    # The place counts: a virtual environment that was moved or copied starts programs of the old one.
    digest = hashlib.sha256(repr((sys.version_info[:3], str(VENV))).encode())
    for path in INPUTS:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def run(step, command):
    environment = dict(
        os.environ, PIP_CONSTRAINT=str(ROOT / "constraints.txt"), PIP_DISABLE_PIP_VERSION_CHECK="1"
    )
    done = subprocess.run(
        command, cwd=str(ROOT), env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if done.returncode == 0:
        return
    output = done.stdout.decode("utf-8", "replace")
    lines = [line for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR") or "Errno" in line] or lines[-1:]
    log = ROOT / ".setup.log"
    try:
        log.write_text(output)
        where = f" (whole output: {log.name})"
    except OSError:
        where = ""
    fail(f"{step} failed: {errors[0] if errors else f'exit code {done.returncode}'}{where}")


def is_usable(python):
    """Return whether the environment is complete, was made here, and uses the Python that runs now."""
    probe = "import pip, sys; print(sys.version_info[:3])"
    try:
        done = subprocess.run(
            [str(python), "-c", probe], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
        )
        made = (python.parent.parent / "pyvenv.cfg").read_text()
    except OSError:
        return False
    of_this_python = done.stdout.decode().strip() == repr(tuple(sys.version_info[:3]))
    # Python 3.11 and newer note there how the environment was made.
    return of_this_python and made.rstrip().endswith(str(python.parent.parent))


def main():
    check_python()
    expected = fingerprint()
    if STAMP.exists() and STAMP.read_text() == expected:
        return
    check_disk()
    started = time.monotonic()
    print(
        "kapsa setup: installing Kapsa and its development tools into .venv (once, about a minute) ...",
        flush=True,
    )
    python = VENV / "bin" / "python"
    if not is_usable(python):
        run("making the virtual environment", [sys.executable, "-m", "venv", "--clear", str(VENV)])
    run("installing the packages", [str(python), "-m", "pip", "install", "--editable", ".[dev]"])
    STAMP.write_text(expected)
    print(f"kapsa setup: done in {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
