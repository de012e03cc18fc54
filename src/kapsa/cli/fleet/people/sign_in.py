"""`kapsa fleet login`, `logout` and `whoami`: the login that the other commands use."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import Annotated

import typer

from kapsa.cli.fleet.client.connection import call_manager, connect
from kapsa.cli.fleet.client.manager_api import ManagerApi, as_type
from kapsa.cli.fleet.client.profile import (
    Profile,
    check_authority,
    check_server,
    check_token,
    profile_path,
)
from kapsa.cli.tables import (
    OutputFormat,
    OutputOption,
    format_duration,
    print_document,
    print_fields,
    printable,
)
from kapsa.cli.target import TargetError
from kapsa.fleet.api.views import SessionView

__all__ = ["login", "logout", "whoami"]

_LONGEST = 16 * 1024


def login(
    server: Annotated[
        str,
        typer.Argument(
            metavar="[URL]",
            help="The manager, such as https://fleet.example.com (default: the one on this machine).",
        ),
    ] = "",
    token_file: Annotated[
        Path | None, typer.Option(help="A file with the token (default: standard input, or a prompt).")
    ] = None,
    ca: Annotated[
        Path | None, typer.Option(help="A file with the authority of the manager's certificate.")
    ] = None,
    plain_http: Annotated[
        bool, typer.Option("--plain-http", help="Send the token unencrypted, to another machine.")
    ] = False,
) -> None:
    """Log in to a manager, and store the address and the token for the other commands, readable by you only.

    The token is tried first. Examples: `kapsa fleet token ada | kapsa fleet login`, or
    `kapsa fleet login https://fleet.example.com`, which asks for the token.
    """
    profile = Profile(
        server=check_server(server or _local_server(), plain_http=plain_http),
        token=check_token(_read_token(token_file)),
        authority=check_authority(ca) if ca else "",
    )
    session = connect(profile, _session)
    path = profile_path()
    profile.save(path)
    typer.echo(f"logged in to {profile.server} as {_described(session)}")
    typer.echo(f"the login is in {path}", err=True)


def logout() -> None:
    """Forget the stored login. The token itself is valid until it expires."""
    path = profile_path()
    try:
        path.unlink()
    except FileNotFoundError:
        typer.echo("you were not logged in", err=True)
        return
    except OSError as error:
        raise TargetError(f"the login in {path} cannot be removed: {error.strerror}") from error
    typer.echo("logged out; the token itself stays valid until it expires")


def whoami(output: OutputOption = OutputFormat.TABLE) -> None:
    """Show who you are to the manager, your roles, and until when."""

    async def read(api: ManagerApi) -> tuple[SessionView, str, float]:
        session = await _session(api)
        return session, api.url, (session.expires_at - api.now).total_seconds()

    session, url, rest = call_manager(read)
    match output:
        case OutputFormat.NAME:
            typer.echo(printable(session.subject))
        case OutputFormat.TABLE:
            print_fields(
                [
                    ("manager", url),
                    ("subject", session.subject),
                    ("email", session.email),
                    ("roles", ", ".join(session.roles)),
                    ("owner of", ", ".join(session.environments)),
                    ("expires in", format_duration(rest)),
                ]
            )
        case _:
            print_document(session, output)


async def _session(api: ManagerApi) -> SessionView:
    return as_type(await api.get("/session"), SessionView)


def _described(session: SessionView) -> str:
    roles = ", ".join(session.roles) or "no role"
    return f"{printable(session.subject)} ({roles}), until {session.expires_at:%Y-%m-%d %H:%M} UTC"


def _read_token(file: Path | None) -> str:
    try:
        if file is not None:
            return file.read_text(encoding="ascii")[:_LONGEST]
        if not sys.stdin.isatty():
            return sys.stdin.read(_LONGEST)
        return getpass.getpass("Token: ")
    except OSError as error:
        raise TargetError(f"the token cannot be read: {error.strerror}") from error
    except (ValueError, EOFError):
        raise TargetError("the token cannot be read: it must be one line of ASCII") from None


def _local_server() -> str:
    """Return the address of the manager that `kapsa fleet serve` starts with the present settings."""
    from kapsa.fleet.settings import FleetSettings

    settings = FleetSettings.from_environment()
    scheme = "http" if settings.tls_certificate is None else "https"
    return f"{scheme}://127.0.0.1:{settings.listen_port}"
