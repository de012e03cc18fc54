"""Go's envtest on the drop-in and on the real programs: the same suite passes on both."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kapsa.devcluster.real.binaries import find_binaries
from kapsa.devcluster.real.build import ensure_binaries
from kapsa.devcluster.real.components import API_SERVER, ETCD

HERE = Path(__file__).parent
KAPSA = [sys.executable, "-c", "from kapsa.cli import main; main()"]

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled Go tests."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go is not installed")
    program = tmp_path_factory.mktemp("envtest") / "envtest.test"
    subprocess.run([go, "test", "-c", "-o", str(program), "."], cwd=HERE, check=True)
    return program


@pytest.fixture(scope="module")
def assets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The directories of the drop-in and of the real programs."""
    cache = tmp_path_factory.mktemp("cache")
    printed = subprocess.run(
        [*KAPSA, "devcluster", "envtest"],
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    matched = re.fullmatch(r"export KUBEBUILDER_ASSETS=(.*)\n", printed)
    assert matched is not None, printed
    asyncio.run(ensure_binaries())
    real = tmp_path_factory.mktemp("real")
    for name, binary in find_binaries((ETCD, API_SERVER)).items():
        (real / name).symlink_to(binary.path)
    return {"drop-in": Path(matched[1]), "real": real}


def run_suite(suite: Path, assets: Path, test: str) -> str:
    environment = {
        **os.environ,
        "KUBEBUILDER_ASSETS": str(assets),
        "KUBEBUILDER_ATTACH_CONTROL_PLANE_OUTPUT": "false",
    }
    result = subprocess.run(
        [str(suite), f"-test.run=^{test}$", "-test.v"],
        cwd=HERE,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-5000:] + result.stderr[-3000:]
    return result.stdout


@pytest.mark.parametrize("engine", ["drop-in", "real"])
def test_an_operators_suite_passes(suite: Path, assets: dict[str, Path], engine: str) -> None:
    output = run_suite(suite, assets[engine], "TestAnOperatorsSuite")
    assert output.count("--- PASS: TestAnOperatorsSuite/") == 8


def test_the_drop_in_starts_several_times_faster(
    suite: Path, assets: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = {}
    for engine, directory in assets.items():
        output = run_suite(suite, directory, "TestStart")
        matched = re.search(r"start seconds: ([\d.]+)", output)
        assert matched is not None
        seconds[engine] = float(matched[1])
    with capsys.disabled():
        sys.stdout.write(
            f"\nenvtest starts in {seconds['drop-in']:.2f} s, with the real programs in {seconds['real']:.2f} s\n"
        )
    # envtest waits 100 ms between health checks, of each of the two programs: that is a third of the drop-in's time.
    assert seconds["drop-in"] * 4 <= seconds["real"]
