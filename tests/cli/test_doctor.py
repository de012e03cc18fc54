"""`kapsa doctor` and `kapsa tools`: the tools that are installed, and advice on missing ones."""

import importlib.metadata
import json
import shutil
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from kapsa.cli import doctor
from kapsa.cli.tools import app as tools
from kapsa.devcluster import DevCluster
from tests.devcluster.real.process_watch import program

NAMES = [
    "python", "cache", "git", "helm", "kubectl", "go",
    "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "cluster",
]  # fmt: skip


@pytest.fixture(autouse=True)
def _machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with git and nothing else."""

    def no_distribution(name: str) -> importlib.metadata.Distribution:
        raise importlib.metadata.PackageNotFoundError(name)

    program(tmp_path / "bin" / "git", "#!/bin/sh\necho git version 2.45.1\n")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("KUBECONFIG", "KUBEBUILDER_ASSETS", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(importlib.metadata, "distribution", no_distribution)
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")


def _doctor(*arguments: str) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(doctor.command)
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output


def _findings() -> dict[str, dict[str, str]]:
    _, output = _doctor("--output", "json")
    return {finding["name"]: finding for finding in json.loads(output)}


def test_the_essentials_are_enough_for_exit_code_0() -> None:
    code, output = _doctor()
    assert code == 0, output
    for name in NAMES:
        assert name in output


def test_missing_tools_come_with_advice() -> None:
    findings = _findings()
    assert list(findings) == NAMES
    assert findings["git"]["status"] == "ok"
    assert findings["git"]["version"] == "2.45.1"
    for name, advice in {
        "helm": "kapsa tools install helm",
        "kubectl": "kapsa tools install kubectl",
        "go": "https://go.dev/dl",
        "kube-apiserver": "kapsa devcluster build",
        "cluster": "kapsa devcluster up",
    }.items():
        assert findings[name]["status"] == "missing"
        assert advice in findings[name]["advice"]


def test_a_missing_essential_is_exit_code_1(tmp_path: Path) -> None:
    (tmp_path / "bin" / "git").unlink()
    code, output = _doctor()
    assert code == 1
    assert "package manager" in output
    assert _findings()["git"]["status"] == "broken"


def test_a_full_disk_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10 << 20))
    cache = _findings()["cache"]
    assert cache["status"] == "broken"
    assert "nearly full" in cache["advice"]


def test_go_and_the_control_plane_are_found_with_their_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "bin" / "go", "#!/bin/sh\necho go version go1.26.8 linux/amd64\n")
    program(tmp_path / "assets" / "etcd", "#!/bin/sh\necho etcd Version: 3.6.8\n")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "assets"))
    findings = _findings()
    assert findings["go"]["version"] == "1.26.8"
    assert findings["etcd"]["version"] == "3.6.8"
    assert findings["etcd"]["where"] == f"{tmp_path}/assets/etcd (KUBEBUILDER_ASSETS)"


def test_an_unreachable_cluster_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
                "users": [{"name": "u", "user": {}}],
            }
        )
    )
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    cluster = _findings()["cluster"]
    assert cluster["status"] == "missing"
    assert "not reachable" in cluster["where"]


async def test_a_reachable_cluster_is_reported_with_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    async with DevCluster() as cluster:
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
        finding = await doctor.examine_cluster()
    assert finding.status is doctor.CheckStatus.OK
    assert finding.version.startswith("v1.")


def test_tools_are_shown_and_a_missing_one_is_exit_code_1() -> None:
    result = CliRunner().invoke(tools, [])
    assert result.exit_code == 1
    assert "git      2.45.1   PATH" in result.output
    assert "helm     missing: helm 4.2 or newer is needed" in result.output


def test_an_unknown_tool_is_rejected() -> None:
    result = CliRunner().invoke(tools, ["install", "docker"])
    assert result.exit_code == 2
    assert "docker is not one of helm, kubectl, git" in result.output
