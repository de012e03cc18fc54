"""The OS user of the embedded server: ourselves, or `nobody` when we are root, which PostgreSQL refuses to run as."""

import os
import pwd
import subprocess
from pathlib import Path
from typing import Any

import msgspec

from kapsa.fleet.infrastructure.postgres.database import DatabaseError
from kapsa.fleet.infrastructure.postgres.programs import ENVIRONMENT

__all__ = ["ServerUser", "own_name", "server_user"]


class ServerUser(msgspec.Struct, frozen=True):
    """The user that runs the server."""

    name: str
    uid: int
    gid: int
    is_other: bool
    """True if it is not the user of this process."""

    def process_options(self) -> dict[str, Any]:
        """Return the options of `subprocess` that start a program as this user."""
        if not self.is_other:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def own(self, path: Path | int) -> None:
        """Give a file or directory that we have just made to this user; a file as its descriptor."""
        if self.is_other:
            os.chown(path, self.uid, self.gid)

    def check_reach(self, directory: Path) -> None:
        """Raise DatabaseError, with the directory that is closed, unless this user can enter the directory."""
        if not self.is_other:
            return
        steps = [str(step) for step in (*reversed(directory.parents), directory)]
        script = 'for step; do cd "$step" 2>/dev/null || { printf %s "$step"; exit 1; }; done'
        done = subprocess.run(  # noqa: S603 - constant script
            ["/bin/sh", "-c", script, "sh", *steps],
            cwd="/",
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            check=False,
            **self.process_options(),
        )
        if done.returncode:
            raise DatabaseError(
                f"PostgreSQL runs as {self.name}, because we are root, but {self.name} cannot enter {done.stdout}: "
                "choose another KAPSA_FLEET_DATA_DIRECTORY, run as another user, or set KAPSA_DATABASE_URL"
            )

    def check_program(self, program: Path) -> None:
        """Raise DatabaseError unless this user can run the program."""
        try:
            subprocess.run(  # noqa: S603 - a program of PostgreSQL
                [program, "--version"],
                cwd="/",
                env=ENVIRONMENT,
                capture_output=True,
                check=True,
                **self.process_options(),
            )
        except (OSError, subprocess.CalledProcessError) as error:
            raise DatabaseError(
                f"{program} cannot be run as {self.name}: {error}. Install PostgreSQL where {self.name} can run it, "
                "run as another user, or set KAPSA_DATABASE_URL"
            ) from None


def own_name() -> str:
    """Return the name of this process's user, which peer authentication compares."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        raise DatabaseError(
            f"user id {os.geteuid()} has no name on this machine, which PostgreSQL's peer authentication needs: "
            "add the user to /etc/passwd, or set KAPSA_DATABASE_URL"
        ) from None


def server_user() -> ServerUser:
    """Return the user that runs the server."""
    name, uid = own_name(), os.geteuid()
    if uid != 0:
        return ServerUser(name, uid, os.getegid(), is_other=False)
    try:
        nobody = pwd.getpwnam("nobody")
    except KeyError:
        raise DatabaseError(
            "PostgreSQL cannot run as root, and this machine has no user `nobody`: run as another user, "
            "or set KAPSA_DATABASE_URL"
        ) from None
    return ServerUser(nobody.pw_name, nobody.pw_uid, nobody.pw_gid, is_other=True)
