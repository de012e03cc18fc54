"""The pages on environments: the reference says what the models say, the runbook has every reason, the YAML
is accepted.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
import yaml

from kapsa.devcluster import DevCluster
from kapsa.environments.resources import KINDS
from kapsa.environments.settings import PREFIX, Settings
from kapsa.runtime import Client, custom_resource_definitions
from kapsa.runtime.testing import InProcessTransport
from tests.docs.snippets import FENCE

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "environments"
SOURCE = ROOT / "src" / "kapsa" / "environments"
REPORTING = [SOURCE, ROOT / "src" / "kapsa" / "runtime" / "controller"]
"""The packages whose reasons reach a condition or an event of an environments resource, with what they import."""


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    path = ROOT / "tools" / "environments_reference.py"
    spec = importlib.util.spec_from_file_location("environments_reference", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_made_pages_are_what_the_models_say(generator: ModuleType) -> None:
    for name, text in generator.render().items():
        written = (PAGES / name).read_text(encoding="utf-8")
        assert written == text, f"docs/environments/{name} is out of date: run `{generator.COMMAND}`"


def test_every_kind_and_every_setting_is_on_the_made_pages(generator: ModuleType) -> None:
    pages = generator.render()
    for kind in KINDS:
        assert f"\n## {kind.kind}\n" in pages["reference.md"]
    for field in msgspec.structs.fields(Settings):
        assert f"`{PREFIX}{field.name.upper()}`" in pages["settings.md"]


# -- reasons ---------------------------------------------------------------------------------------------------

REASON = re.compile(r"[A-Z][A-Za-z]+")
SAID_BY_KUBERNETES = {
    *(
        "BackoffLimitExceeded",
        "DeadlineExceeded",
        "PodFailurePolicy",
        "FailedIndexes",
        "MaxFailedIndexesExceeded",
    )
}
"""Reasons of a failed Job's own condition, which are passed on."""


def modules() -> Iterator[ast.Module]:
    """Yield the modules that report, and those of the adapters that they import, directly or through another."""
    pending = [file for package in REPORTING for file in package.rglob("*.py") if "testing" not in file.parts]
    seen = set(pending)
    while pending:
        module = ast.parse(pending.pop().read_text(encoding="utf-8"))
        yield module
        imported = {node.module or "" for node in ast.walk(module) if isinstance(node, ast.ImportFrom)}
        for name in imported:
            file = (ROOT / "src" / name.replace(".", "/")).with_suffix(".py")
            if name.startswith("kapsa.adapters.") and file.is_file() and file not in seen:
                seen.add(file)
                pending.append(file)


def constants() -> dict[str, str]:
    """Strings with a name of their own at the top of a module."""
    return {
        node.targets[0].id: node.value.value
        for module in modules()
        for node in module.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }


def given_as_reason(node: ast.AST) -> ast.expr | None:
    """Return the reason that a piece of code gives: by that name, for an event, or as the third argument of
    ObjectHealth."""
    if isinstance(node, ast.keyword) and node.arg == "reason":
        return node.value
    if isinstance(node, ast.Assign | ast.AnnAssign):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        return node.value if isinstance(target, ast.Name) and target.id.endswith("reason") else None
    if isinstance(node, ast.Call):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if called in ("event", "_give_up") and len(node.args) > 1:
            return node.args[-1] if called == "_give_up" else node.args[1]
        if isinstance(node.func, ast.Name) and node.func.id == "ObjectHealth" and len(node.args) > 2:
            return node.args[2]
    return None


def reasons_in_source() -> tuple[set[str], set[str]]:
    """All reasons, and the endings of those that are put together."""
    named, literals, endings = constants(), set(), set()
    for module in modules():
        for node in ast.walk(module):
            given = given_as_reason(node)
            for part in ast.walk(given) if given is not None else ():
                if isinstance(part, ast.JoinedStr):
                    endings |= {str(each.value) for each in part.values if isinstance(each, ast.Constant)}
                elif isinstance(part, ast.Constant) and isinstance(part.value, str):
                    literals.add(part.value)
                elif isinstance(part, ast.Name) and part.id in named:
                    literals.add(named[part.id])
    reasons = {each for each in literals if REASON.fullmatch(each)} - endings - {"Normal", "Warning"}
    return reasons | SAID_BY_KUBERNETES, endings


def reasons_on_the_page() -> set[str]:
    """Return the first column of the runbook's tables."""
    page = (PAGES / "runbook.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| ((?:`[A-Z][A-Za-z]+`(?: \(event\))?(?:, )?)+) \|", page, re.MULTILINE)
    return set(re.findall(r"`([A-Za-z]+)`", " ".join(cells)))


def test_the_runbook_has_every_reason_that_a_condition_or_an_event_can_have() -> None:
    reasons, endings = reasons_in_source()
    assert len(reasons) > 80
    assert sorted(reasons - reasons_on_the_page()) == []
    for ending in endings:
        assert any(each.endswith(ending) for each in reasons_on_the_page()), f"no reason ends with {ending}"


def test_the_runbook_has_no_reason_that_nothing_can_have() -> None:
    reasons, endings = reasons_in_source()
    surplus = {each for each in reasons_on_the_page() - reasons if not each.endswith(tuple(endings))}
    assert sorted(surplus) == []


# -- steps -----------------------------------------------------------------------------------------------------


def step_names() -> list[str]:
    """Return the names of the steps in the order in which the controller runs them."""
    controller = (SOURCE / "controllers" / "environment.py").read_text(encoding="utf-8")
    run = controller.partition("self._walls: ")[2].partition("self.watches")[0]
    render = run.replace("self._render,", "RenderStep(),")
    return [name.lower() for name in re.findall(r"^ +(\w+)Step\(", render, re.MULTILINE)]


def test_the_pages_name_every_step_in_its_order() -> None:
    names = {path.stem for path in (SOURCE / "steps").glob("*.py") if "Step:" in path.read_text("utf-8")}
    assert sorted(step_names()) == sorted(names - {"step"})
    runbook = (PAGES / "runbook.md").read_text(encoding="utf-8")
    assert f"The steps run in this order: {', '.join(step_names())}." in runbook
    walk = re.findall(r"steps\.(\w+)`", (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))
    assert [name for name in walk if name in names] == step_names()


def test_the_number_of_steps_is_right_wherever_it_is_written() -> None:
    number = {10: "ten", 11: "eleven", 12: "twelve", 13: "thirteen"}[len(step_names())]
    assert f"the {number} steps of an Environment" in (SOURCE / "__init__.py").read_text(encoding="utf-8")
    assert f"each of the {number} steps" in (PAGES / "administrators.md").read_text(encoding="utf-8")


# -- manifests on the pages -----------------------------------------------------------------------


def manifests() -> list[dict[str, Any]]:
    documents: list[dict[str, Any]] = []
    for page in sorted(PAGES.glob("*.md")):
        for match in FENCE.finditer(page.read_text(encoding="utf-8")):
            if match["info"].startswith("yaml"):
                documents += yaml.safe_load_all(match["body"])
    return documents


async def test_a_cluster_takes_every_manifest_of_the_pages_under_strict_validation() -> None:
    async with (
        DevCluster(http=False, controllers=False) as cluster,
        Client(InProcessTransport(cluster)) as client,
    ):
        for definition in custom_resource_definitions(KINDS):
            await client.apply(definition, force=True)
        # Those that the operator makes, or its installation.
        for namespace in ("kapsa-system", "team", "team-shop"):
            made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            await client.apply(made, force=True)
        kinds = set()
        for manifest in manifests():
            await client.apply(manifest, force=True, field_validation="Strict")
            kinds.add(manifest["kind"])
    assert kinds >= {"Project", "Environment", "DomainPool", "Registry", "PreviewEnvironment"}


def prose() -> str:
    return "\n".join(page.read_text(encoding="utf-8") for page in sorted(PAGES.glob("*.md")))


def test_every_variable_that_the_pages_name_is_a_setting() -> None:
    settings = {PREFIX + field.name.upper() for field in msgspec.structs.fields(Settings)}
    named = set(re.findall(r"`(KAPSA_[A-Z_]+)`", prose()))
    assert len(named) > 10
    assert named - settings == set()


def test_every_metric_that_the_pages_name_is_told() -> None:
    source = (SOURCE / "metrics.py").read_text(encoding="utf-8")
    named = set(re.findall(r"`(kapsa_[a-z_]+[a-z])`", prose()))
    assert len(named) > 5
    assert [each for each in named if f'"{each}"' not in source] == []
