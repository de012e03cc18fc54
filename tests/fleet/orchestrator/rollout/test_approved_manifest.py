"""The part of an approved manifest that Helm applies."""

from __future__ import annotations

from kapsa.fleet.orchestrator.rollout.approved_manifest import crds_in, without_crds

FIRST = b"---\n# Source: chart/a.yaml\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  text: |\n    ---\n    kind: CustomResourceDefinition\n"
CRD = b"---\n# Source: chart/crd.yaml\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: widgets.example.com}\n"
JSON = b'---\n{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "gadgets.example.com"}}\n'
LAST = b"--- # the end\napiVersion: v1\nkind: Secret\nmetadata: {name: b}\n"


def test_helm_gets_every_document_but_crds_byte_for_byte() -> None:
    assert without_crds(FIRST + CRD + JSON + LAST) == FIRST + LAST
    assert without_crds(CRD) == b""
    assert without_crds(FIRST.removeprefix(b"---\n")) == FIRST.removeprefix(b"---\n")


def test_the_crds_of_a_manifest_are_found_in_any_notation() -> None:
    names = [each["metadata"]["name"] for each in crds_in(FIRST + CRD + JSON + LAST)]
    assert names == ["widgets.example.com", "gadgets.example.com"]
    assert crds_in(b"not even YAML: [") == []


def test_a_list_with_a_crd_is_split() -> None:
    text = b'---\n{"apiVersion": "v1", "kind": "List", "items": [%s, %s]}\n'
    crd = JSON.removeprefix(b"---\n").strip()
    note = b'{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "n"}}'
    assert (
        without_crds(text % (crd, note)) == b"---\n" + note.replace(b": ", b":").replace(b", ", b",") + b"\n"
    )
