"""Writes docs/fleet/settings.md and the chart's list of names from the settings of the fleet manager.

`--check` reports a stale file instead.

Run: .venv/bin/python tools/fleet_reference.py
"""

import sys
import typing
from pathlib import Path

import msgspec

from kapsa.fleet.settings import DATABASE_VARIABLE, PREFIX, FleetSettings

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "fleet" / "settings.md"
NAMES = ROOT / "charts" / "kapsa" / "files" / "fleet-settings.txt"
COMMAND = ".venv/bin/python tools/fleet_reference.py"


def render() -> str:
    about = (
        "The fleet manager is configured by environment variables. Nothing has to be configured: see "
        "[running the manager](running.md). An invalid value stops the start with one line that names the variable."
    )
    table = ["| variable | default | description |", "|---|---|---|"]
    hints = typing.get_type_hints(FleetSettings, include_extras=True)
    fields = msgspec.structs.fields(FleetSettings)
    for field, (variable, default, text) in zip(fields, FleetSettings.documentation(), strict=True):
        what = " ".join(f"{text} {choices(hints[field.name])}".split()).replace("|", "\\|")
        table.append(f"| `{variable}` | {f'`{default}`' if default else 'none'} | {what} |")
    made = f"<!-- Made by `{COMMAND}`: change the docstrings, not this page. -->"
    return "\n\n".join([made, "# Settings of the fleet manager", about, "\n".join(table)]) + "\n"


def choices(hint: object) -> str:
    if typing.get_origin(hint) is typing.Literal:
        return f"One of {', '.join(f'`{value}`' for value in typing.get_args(hint))}."
    return ""


def render_names() -> str:
    """Return the names that `fleet.settings` of the chart accepts, one per line."""
    variables = [
        variable for variable, _, _ in FleetSettings.documentation() if variable != DATABASE_VARIABLE
    ]
    return "".join(f"{variable.removeprefix(PREFIX)}\n" for variable in variables)


def main() -> None:
    for file, text in ((PAGE, render()), (NAMES, render_names())):
        if "--check" not in sys.argv:
            file.write_text(text, encoding="utf-8")
        elif file.read_text(encoding="utf-8") != text:
            sys.exit(f"{file.relative_to(ROOT)} is out of date: run {COMMAND}")


if __name__ == "__main__":
    main()
