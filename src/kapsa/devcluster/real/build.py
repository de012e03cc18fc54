"""The build of the real control plane with Go: once per machine, one executable after another."""

import asyncio
import contextlib
import errno
import fcntl
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import msgspec

from kapsa.devcluster.errors import BinaryNotFound, BuildFailed
from kapsa.devcluster.real.binaries import (
    build_directory,
    find_binaries,
    module_directory,
    pinned_versions,
    recipe,
)
from kapsa.devcluster.real.components import ALL_COMPONENTS
from kapsa.devcluster.real.supervisor import Component, Supervisor, last_error_line

__all__ = ["BinaryBuildProgress", "PlainProgress", "Progress", "describe", "ensure_binaries"]

_POLL_SECONDS = 0.2
_NO_SPACE = "no space left on device"


class BinaryBuildProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a build, reported a few times a second."""

    binary: str
    version: str
    number: int
    """The position of the executable among those to build, from 1."""
    total: int
    step: str
    """`waiting` (for another process' build), `resolving` (and downloading modules), `compiling`, `done`."""
    packages: int = 0
    """Modules downloaded while resolving, packages compiled while compiling."""
    packages_total: int = 0
    """The most packages there can be: cached ones are not compiled again. 0 until they are counted."""
    seconds: float


Progress = Callable[[BinaryBuildProgress], None]


class PlainProgress:
    """Progress as lines, for logs and pipes: one at each step, and one every ten seconds."""

    def __init__(self, write: Callable[[str], object] = sys.stderr.write, *, interval: float = 10.0) -> None:
        self._write = write
        self._interval = interval
        self._last: tuple[str, str] | None = None
        self._next = 0.0

    def __call__(self, progress: BinaryBuildProgress) -> None:
        current = (progress.binary, progress.step)
        if current == self._last and progress.seconds < self._next:
            return
        self._last, self._next = current, progress.seconds + self._interval
        self._write(f"{describe(progress)}\n")


def describe(progress: BinaryBuildProgress) -> str:
    """Describe the progress of a build in one line."""
    where = f"[{progress.number}/{progress.total}] {progress.binary} {progress.version}"
    match progress.step:
        case "waiting":
            return "Waiting for another process to build the control plane"
        case "resolving":
            downloads = f", {progress.packages} modules downloaded" if progress.packages else ""
            return f"{where}: resolving modules{downloads} ({progress.seconds:.0f} s)"
        case "compiling":
            return f"{where}: compiled {progress.packages} of at most {progress.packages_total} packages ({progress.seconds:.0f} s)"
        case _:
            return f"{where}: built in {progress.seconds:.0f} s"


async def ensure_binaries(
    names: Sequence[str] = ALL_COMPONENTS, *, progress: Progress | None = None
) -> dict[str, Path]:
    """Locate the executables, and build the missing ones. A second process waits for the first one's build.

    Raises BinaryNotFound if a build is needed and Go is not installed, BuildFailed if a build fails.
    """
    binaries = await asyncio.to_thread(find_binaries, names)
    if len(binaries) < len(names):
        go = shutil.which("go")
        if go is None:
            missing = ", ".join(name for name in names if name not in binaries)
            raise BinaryNotFound(
                f"{missing}: not in KUBEBUILDER_ASSETS, on PATH or in the cache, and Go, which builds them, is not on PATH. "
                "Install Go (https://go.dev/dl), or set KUBEBUILDER_ASSETS to a directory that contains them"
            )
        report = progress or PlainProgress()
        try:
            await _build_missing(go, names, report)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise BuildFailed(_full_disk("the control plane")) from error
            raise BuildFailed(f"building the control plane failed: {error}") from error
        binaries = await asyncio.to_thread(find_binaries, names)
    return {name: binary.path for name, binary in binaries.items()}


async def _build_missing(go: str, names: Sequence[str], report: Progress) -> None:
    target = build_directory()
    target.mkdir(parents=True, exist_ok=True)
    async with _only_builder(target.with_name(f"{target.name}.lock"), report):
        present = find_binaries(names)
        missing = [name for name in names if name not in present and not (target / name).exists()]
        if not missing:
            return
        supervisor = await Supervisor.start(target.parent)
        try:
            for number, name in enumerate(missing, start=1):
                await _Build(go, name, number, len(missing), supervisor, report).run(target)
        finally:
            await asyncio.shield(supervisor.close())


class _Build:
    """The build of one executable."""

    def __init__(
        self, go: str, name: str, number: int, total: int, supervisor: Supervisor, report: Progress
    ) -> None:
        self._go = go
        self._name = name
        self._number = number
        self._total = total
        self._supervisor = supervisor
        self._report = report
        self._began = time.monotonic()

    async def run(self, target: Path) -> None:
        recipe_ = recipe(self._name)
        packages = await self._go_command(
            "resolving", ["list", "-deps", recipe_.package], _count_downloads, 0
        )
        output = self._supervisor.directory / self._name
        variables = " ".join(f"-X {key}={value}" for key, value in recipe_.version_variables.items())
        arguments = [
            "build",
            "-v",
            "-trimpath",
            "-buildvcs=false",
            f"-ldflags=-s -w {variables}",
            "-o",
            str(output),
        ]
        await self._go_command("compiling", [*arguments, recipe_.package], _count_packages, packages)
        # Renamed when complete: an interrupted build leaves nothing that looks like an executable.
        output.replace(target / self._name)
        self._report_step("done", packages, packages)

    async def _go_command(
        self, step: str, arguments: Sequence[str], count: Callable[[str], int], packages_total: int
    ) -> int:
        """Run Go and return how many packages its output names. Raises BuildFailed if Go fails."""
        # An installed package's module directory is read-only; a workspace around it must not interfere.
        env = dict(os.environ, CGO_ENABLED="0", GOWORK="off", GOTMPDIR=str(self._supervisor.directory))
        command = [self._go, arguments[0], "-C", str(module_directory()), "-mod=readonly", *arguments[1:]]
        component = await self._supervisor.run(f"{self._name}-{step}", command, env)
        self._report_step(step, 0, packages_total)
        while component.running:
            await asyncio.wait([component.exited], timeout=_POLL_SECONDS)
            self._report_step(step, count(_read(component.log)), packages_total)
        if component.exited.result() != 0:
            raise self._failure(component)
        return _count_packages(_read(component.log))

    def _failure(self, component: Component) -> BuildFailed:
        text = _read(component.log)
        if _NO_SPACE in text:
            return BuildFailed(_full_disk(self._name))
        log = build_directory().with_name(f"build-{self._name}.log")
        with contextlib.suppress(OSError):
            shutil.copyfile(component.log, log)
        reason = _last_message(text) or last_error_line(component.log) or "Go gave no reason"
        return BuildFailed(f"building {self._name} failed: {reason} (full log: {log})")

    def _report_step(self, step: str, packages: int, packages_total: int) -> None:
        self._report(
            BinaryBuildProgress(
                binary=self._name,
                version=pinned_versions()[self._name],
                number=self._number,
                total=self._total,
                step=step,
                packages=packages,
                packages_total=packages_total,
                seconds=time.monotonic() - self._began,
            )
        )


@contextlib.asynccontextmanager
async def _only_builder(path: Path, report: Progress) -> AsyncIterator[None]:
    began = time.monotonic()
    with path.open("wb") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                report(
                    BinaryBuildProgress(
                        binary="",
                        version="",
                        number=0,
                        total=0,
                        step="waiting",
                        seconds=time.monotonic() - began,
                    )
                )
                await asyncio.sleep(_POLL_SECONDS)
        yield


def _read(log: Path) -> str:
    with contextlib.suppress(FileNotFoundError):
        return log.read_text(errors="replace")
    return ""


def _count_downloads(text: str) -> int:
    return text.count("go: downloading ")


def _count_packages(text: str) -> int:
    return sum(1 for line in text.splitlines() if line and " " not in line)


def _last_message(text: str) -> str:
    """Return the last line that is not progress: Go prints the packages and downloads, too."""
    messages = [
        line.strip() for line in text.splitlines() if " " in line and not line.startswith("go: downloading")
    ]
    return messages[-1] if messages else ""


def _full_disk(target: str) -> str:
    free = shutil.disk_usage(build_directory().parent).free / 1e9
    return (
        f"no space left on the disk while building {target} ({free:.1f} GB free in {build_directory().parent}). "
        "The first build needs about 6 GB, most of it in Go's own caches (`go env GOCACHE GOMODCACHE`); "
        "free some and try again"
    )
