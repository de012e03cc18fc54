"""`kapsa crd`, `kapsa rbac`, `kapsa bundle` and `kapsa new` as a user runs them."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.sampled(9, of="module")

KAPSA = Path(sys.executable).parent / "kapsa"
MODULE = '''
from kapsa.runtime import *

class ThingSpec(Spec):
    size: int = 1

class Thing(CustomResource[ThingSpec, Status], group="example.com", version="v1"):
    """A thing."""

class Other(CustomResource[ThingSpec, Status], group="example.com", version="v1"):
    """Another thing."""

class ThingController(Controller[Thing]):
    owns = ("v1/ConfigMap",)

    async def reconcile(self, thing, ctx):
        ...

operator = Operator(controllers=[ThingController()], leader_election="thing-operator")
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "things.py").write_text(MODULE)
    return tmp_path


def kapsa(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([KAPSA, *arguments], cwd=folder, capture_output=True, text=True, timeout=60)


def names_in(text: str) -> list[str]:
    return [f"{each['kind']} {each['metadata']['name']}" for each in yaml.safe_load_all(text)]


@pytest.mark.parametrize(
    ("target", "names"),
    [
        ("things", ["others.example.com", "things.example.com"]),
        ("things.py", ["others.example.com", "things.example.com"]),
        ("things:Thing", ["things.example.com"]),
        ("things:operator", ["things.example.com"]),
    ],
)
def test_crd_prints_the_definitions_of_a_module_a_class_or_an_operator(
    folder: Path, target: str, names: list[str]
) -> None:
    result = kapsa(folder, "crd", target)
    assert result.returncode == 0, result.stderr
    assert names_in(result.stdout) == [f"CustomResourceDefinition {name}" for name in names]


def test_crd_writes_a_file_for_each_and_checks_that_they_are_up_to_date(folder: Path) -> None:
    assert kapsa(folder, "crd", "things", "-d", "crds").returncode == 0
    assert sorted(path.name for path in (folder / "crds").iterdir()) == [
        "others.example.com.yaml",
        "things.example.com.yaml",
    ]
    assert kapsa(folder, "crd", "things", "-d", "crds", "--check").returncode == 0
    (folder / "things.py").write_text(MODULE.replace("size: int", "length: int"))
    result = kapsa(folder, "crd", "things", "-d", "crds", "--check")
    assert result.returncode == 1
    assert "is out of date" in result.stderr


VERSIONS = (
    MODULE.replace('version="v1"):\n    """A thing.', 'version="v1", hub=True):\n    """A thing.')
    + '''
class OldSpec(Spec):
    length: str = ""

class OldThing(CustomResource[OldSpec, Status], group="example.com", version="v1alpha1", kind="Thing"):
    """A thing in its first version."""

class OldThingConverter(Converter[OldThing, Thing]):
    pass

converting = Operator(
    controllers=[ThingController()],
    name="things",
    webhooks=Webhooks(converters=[OldThingConverter()], service="things-webhooks"),
)
'''
)


@pytest.mark.parametrize("target", ["versions:converting", "versions", "versions:Thing"])
def test_crd_writes_every_version_with_the_conversion_of_its_operator(folder: Path, target: str) -> None:
    (folder / "versions.py").write_text(VERSIONS)
    result = kapsa(folder, "crd", target, "--namespace", "here")
    assert result.returncode == 0, result.stderr
    thing = next(
        each for each in yaml.safe_load_all(result.stdout) if each["spec"]["names"]["kind"] == "Thing"
    )
    assert [version["name"] for version in thing["spec"]["versions"]] == ["v1", "v1alpha1"]
    service = thing["spec"]["conversion"]["webhook"]["clientConfig"]["service"]
    assert (service["namespace"], service["name"], service["path"]) == ("here", "things-webhooks", "/convert")


def test_crd_refuses_versions_that_differ_without_a_converter(folder: Path) -> None:
    (folder / "versions.py").write_text(VERSIONS.partition("converting =")[0])
    result = kapsa(folder, "crd", "versions")
    assert result.returncode == 1
    assert "the versions v1, v1alpha1 have different fields and no conversion" in result.stderr


def test_rbac_prints_an_account_and_its_roles(folder: Path) -> None:
    result = kapsa(folder, "rbac", "things:operator", "--name", "mine", "--namespace", "here")
    assert result.returncode == 0, result.stderr
    assert names_in(result.stdout) == [
        "ServiceAccount mine",
        "ClusterRole mine",
        "ClusterRoleBinding mine",
        "Role mine",
        "RoleBinding mine",
    ]


def test_new_creates_a_project_and_prints_the_next_step(folder: Path) -> None:
    result = kapsa(folder, "new", "shop", "--group", "example.org", "--kind", "Store")
    assert result.returncode == 0, result.stderr
    assert "cd shop && make test" in result.stdout
    assert "class Store(" in (folder / "shop" / "shop" / "resource.py").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["crd", "nothing"], "no module 'nothing'"),
        (["crd", "nothing.py"], "no file nothing.py"),
        (["crd", "things:Nothing"], "things has no 'Nothing'"),
        (["crd", "things:ThingSpec"], "has no resource class"),
        (["crd", "things", "--check"], "--check needs"),
        (["crd", "broken"], "Loop.spec.inner: LoopSpec contains itself"),
        (["rbac", "things:Thing"], "is not an Operator"),
        (["rbac", "things:operator", "--role", "Role"], "needs a ClusterRole"),
        (["rbac", "things:operator", "--home"], "leave out --home"),
        (["new", "json"], "is reserved"),
    ],
)
def test_a_mistake_is_one_line_and_no_traceback(folder: Path, arguments: list[str], message: str) -> None:
    (folder / "broken.py").write_text(
        "from __future__ import annotations\n"
        "from kapsa.runtime import *\n"
        "class LoopSpec(Spec):\n    inner: LoopSpec | None = None\n"
        "class Loop(CustomResource[LoopSpec, Status], group='example.com', version='v1'): pass\n"
    )
    result = kapsa(folder, *arguments)
    assert result.returncode == 1
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


BUNDLE = ("bundle", "things:operator", "--image", "registry.example.com/things:1.0")


def test_bundle_prints_the_manifests_of_an_operator(folder: Path) -> None:
    result = kapsa(folder, *BUNDLE)
    assert result.returncode == 0, result.stderr
    names = names_in(result.stdout)
    assert names[:2] == ["CustomResourceDefinition things.example.com", "Namespace thing-operator-system"]
    assert "Deployment thing-operator" in names


def test_bundle_writes_a_chart_and_checks_that_it_is_up_to_date(folder: Path) -> None:
    assert kapsa(folder, *BUNDLE, "--chart", "chart").returncode == 0
    assert kapsa(folder, *BUNDLE, "--chart", "chart", "--check").returncode == 0
    (folder / "things.py").write_text(MODULE.replace("size: int", "length: int"))
    stale = kapsa(folder, *BUNDLE, "--chart", "chart", "--check")
    assert stale.returncode == 1
    assert "crds.yaml is out of date" in stale.stderr


def test_bundle_deletes_a_file_that_the_chart_no_longer_has(folder: Path) -> None:
    assert kapsa(folder, *BUNDLE, "--chart", "chart").returncode == 0
    monitor = folder / "chart" / "templates" / "servicemonitor.yaml"
    assert monitor.is_file()
    (folder / "things.py").write_text(MODULE.replace("leader_election", "metrics_port=None, leader_election"))
    assert kapsa(folder, *BUNDLE, "--chart", "chart", "--check").returncode == 1
    assert kapsa(folder, *BUNDLE, "--chart", "chart").returncode == 0
    assert not monitor.exists()


def test_bundle_does_not_overwrite_a_chart_that_it_has_not_written(folder: Path) -> None:
    (folder / "chart").mkdir()
    (folder / "chart" / "Chart.yaml").write_text("name: mine\n")
    result = kapsa(folder, *BUNDLE, "--chart", "chart")
    assert result.returncode == 1
    assert "was not generated by this command" in result.stderr
    assert (folder / "chart" / "Chart.yaml").read_text() == "name: mine\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--replicas", "2"], "elects no leader"),
        (["--certificate-secret", "tls"], "makes its certificates itself"),
        (["--namespace", "Shop"], "invalid namespace name"),
        (["--check"], "needs files to compare with"),
    ],
    ids=["replicas", "certificates", "namespace", "check"],
)
def test_bundle_refuses_what_it_cannot_do(folder: Path, options: list[str], message: str) -> None:
    (folder / "things.py").write_text(MODULE.replace('leader_election="thing-operator"', 'name="things"'))
    result = kapsa(folder, *BUNDLE, *options)
    assert result.returncode == 1
    assert message in result.stderr
    assert "Traceback" not in result.stderr
