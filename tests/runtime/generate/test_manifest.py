"""Manifests as YAML."""

import pytest
import yaml

from kapsa.runtime import to_yaml


def test_yaml_is_the_same_every_time_and_reads_back() -> None:
    shared = {"app": "web"}
    manifests = [
        {"kind": "Service", "spec": {"selector": shared, "ports": [{"port": 80}]}},
        {"kind": "Deployment", "metadata": {"labels": shared}, "text": "two\nlines\n"},
    ]
    text = to_yaml(manifests)
    assert text == to_yaml(manifests)
    assert list(yaml.safe_load_all(text)) == manifests
    assert "&id" not in text, "no anchors"


@pytest.mark.parametrize(
    "text", ["y", "N", "yes", "1e3", "0x1f", "1_000", ".5", "12", "true", "null", "", "2026-01-01"]
)
def test_text_that_kubernetes_would_misread_is_quoted(text: str) -> None:
    assert to_yaml([{"text": text}]) == f"text: '{text}'\n"
