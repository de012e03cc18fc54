"""Kinds, webhooks and versions that are added to a project."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kapsa.runtime.generate._source_edit import (
    SourceEditError,
    Term,
    add_class_keyword,
    add_import,
    add_to_operator,
)
from kapsa.runtime.generate.additions import ExistingProject, add_kind, add_version, add_webhook
from kapsa.runtime.generate.scaffold import OperatorProject, ScaffoldError, create_project

pytestmark = pytest.mark.timeout(300)

BIN = Path(sys.executable).parent


def create(directory: Path) -> Path:
    create_project(OperatorProject(name="web-shop", group="shops.example.org"), directory)
    return directory


def extend(directory: Path) -> None:
    add_kind(ExistingProject.load(directory), "OrderBook")
    add_webhook(ExistingProject.load(directory), "WebShop")
    add_webhook(ExistingProject.load(directory), "OrderBook", form="mutating")
    add_version(ExistingProject.load(directory), "WebShop", "v1beta1")


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = create(tmp_path_factory.mktemp("additions") / "web-shop")
    extend(directory)
    return directory


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return create(tmp_path / "web-shop")


def contents(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_additions_extend_the_operator_and_its_manifests(extended: Path) -> None:
    operator = (extended / "web_shop" / "__init__.py").read_text()
    assert "controllers=[WebShopController(), OrderBookController()]," in operator
    assert "converters=[WebShopV1beta1Converter()]," in operator
    crds = {
        each["spec"]["names"]["kind"]: each["spec"]
        for each in yaml.safe_load_all((extended / "manifests" / "crd.yaml").read_text())
    }
    assert {kind: [v["name"] for v in spec["versions"]] for kind, spec in crds.items()} == {
        "OrderBook": ["v1alpha1"],
        "WebShop": ["v1beta1", "v1alpha1"],
    }
    assert crds["WebShop"]["conversion"]["webhook"]["clientConfig"]["service"]["name"] == (
        "web-shop-operator-webhooks"
    )
    assert [v["storage"] for v in crds["WebShop"]["versions"]] == [False, True], "nothing stored is lost"
    service = yaml.safe_load((extended / "manifests" / "webhooks.yaml").read_text())
    assert service["metadata"]["name"] == "web-shop-operator-webhooks"


@pytest.mark.long
def test_the_tests_and_checks_of_an_extended_project_pass(extended: Path) -> None:
    for command in (
        ["python", "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        ["ruff", "format", "--check", "."],
        ["ruff", "check", "."],
        ["mypy"],
    ):
        result = subprocess.run(
            [BIN / command[0], *command[1:]],
            cwd=extended,
            capture_output=True,
            text=True,
            check=False,
            timeout=280,
        )
        assert result.returncode == 0, result.stdout + result.stderr


def test_what_exists_already_is_refused_and_nothing_is_written(project: Path) -> None:
    (project / "web_shop" / "order_controller.py").write_text("mine")
    before = contents(project)
    loaded = ExistingProject.load(project)
    for addition, complaint in (
        (lambda: add_kind(loaded, "WebShop"), "already has a kind WebShop"),
        (lambda: add_kind(loaded, "Order"), "order_controller.py already exists"),
        (lambda: add_kind(loaded, "order"), "invalid kind 'order'"),
        (lambda: add_version(loaded, "WebShop", "v1alpha1"), "already has a version v1alpha1"),
        (lambda: add_version(loaded, "WebShop", "2"), "invalid version '2'"),
        (lambda: add_webhook(loaded, "Order"), "has no kind 'Order'; it has WebShop"),
    ):
        with pytest.raises(ScaffoldError, match=complaint):
            addition()
    assert contents(project) == before


def test_a_failure_halfway_leaves_the_project_as_it_was(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("disk full")

    loaded, before = ExistingProject.load(project), contents(project)
    monkeypatch.setattr("kapsa.runtime.generate.additions.write_manifests", fail)
    with pytest.raises(OSError, match="disk full"):
        add_version(loaded, "WebShop", "v1")
    assert contents(project) == before


def test_an_operator_of_another_form_is_never_guessed_at(project: Path) -> None:
    entry = project / "web_shop" / "__init__.py"
    entry.write_text(entry.read_text().replace("controllers=[", "# a comment\n    controllers=["))
    before = contents(project)
    with pytest.raises(
        ScaffoldError, match=r"add OrderController\(\) to the controllers of the operator by hand"
    ):
        add_kind(ExistingProject.load(project), "Order")
    assert contents(project) == before


def test_a_folder_without_a_project_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ScaffoldError, match="is not a project of `kapsa new`"):
        ExistingProject.load(tmp_path)


def append(term: Term) -> None:
    assert term.items is not None
    term.items.append(Term('"ä"', None, "name"))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('x = "ü"; operator = Operator(a=[1,2])\n', 'x = "ü"; operator = Operator(a=[1, 2], name="ä")\n'),
        (
            f"operator = Operator(a={'b' * 90})\nrest = 1\n",
            f'operator = Operator(\n    a={"b" * 90},\n    name="ä",\n)\nrest = 1\n',
        ),
    ],
)
def test_an_argument_is_added_in_the_form_that_ruff_gives_it(source: str, expected: str) -> None:
    assert add_to_operator(source, append, otherwise="") == expected


@pytest.mark.parametrize("source", ["operator = make()\n", "a = Operator()\nb = Operator()\n"])
def test_an_argument_is_not_added_where_it_is_not_clear(source: str) -> None:
    with pytest.raises(SourceEditError, match="by me"):
        add_to_operator(source, append, otherwise="by me")


def test_imports_are_merged_and_sorted() -> None:
    source = "import os\n\nfrom kapsa.runtime import Operator\n\nfrom shop.a import A\nfrom shop.z import Z\n"
    source = add_import(source, "kapsa.runtime", "Webhooks")
    source = add_import(source, "kapsa.runtime", "allow")
    source = add_import(source, "shop.m", "M")
    assert "from kapsa.runtime import Operator, Webhooks, allow\n" in source
    assert "from shop.a import A\nfrom shop.m import M\nfrom shop.z import Z\n" in source


def test_a_keyword_is_added_to_the_head_of_a_class_once() -> None:
    source = 'class A(Base, version="v1"):\n    x = 1\n'
    edited = add_class_keyword(source, "A", "version", "hub=True")
    assert edited == 'class A(Base, version="v1", hub=True):\n    x = 1\n'
    assert add_class_keyword(edited, "A", "version", "hub=True") == edited
    with pytest.raises(SourceEditError, match="add hub=True to the head of class B"):
        add_class_keyword(source, "B", "version", "hub=True")
