"""A new project works from the first minute, and never overwrites anything."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kapsa.devcluster import DevCluster
from kapsa.runtime import Client, Operator, UnknownKind
from kapsa.runtime.generate.scaffold import OperatorProject, ScaffoldError, create_project
from tests.eventually import eventually

# A project's own checks begin with an empty cache of types, which takes a busy machine its time.
pytestmark = pytest.mark.timeout(300)

BIN = Path(sys.executable).parent


def make(project: Path, *targets: str) -> subprocess.CompletedProcess[str]:
    """Run a target of the project's Makefile in the environment that runs these tests."""
    # Without the variables of an outer make, which would have this one print directories, too.
    outer = ("PYTEST", "COV", "MAKE", "MFLAGS")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(outer)}
    command = ["make", *targets, f"BIN={BIN}"]
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=280)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("scaffold") / "web-shop"
    create_project(OperatorProject(name="web-shop", group="shops.example.org"), directory)
    return directory


@pytest.mark.long
def test_the_tests_of_a_new_project_pass(project: Path) -> None:
    result = make(project, "test")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "5 passed" in result.stdout


@pytest.mark.long
def test_a_new_project_passes_its_own_checks_with_manifests_up_to_date(project: Path) -> None:
    result = make(project, "check")
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_new_project_has_all_manifests_for_a_deployment(project: Path) -> None:
    manifests = [
        manifest
        for file in ("crd.yaml", "deployment.yaml", "rbac.yaml")
        for manifest in yaml.safe_load_all((project / "manifests" / file).read_text())
    ]
    by_kind = {manifest["kind"]: manifest for manifest in manifests}
    assert by_kind["CustomResourceDefinition"]["metadata"]["name"] == "webshops.shops.example.org"
    deployment, account = by_kind["Deployment"], by_kind["ServiceAccount"]
    assert deployment["spec"]["template"]["spec"]["serviceAccountName"] == account["metadata"]["name"]
    assert deployment["metadata"]["namespace"] == account["metadata"]["namespace"]
    assert by_kind["Namespace"]["metadata"]["name"] == account["metadata"]["namespace"]
    assert "web_shop:operator" in (project / "Dockerfile").read_text()
    sample = yaml.safe_load((project / "sample.yaml").read_text())
    assert (sample["apiVersion"], sample["kind"]) == ("shops.example.org/v1alpha1", "WebShop")


async def test_the_manifests_of_a_new_project_pass_strict_validation(
    project: Path, cluster: DevCluster
) -> None:
    client = Client.connect(kubeconfig=cluster.kubeconfig)
    async with client:
        # In the order of `kubectl apply -f manifests/`.
        for file in ("crd.yaml", "deployment.yaml", "rbac.yaml"):
            for manifest in yaml.safe_load_all((project / "manifests" / file).read_text()):
                await client.apply(manifest, force=True, field_validation="Strict")
        sample = yaml.safe_load((project / "sample.yaml").read_text())

        async def is_accepted() -> bool:
            try:
                await client.apply(sample, force=True, field_validation="Strict")
            except UnknownKind:  # a real server takes a moment to serve a new kind
                return False
            return True

        await eventually(is_accepted, bool, "a new kind that is served")


def test_the_termination_grace_exceeds_that_of_the_reconciles(project: Path) -> None:
    documents = list(yaml.safe_load_all((project / "manifests" / "deployment.yaml").read_text()))
    (deployment,) = (each for each in documents if each["kind"] == "Deployment")
    grace = deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace > Operator(controllers=[]).shutdown_grace


@pytest.mark.parametrize(
    ("direct_url", "source"),
    [
        (None, ""),
        ('{"url": "file:///srv/my%20kapsa", "dir_info": {"editable": true}}', "/srv/my kapsa"),
        ('{"url": "https://example.com/kapsa.whl", "archive_info": {}}', "https://example.com/kapsa.whl"),
        (
            '{"url": "https://example.com/kapsa.git", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}}',
            "git+https://example.com/kapsa.git@c0ffee",
        ),
    ],
    ids=["registry", "folder", "wheel", "git"],
)
def test_a_new_project_installs_kapsa_from_its_own_source(
    direct_url: str | None, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "site" / "kapsa-1.0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: kapsa\nVersion: 1.0\n")
    if direct_url is not None:
        (installed / "direct_url.json").write_text(direct_url)
    monkeypatch.setattr(sys, "path", [str(installed.parent), *sys.path])
    create_project(OperatorProject(name="shop"), tmp_path / "shop")
    output = make(tmp_path / "shop", "--eval=show: ; @echo '$(KAPSA_SOURCE)|$(KAPSA)'", "show").stdout
    requirement = f"kapsa[devcluster] @ {source}" if "://" in source else f"{source}[devcluster]"
    assert output.splitlines()[-1] == f"{source}|{requirement}"


def test_no_placeholder_is_left(tmp_path: Path) -> None:
    for path in create_project(OperatorProject(name="shop"), tmp_path / "shop"):
        assert "{{" not in path.read_text(), path


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "precious").write_text("mine")
    with pytest.raises(ScaffoldError, match="already exists and is not empty"):
        create_project(OperatorProject(name="shop"), tmp_path / "shop")
    assert [path.name for path in tmp_path.rglob("*")] == ["shop", "precious"]


def test_a_failure_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("kapsa.runtime.generate.scaffold.to_yaml", fail)
    with pytest.raises(OSError, match="disk full"):
        create_project(OperatorProject(name="shop"), tmp_path / "shop")
    assert list(tmp_path.iterdir()) == []
    assert "shop" not in sys.modules


@pytest.mark.parametrize("name", ["", "Shop", "web_shop", "1shop", "shop-", "a--b", "s" * 41, "../shop"])
def test_an_invalid_project_name_is_rejected(name: str) -> None:
    with pytest.raises(ScaffoldError, match="invalid project name"):
        OperatorProject(name=name)


@pytest.mark.parametrize("name", ["json", "class", "kapsa", "tests"])
def test_a_reserved_project_name_is_rejected(name: str) -> None:
    with pytest.raises(ScaffoldError, match="is reserved"):
        OperatorProject(name=name)


@pytest.mark.parametrize("options", [{"group": "example"}, {"group": "Example.com"}, {"kind": "shop"}])
def test_an_invalid_group_or_kind_is_rejected(options: dict[str, str]) -> None:
    with pytest.raises(ScaffoldError, match="invalid"):
        OperatorProject(name="shop", **options)


def test_an_unwritable_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ScaffoldError, match=r"cannot write to .*file: (File exists|Not a directory)"):
        create_project(OperatorProject(name="shop"), tmp_path / "file" / "shop")
