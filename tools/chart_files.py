"""Writes the generated files of the chart into charts/kapsa/files; `--check` reports stale ones."""

from __future__ import annotations

import sys
from pathlib import Path

from kapsa.environments.installation import chart_files

FILES = Path(__file__).resolve().parents[1] / "charts" / "kapsa" / "files"


def main() -> int:
    made = chart_files()
    stale = [name for name, text in made.items() if not _holds(FILES / name, text)]
    if "--check" in sys.argv[1:]:
        for name in stale:
            sys.stderr.write(f"{FILES / name} is out of date: run .venv/bin/python tools/chart_files.py\n")
        return 1 if stale else 0
    for name in stale:
        (FILES / name).write_text(made[name], encoding="utf-8")
        sys.stdout.write(f"{name}\n")
    return 0


def _holds(file: Path, text: str) -> bool:
    return file.is_file() and file.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
