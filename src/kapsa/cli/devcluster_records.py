"""Which devclusters run: a lock and a small file for each, so that another terminal can find and stop them.

The lock tells the truth about life and death (the kernel frees it when its holder dies, however it dies); the file beside
it only says who the holder is. So a record whose lock is free is stale, and never a reason to signal a process.
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
"""The first line of every kubeconfig written here: only a file that has it is ever overwritten or removed."""

_STOP_SECONDS = 20.0
_POLL_SECONDS = 0.05


class DevClusterTaken(Exception):  # noqa: N818 - named as what happened
    """Another devcluster uses this kubeconfig, or the file is someone else's."""

    for_the_user = True


class DevClusterRecord(msgspec.Struct, frozen=True):
    """A devcluster that was started by `kapsa devcluster up`."""

    kubeconfig: Path
    engine: str
    pid: int
    url: str = ""
    """Empty until it is ready."""

    @property
    def stem(self) -> Path:
        return _stem(self.kubeconfig)

    @property
    def log(self) -> Path:
        """What a detached cluster printed."""
        return self.stem.with_suffix(".log")

    @property
    def alive(self) -> bool:
        with _try_lock(self.kubeconfig) as lock:
            return lock is None


class KubeconfigClaim:
    """The right to a kubeconfig file, held until the end of `claim_kubeconfig()`."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig

    def note(self, engine: str, url: str = "") -> None:
        """Tell other terminals about this process."""
        record = DevClusterRecord(self._kubeconfig, engine, os.getpid(), url)
        file = record.stem.with_suffix(".json")
        unfinished = file.with_suffix(".new")
        unfinished.write_bytes(msgspec.json.encode(record, enc_hook=str))
        unfinished.replace(file)

    def write_kubeconfig(self, text: str) -> None:
        """Write the file, readable by its owner only."""
        self._kubeconfig.unlink(missing_ok=True)
        handle = os.open(self._kubeconfig, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(KUBECONFIG_MARK + text)


@contextlib.contextmanager
def claim_kubeconfig(kubeconfig: Path) -> Iterator[KubeconfigClaim]:
    """Be the only devcluster of this kubeconfig; at the end nothing of it is left.

    :raises DevClusterTaken: another runs, or the file is not one of ours.
    """
    with _try_lock(kubeconfig) as lock:
        if lock is None:
            record = find_record(kubeconfig)
            who = f" (pid {record.pid})" if record else ""
            raise DevClusterTaken(
                f"a devcluster{who} uses {kubeconfig} already; stop it with "
                f"`kapsa devcluster down --kubeconfig {kubeconfig}`, or name another file"
            )
        try:
            if kubeconfig.exists() and not _is_ours(kubeconfig):
                raise DevClusterTaken(
                    f"{kubeconfig} exists and was not made by kapsa devcluster; name another file"
                )
            yield KubeconfigClaim(kubeconfig)
        finally:
            _forget(kubeconfig)


def check_free(kubeconfig: Path) -> None:
    """Raise what `claim_kubeconfig()` would raise."""
    with claim_kubeconfig(kubeconfig):
        return


def find_record(kubeconfig: Path) -> DevClusterRecord | None:
    """The record of this kubeconfig, be its cluster alive or not."""
    return _read(_stem(kubeconfig).with_suffix(".json"))


def list_records() -> list[DevClusterRecord]:
    """Every record, stale ones included."""
    records = (_read(file) for file in sorted(_directory().glob("*.json")))
    return [record for record in records if record is not None]


def stop_devcluster(record: DevClusterRecord) -> bool:
    """End a devcluster and wait until nothing of it is left. False: it was dead already, only its traces are removed."""
    if not record.alive:
        with _try_lock(record.kubeconfig) as lock:
            if lock is not None:
                _forget(record.kubeconfig)
        return False
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(record.pid, number)
        deadline = time.monotonic() + _STOP_SECONDS
        while time.monotonic() < deadline:
            with _try_lock(record.kubeconfig) as lock:
                if lock is not None:
                    _forget(record.kubeconfig)
                    return True
            time.sleep(_POLL_SECONDS)
    raise DevClusterTaken(
        f"the devcluster of {record.kubeconfig} (pid {record.pid}) does not end, not even by SIGKILL"
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


def _forget(kubeconfig: Path) -> None:
    """Remove every trace. Only for who holds the lock."""
    if _is_ours(kubeconfig):
        kubeconfig.unlink(missing_ok=True)
    for suffix in (".json", ".new", ".log", ".lock"):
        _stem(kubeconfig).with_suffix(suffix).unlink(missing_ok=True)


@contextlib.contextmanager
def _try_lock(kubeconfig: Path) -> Iterator[IO[bytes] | None]:
    """The lock of this kubeconfig, or None if another process has it."""
    path = _stem(kubeconfig).with_suffix(".lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        if not _is_same(file, path):
            # Its last holder removed it between our open and our lock: that file is nobody's any more.
            with _try_lock(kubeconfig) as again:
                yield again
            return
        yield file


def _is_same(file: IO[bytes], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
