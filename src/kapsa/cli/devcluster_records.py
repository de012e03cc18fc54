"""Records of running devclusters: a lock and a file for each, so that another terminal can stop them.

The lock decides whether a devcluster is alive: the kernel releases it when its holder exits, however that
happens. The file next to it only names the holder. A record whose lock is free is stale, and its process is
never signalled.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec

from kapsa.adapters.process.tools import cache_directory

__all__ = [
    "KUBECONFIG_MARK",
    "DevClusterRecord",
    "DevClusterTaken",
    "KubeconfigClaim",
    "check_free",
    "claim_kubeconfig",
    "find_record",
    "list_records",
    "stop_devcluster",
]

KUBECONFIG_MARK = "# Made by kapsa devcluster; removed when it stops.\n"
"""The first line of each kubeconfig written here. Only a file with this line is overwritten or removed."""

_STOP_SECONDS = 20.0
_POLL_SECONDS = 0.05


class DevClusterTaken(Exception):  # noqa: N818 - named as what happened
    """Another devcluster uses this kubeconfig, or the file was not made by a devcluster."""

    for_the_user = True


class DevClusterRecord(msgspec.Struct, frozen=True):
    """A devcluster that was started by `kapsa devcluster up`."""

    kubeconfig: Path
    engine: str
    pid: int
    url: str = ""
    """The address of the API server; empty until it is ready."""

    @property
    def stem(self) -> Path:
        return _stem(self.kubeconfig)

    @property
    def log(self) -> Path:
        """The output of a detached cluster."""
        return self.stem.with_suffix(".log")

    @property
    def alive(self) -> bool:
        with _try_lock(self.kubeconfig) as lock:
            return lock is None


class KubeconfigClaim:
    """The exclusive use of a kubeconfig file, held until the block of `claim_kubeconfig` ends."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig

    def record(self, engine: str, url: str = "") -> None:
        """Record this process, so that other terminals can find it."""
        record = DevClusterRecord(self._kubeconfig, engine, os.getpid(), url)
        file = record.stem.with_suffix(".json")
        partial = file.with_suffix(".new")
        partial.write_bytes(msgspec.json.encode(record, enc_hook=str))
        partial.replace(file)

    def write_kubeconfig(self, text: str) -> None:
        """Write the kubeconfig, readable by its owner only."""
        self._kubeconfig.unlink(missing_ok=True)
        handle = os.open(self._kubeconfig, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(KUBECONFIG_MARK + text)


@contextlib.contextmanager
def claim_kubeconfig(kubeconfig: Path) -> Iterator[KubeconfigClaim]:
    """Claim a kubeconfig for this process. When the block ends, the file and its record are removed.

    Raises `DevClusterTaken` when another devcluster uses the file, or when a devcluster did not make it.
    """
    with _try_lock(kubeconfig) as lock:
        if lock is None:
            record = find_record(kubeconfig)
            holder = f" (pid {record.pid})" if record else ""
            raise DevClusterTaken(
                f"a devcluster{holder} already uses {kubeconfig}; stop it with "
                f"`kapsa devcluster down --kubeconfig {kubeconfig}`, or choose another file with --kubeconfig"
            )
        try:
            if kubeconfig.exists() and not _is_ours(kubeconfig):
                raise DevClusterTaken(
                    f"{kubeconfig} exists and was not made by kapsa devcluster; choose another file with --kubeconfig"
                )
            yield KubeconfigClaim(kubeconfig)
        finally:
            _remove(kubeconfig)


def check_free(kubeconfig: Path) -> None:
    """Raise `DevClusterTaken` if the kubeconfig cannot be claimed."""
    with claim_kubeconfig(kubeconfig):
        return


def find_record(kubeconfig: Path) -> DevClusterRecord | None:
    """Return the record of this kubeconfig, even if its cluster is not running."""
    return _read(_stem(kubeconfig).with_suffix(".json"))


def list_records() -> list[DevClusterRecord]:
    """Return all records, including stale ones."""
    records = (_read(file) for file in sorted(_directory().glob("*.json")))
    return [record for record in records if record is not None]


def stop_devcluster(record: DevClusterRecord) -> bool:
    """Stop a devcluster and remove its files. Return False if it was not running."""
    if not record.alive:
        with _try_lock(record.kubeconfig) as lock:
            if lock is not None:
                _remove(record.kubeconfig)
        return False
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(record.pid, number)
        deadline = time.monotonic() + _STOP_SECONDS
        while time.monotonic() < deadline:
            with _try_lock(record.kubeconfig) as lock:
                if lock is not None:
                    _remove(record.kubeconfig)
                    return True
            time.sleep(_POLL_SECONDS)
    raise DevClusterTaken(
        f"the devcluster of {record.kubeconfig} (pid {record.pid}) is still running after SIGKILL"
    )


def _directory() -> Path:
    return cache_directory() / "devclusters"


def _stem(kubeconfig: Path) -> Path:
    return _directory() / hashlib.sha256(bytes(kubeconfig.absolute())).hexdigest()[:16]


def _read(file: Path) -> DevClusterRecord | None:
    try:
        return msgspec.json.decode(
            file.read_bytes(), type=DevClusterRecord, dec_hook=lambda kind, text: kind(text)
        )
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def _is_ours(kubeconfig: Path) -> bool:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return kubeconfig.read_text().startswith(KUBECONFIG_MARK)
    return False


def _remove(kubeconfig: Path) -> None:
    """Remove all files of a devcluster. The caller must hold the lock."""
    if _is_ours(kubeconfig):
        kubeconfig.unlink(missing_ok=True)
    for suffix in (".json", ".new", ".log", ".lock"):
        _stem(kubeconfig).with_suffix(suffix).unlink(missing_ok=True)


@contextlib.contextmanager
def _try_lock(kubeconfig: Path) -> Iterator[IO[bytes] | None]:
    """Yield the locked file, or None if another process holds the lock."""
    path = _stem(kubeconfig).with_suffix(".lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        if not _is_same(file, path):
            # The last holder removed the file between our open and our lock: the lock is on a deleted file.
            with _try_lock(kubeconfig) as again:
                yield again
            return
        yield file


def _is_same(file: IO[bytes], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
