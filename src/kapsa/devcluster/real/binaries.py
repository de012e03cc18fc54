"""The executables of the real control plane: their paths, pinned versions and build recipes.

They are taken from `KUBEBUILDER_ASSETS`, PATH or the cache directory, in this order. A missing one is built
with Go (`build`) from the module that pins their versions: `tools/controlplane` in the repository, shipped
with the package.
"""

import functools
import hashlib
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from kapsa.devcluster.real.components import (
    ALL_COMPONENTS,
    API_SERVER,
    CONTROLLER_MANAGER,
    ETCD,
    KUBERNETES,
    KWOK,
    SCHEDULER,
)

__all__ = [
    "Binary",
    "Recipe",
    "build_directory",
    "find_binaries",
    "module_directory",
    "pinned_versions",
    "recipe",
]

ASSETS_VARIABLE = "KUBEBUILDER_ASSETS"
DROP_IN_MARK = ".kapsa-envtest"
"""A file in directories of `kapsa devcluster envtest`, whose programs are the embedded engine."""


class Binary(msgspec.Struct, frozen=True):
    """An executable of the control plane on this machine."""

    name: str
    path: Path
    source: str
    """Its origin: `KUBEBUILDER_ASSETS`, `PATH` or `cache`."""


class Recipe(msgspec.Struct, frozen=True):
    """The inputs for the build of one executable."""

    package: str
    """The path of its main package."""
    version_variables: Mapping[str, str]
    """Go variables that the linker sets, so that the executable reports its version."""


_MODULES = {
    ETCD: "go.etcd.io/etcd/server/v3",
    API_SERVER: "k8s.io/kubernetes",
    CONTROLLER_MANAGER: "k8s.io/kubernetes",
    SCHEDULER: "k8s.io/kubernetes",
    KWOK: "sigs.k8s.io/kwok",
}
_PACKAGES = {
    ETCD: "go.etcd.io/etcd/server/v3",
    API_SERVER: "k8s.io/kubernetes/cmd/kube-apiserver",
    CONTROLLER_MANAGER: "k8s.io/kubernetes/cmd/kube-controller-manager",
    SCHEDULER: "k8s.io/kubernetes/cmd/kube-scheduler",
    KWOK: "sigs.k8s.io/kwok/cmd/kwok",
}
# An executable on PATH must accept the flags of components.py, and etcd the requests of a streamed list.
_PATH_MINIMUM = {
    ETCD: "3.5.13",
    API_SERVER: "1.35",
    CONTROLLER_MANAGER: "1.35",
    SCHEDULER: "1.35",
    KWOK: "0.8",
}


def find_binaries(names: Sequence[str] = ALL_COMPONENTS) -> dict[str, Binary]:
    """Locate the executables on this machine, without building any. Missing ones are left out."""
    binaries: dict[str, Binary] = {}
    for group in _groups(names):
        for source, search in _SOURCES.items():
            paths = {name: search(name) for name in group}
            if all(path is not None for path in paths.values()):
                binaries.update(
                    (name, Binary(name, path, source)) for name, path in paths.items() if path is not None
                )
                break
    return binaries


def _groups(names: Sequence[str]) -> list[list[str]]:
    """Group the executables that must have one source: those of Kubernetes need the same version."""
    together = [name for name in names if name in KUBERNETES]
    alone = [[name] for name in names if name not in KUBERNETES]
    return [together, *alone] if together else alone


def _in_assets(name: str) -> Path | None:
    directory = os.environ.get(ASSETS_VARIABLE)
    if not directory or (Path(directory) / DROP_IN_MARK).exists():
        return None
    return _executable(Path(directory) / name)


def _on_path(name: str) -> Path | None:
    for directory in os.get_exec_path():
        path = shutil.which(name, path=directory)
        if path and _version_tuple(version_of(Path(path)) or "") >= _version_tuple(_PATH_MINIMUM[name]):
            return Path(path).absolute()
    return None


def _in_cache(name: str) -> Path | None:
    return _executable(build_directory() / name)


_SOURCES = {ASSETS_VARIABLE: _in_assets, "PATH": _on_path, "cache": _in_cache}


def _executable(path: Path) -> Path | None:
    return path.absolute() if path.is_file() and os.access(path, os.X_OK) else None


def version_of(path: Path) -> str | None:
    """Return the version that an executable reports, None if it reports none."""
    try:
        result = subprocess.run(  # noqa: S603 - an executable of the control plane
            [path, "--version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"[vV]ersion:? v?(\d+\.\d+\.\d+)|Kubernetes v(\d+\.\d+\.\d+)", result.stdout)
    return (match[1] or match[2]) if match else None


def _version_tuple(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part)


def module_directory() -> Path:
    """Return the Go module that pins the control plane, in an installed package or in the repository."""
    shipped = Path(__file__).parent / "controlplane"
    return shipped if shipped.is_dir() else Path(__file__).parents[4] / "tools" / "controlplane"


@functools.cache
def pinned_versions() -> dict[str, str]:
    """Return the version of each executable that a build produces, without the leading v."""
    text = (module_directory() / "go.mod").read_text()
    versions = {}
    for name, module in _MODULES.items():
        required = re.search(rf"^(?:require )?\s*{re.escape(module)} v(\S+)", text, re.MULTILINE)
        if required is None:
            raise LookupError(f"{module_directory() / 'go.mod'} does not require {module}")
        versions[name] = required[1]
    return versions


def recipe(name: str) -> Recipe:
    version = pinned_versions()[name]
    if name not in KUBERNETES:
        return Recipe(_PACKAGES[name], {})
    major, minor, _ = version.split(".", 2)
    variables = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return Recipe(
        _PACKAGES[name],
        {f"{package}.{key}": value for package in packages for key, value in variables.items()},
    )


@functools.cache
def _fingerprint() -> str:
    """Return a digest of all inputs of a build, so that each combination gets a directory of its own."""
    digest = hashlib.sha256()
    for file in ("go.mod", "go.sum"):
        digest.update((module_directory() / file).read_bytes())
    digest.update(msgspec.json.encode({name: recipe(name) for name in ALL_COMPONENTS}, order="sorted"))
    return digest.hexdigest()[:12]


def build_directory() -> Path:
    """Return the directory for the built executables of the pinned versions."""
    machine = f"{platform.system().lower()}-{platform.machine().lower()}"
    return (
        _cache_directory() / "controlplane" / f"v{pinned_versions()[API_SERVER]}-{_fingerprint()}-{machine}"
    )


def _cache_directory() -> Path:
    """Return the directory for built programs, below `XDG_CACHE_HOME` if that is an absolute path."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "kapsa"
