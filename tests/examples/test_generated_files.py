"""The generated files of each example are up to date, and its samples are valid."""

import importlib
from pathlib import Path
from typing import Any

import pytest
import yaml

from kapsa.runtime import custom_resource_definitions, rbac_manifests, to_yaml
from tests.examples.namespaced_harness import NamespacedHarness

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ["application", "backup", "database", "myapp", "sensor", "servicecheck", "volumeclaim", "website"]


def operator_of(name: str) -> Any:
    return importlib.import_module(f"examples.{name}.{name}").operator


@pytest.mark.parametrize("name", NAMES)
def test_the_crd_is_up_to_date(name: str) -> None:
    made = to_yaml(custom_resource_definitions(operator_of(name).resources))
    assert made == (EXAMPLES / name / "crd.yaml").read_text(), f"run: kapsa crd {name} -o crd.yaml"


@pytest.mark.parametrize("name", NAMES)
def test_the_rbac_is_up_to_date(name: str) -> None:
    operator = operator_of(name)
    made = to_yaml(rbac_manifests(operator.rights(), name=operator.name, namespace=f"{operator.name}-system"))
    assert made == (EXAMPLES / name / "rbac.yaml").read_text(), (
        f"run: kapsa rbac {name}:operator -o rbac.yaml"
    )


@pytest.mark.parametrize("name", NAMES)
async def test_crd_rbac_and_sample_are_accepted_under_strict_validation(
    harness: NamespacedHarness, name: str
) -> None:
    operator = operator_of(name)
    await harness.install(operator)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"{operator.name}-system"}}
    await harness.client.apply(namespace, force=True)
    for file in ("crd.yaml", "rbac.yaml", "sample.yaml"):
        for manifest in yaml.safe_load_all((EXAMPLES / name / file).read_text()):
            if file == "sample.yaml":
                manifest["metadata"]["namespace"] = harness.namespace
            await harness.client.apply(manifest, force=True, field_validation="Strict")
