"""The control plane's executables come from KUBEBUILDER_ASSETS, PATH or the cache, in this order."""

from pathlib import Path

import pytest

from kapsa.devcluster.real.binaries import build_directory, find_binaries, pinned_versions, recipe
from kapsa.devcluster.real.components import ALL_COMPONENTS, API_COMPONENTS, KUBERNETES
from tests.devcluster.real.process_watch import program

PRINTS = {"etcd": "etcd Version: {}", "kwok": "kwok version v{} go1.26 (linux/amd64)"}


@pytest.fixture(autouse=True)
def _machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def _install(directory: Path, *names: str, version: str = "") -> None:
    for name in names:
        output = PRINTS.get(name, "Kubernetes v{}").format(version or pinned_versions()[name])
        program(directory / name, f"#!/bin/sh\necho '{output}'\n")


def _sources(names: tuple[str, ...] = ALL_COMPONENTS) -> dict[str, str]:
    return {name: binary.source for name, binary in find_binaries(names).items()}


def test_an_empty_machine_has_none() -> None:
    assert find_binaries() == {}


def test_assets_come_before_path_and_path_before_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "assets"))
    _install(build_directory(), *ALL_COMPONENTS)
    assert set(_sources().values()) == {"cache"}
    _install(tmp_path / "bin", *ALL_COMPONENTS)
    assert set(_sources().values()) == {"PATH"}
    _install(tmp_path / "assets", *ALL_COMPONENTS)
    assert set(_sources().values()) == {"KUBEBUILDER_ASSETS"}


def test_programs_of_kubernetes_have_one_source_because_they_must_have_one_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """envtest has only etcd and kube-apiserver."""
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "assets"))
    _install(tmp_path / "assets", "etcd", "kube-apiserver")
    _install(build_directory(), *ALL_COMPONENTS)
    assert _sources() == {
        "etcd": "KUBEBUILDER_ASSETS",
        "kube-apiserver": "cache",
        "kube-controller-manager": "cache",
        "kube-scheduler": "cache",
        "kwok": "cache",
    }
    assert _sources(API_COMPONENTS) == {"etcd": "KUBEBUILDER_ASSETS", "kube-apiserver": "KUBEBUILDER_ASSETS"}


def test_an_executable_on_path_that_is_too_old_is_skipped(tmp_path: Path) -> None:
    _install(tmp_path / "bin", "etcd", version="3.4.30")
    _install(tmp_path / "bin", *KUBERNETES, version="1.31.0")
    assert _sources() == {}
    _install(tmp_path / "bin", "etcd", version="3.5.13")
    assert _sources() == {"etcd": "PATH"}


def test_a_file_that_cannot_be_executed_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    (tmp_path / "etcd").write_text("no program")
    assert _sources(("etcd",)) == {}


def test_the_pins_are_of_one_current_minor() -> None:
    versions = pinned_versions()
    assert len({versions[name] for name in KUBERNETES}) == 1
    assert versions["kube-apiserver"].startswith(("1.35.", "1.36."))
    assert f"v{versions['kube-apiserver']}-" in build_directory().name


def test_a_build_sets_the_version_of_kubernetes() -> None:
    variables = recipe("kube-apiserver").version_variables
    assert variables["k8s.io/component-base/version.gitVersion"] == f"v{pinned_versions()['kube-apiserver']}"
