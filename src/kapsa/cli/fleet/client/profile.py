"""The login that `kapsa fleet login` stores: the address of a manager, its authority, and a token."""

from __future__ import annotations

import os
import ssl
import stat
import tempfile
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from kapsa.cli.target import TargetError

__all__ = ["Profile", "check_authority", "check_server", "check_token", "is_loopback", "profile_path"]

VARIABLE = "KAPSA_FLEETCONFIG"
_LONGEST_TOKEN = 8 * 1024
_LARGEST_FILE = 1024 * 1024


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A manager, and how to reach it."""

    server: str
    """The address without a trailing slash, such as `https://fleet.example.com`."""
    token: str
    authority: str = ""
    """Certificates in PEM that the manager's own is checked against; empty for those of the system."""

    def __repr__(self) -> str:
        return f"Profile({self.server})"  # the token must not appear in a traceback

    @classmethod
    def load(cls, path: Path) -> Profile:
        """Read the stored login. Raises TargetError if there is none, or if others may read it."""
        try:
            content = _read_private(path)
        except FileNotFoundError:
            raise TargetError(
                "you are not logged in to a fleet manager: run `kapsa fleet login URL` first"
            ) from None
        except OSError as error:
            raise TargetError(f"the login in {path} cannot be read: {error.strerror}") from error
        try:
            return msgspec.json.decode(content, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise TargetError(
                f"the login in {path} is damaged: run `kapsa fleet login URL` to replace it"
            ) from None

    def save(self, path: Path) -> None:
        """Replace the stored login, at once and for this user only."""
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n")
                    file.flush()
                    os.fsync(file.fileno())
                Path(temporary).replace(path)
            except BaseException:
                with suppress(FileNotFoundError):
                    Path(temporary).unlink()
                raise
        except OSError as error:
            raise TargetError(f"the login cannot be stored in {path}: {error.strerror}") from error


def profile_path() -> Path:
    """Return the file of the login: `KAPSA_FLEETCONFIG`, or `kapsa/fleet.json` among the user's settings."""
    if configured := os.environ.get(VARIABLE):
        return Path(configured)
    base = os.environ.get("XDG_CONFIG_HOME", "")
    directory = Path(base) if Path(base).is_absolute() else Path.home() / ".config"
    return directory / "kapsa" / "fleet.json"


def _read_private(path: Path) -> bytes:
    with path.open("rb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & 0o077:
            raise TargetError(
                f"the login in {path} is open to other users (mode {mode:o}): its token may be known to them. "
                f"Run `chmod 600 {path}`, and log in again with a new token"
            )
        return file.read(_LARGEST_FILE)


def is_loopback(server: str) -> bool:
    """Return whether an address is on this machine."""
    host = urlsplit(server).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_server(text: str, *, plain_http: bool) -> str:
    """Return the address of a manager in its usual form. Raises TargetError with what is wrong with it."""
    text = text.strip().rstrip("/").removesuffix("/api/v1")
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable or not text.isascii() or not text.isprintable() or " " in text:
        raise TargetError(
            f"{text[:200]!r} is not the address of a manager: use https://HOST or https://HOST:PORT"
        )
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise TargetError("the address of a manager has no user, query or fragment: use https://HOST[:PORT]")
    if parts.scheme == "http" and not plain_http and not is_loopback(text):
        raise TargetError(
            f"{text} would carry your token unencrypted: use https://, or add --plain-http if the network is yours"
        )
    return text


def check_token(text: str) -> str:
    """Return a token without the white space around it. Raises TargetError if it is not one."""
    token = text.strip()
    if not token:
        raise TargetError(
            "no token was given: paste it when asked, or pipe it in: `... | kapsa fleet login URL`"
        )
    if len(token) > _LONGEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise TargetError(
            "what was given is not a token: it must be one line, as `kapsa fleet token` prints it"
        )
    return token


def check_authority(path: Path) -> str:
    """Return the certificates in a file. Raises TargetError if it has none."""
    try:
        text = path.read_text(encoding="ascii")
        ssl.create_default_context(cadata=text)
    except OSError as error:
        # ssl.SSLError, which is an OSError, has a reason of its own.
        raise TargetError(
            f"--ca {path} cannot be used: {getattr(error, 'reason', '') or error.strerror}"
        ) from error
    except ValueError:
        raise TargetError(f"--ca {path} cannot be used: it has no certificates in PEM") from None
    return text
