"""The build of the control plane, with a fake Go whose behaviour a test sets."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from kapsa.devcluster.errors import BinaryNotFound, BuildFailed
from kapsa.devcluster.real.binaries import build_directory
from kapsa.devcluster.real.build import BinaryBuildProgress, PlainProgress, ensure_binaries
from kapsa.devcluster.real.components import ALL_COMPONENTS, API_COMPONENTS
from tests.devcluster.real.process_watch import program, until, until_gone

GO = """#!/bin/sh
# go list|build -C DIRECTORY ...; the last argument is the package, -o names the output
echo "$1 $$" >> "$GO_CALLS"
for argument; do package=$argument; done
case "$1" in
list)
  echo "go: downloading k8s.io/api v0.36.3" >&2
  printf 'fmt\\nnet/http\\n%s\\n' "$package"
  ;;
build)
  printf 'fmt\\n%s\\n' "$package"
  while [ "$1" != -o ]; do shift; done
  BEHAVIOUR
  printf '#!/bin/sh\\n' > "$2" && chmod +x "$2"
  ;;
esac
"""


@pytest.fixture(autouse=True)
def _machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    for name in ("sh", "chmod", "sleep", "cat"):
        _link(tmp_path / "bin" / name)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GO_CALLS", str(tmp_path / "calls"))


def _link(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(Path("/bin") / path.name)


def _go(tmp_path: Path, behaviour: str = ":") -> None:
    program(tmp_path / "bin" / "go", GO.replace("BEHAVIOUR", behaviour))


def _calls(tmp_path: Path) -> list[str]:
    return [line.split()[0] for line in (tmp_path / "calls").read_text().splitlines()]


async def test_missing_executables_are_built_one_after_another_with_progress(tmp_path: Path) -> None:
    _go(tmp_path)
    reports: list[BinaryBuildProgress] = []
    binaries = await ensure_binaries(progress=reports.append)
    assert binaries == {name: build_directory() / name for name in ALL_COMPONENTS}
    done = [progress for progress in reports if progress.step == "done"]
    assert [(progress.binary, progress.number, progress.total) for progress in done] == [
        (name, number, 5) for number, name in enumerate(ALL_COMPONENTS, start=1)
    ]
    assert {progress.packages_total for progress in done} == {3}
    assert {progress.step for progress in reports} == {"resolving", "compiling", "done"}
    left = [path.name for path in build_directory().parent.iterdir() if path != build_directory()]
    assert left == [f"{build_directory().name}.lock"], "the scratch directory is gone"


async def test_the_second_time_nothing_is_built(tmp_path: Path) -> None:
    _go(tmp_path)
    await ensure_binaries(API_COMPONENTS, progress=lambda _: None)
    assert _calls(tmp_path) == ["list", "build"] * 2
    await ensure_binaries(API_COMPONENTS, progress=lambda _: None)
    assert _calls(tmp_path) == ["list", "build"] * 2


async def test_two_at_once_build_once(tmp_path: Path) -> None:
    _go(tmp_path, "sleep 0.3")
    reports: tuple[list[BinaryBuildProgress], list[BinaryBuildProgress]] = ([], [])
    first, second = (
        asyncio.create_task(ensure_binaries(API_COMPONENTS, progress=each.append)) for each in reports
    )
    assert await first == await second
    assert _calls(tmp_path).count("build") == 2
    assert {"waiting"} in [{progress.step for progress in each} for each in reports]


async def test_a_failed_build_resumes_where_it_stopped(tmp_path: Path) -> None:
    _go(tmp_path, 'case "$2" in *kube-apiserver) echo "x.go:1:2: undefined: y"; exit 1;; esac')
    with pytest.raises(BuildFailed) as caught:
        await ensure_binaries(API_COMPONENTS, progress=lambda _: None)
    message = str(caught.value)
    log = build_directory().with_name("build-kube-apiserver.log")
    assert message == f"building kube-apiserver failed: x.go:1:2: undefined: y (full log: {log})"
    assert "undefined: y" in log.read_text()
    _go(tmp_path)
    (tmp_path / "calls").unlink()
    await ensure_binaries(API_COMPONENTS, progress=lambda _: None)
    assert _calls(tmp_path) == ["list", "build"], "etcd was built the first time"


async def test_a_missing_go_is_reported_in_one_line_with_a_remedy() -> None:
    with pytest.raises(BinaryNotFound) as caught:
        await ensure_binaries(API_COMPONENTS)
    message = str(caught.value)
    assert message.startswith("etcd, kube-apiserver: not in KUBEBUILDER_ASSETS, on PATH or in the cache")
    assert "Install Go" in message
    assert "\n" not in message


async def test_a_full_disk_is_reported_in_one_line_with_its_directory(tmp_path: Path) -> None:
    _go(tmp_path, 'echo "write $WORK/b001/x.a: no space left on device"; exit 1')
    with pytest.raises(
        BuildFailed, match=r"no space left on the disk while building etcd \(.* GB free in .*controlplane\)"
    ):
        await ensure_binaries(API_COMPONENTS, progress=lambda _: None)


async def test_a_cancelled_build_leaves_no_process_and_no_scratch_directory(tmp_path: Path) -> None:
    _go(tmp_path, f"echo $$ > {tmp_path}/pid; sleep 600")
    task = asyncio.create_task(ensure_binaries(API_COMPONENTS, progress=lambda _: None))
    await asyncio.to_thread(
        until, lambda: (tmp_path / "pid").exists() and bool((tmp_path / "pid").read_text())
    )
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    until_gone([int((tmp_path / "pid").read_text())])
    assert not list(build_directory().parent.glob("kapsa-*"))


def test_a_killed_build_leaves_no_process_and_no_scratch_directory(tmp_path: Path) -> None:
    _go(tmp_path, f"echo $$ > {tmp_path}/pid; sleep 600")
    build = "import asyncio; from kapsa.devcluster.real.build import ensure_binaries; asyncio.run(ensure_binaries())"
    with subprocess.Popen([sys.executable, "-c", build], stderr=subprocess.PIPE) as builder:
        until(lambda: (tmp_path / "pid").exists() and bool((tmp_path / "pid").read_text()))
        builder.kill()
        builder.wait()
        scratch = list(build_directory().parent.glob("kapsa-*"))
        until_gone([int((tmp_path / "pid").read_text())], *scratch)


def test_plain_progress_is_one_line_per_step_and_one_per_interval() -> None:
    lines: list[str] = []
    show = PlainProgress(lines.append, interval=10.0)
    for second in range(25):
        step = "resolving" if second < 3 else "compiling"
        show(
            BinaryBuildProgress(
                binary="etcd", version="3.6.8", number=1, total=5, step=step,
                packages=second * 10, packages_total=500 if step == "compiling" else 0, seconds=float(second),
            )
        )  # fmt: skip
    assert lines == [
        "[1/5] etcd 3.6.8: resolving modules (0 s)\n",
        "[1/5] etcd 3.6.8: compiled 30 of at most 500 packages (3 s)\n",
        "[1/5] etcd 3.6.8: compiled 130 of at most 500 packages (13 s)\n",
        "[1/5] etcd 3.6.8: compiled 230 of at most 500 packages (23 s)\n",
    ]
