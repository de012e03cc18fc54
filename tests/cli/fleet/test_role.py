"""`kapsa fleet role`: a ClusterRole from rendered charts."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
import yaml

from kapsa.cli.commands import main

MANIFEST = """
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: settings}}
"""


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str, text: str = "") -> int:
    """Run the command with a text on standard input. Return its exit code."""
    monkeypatch.setattr(sys, "argv", ["kapsa", "fleet", "role", *arguments])
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


@pytest.mark.parametrize("piped", [True, False], ids=["standard input", "a file"])
def test_the_role_has_the_kinds_of_the_manifest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, piped: bool
) -> None:
    file = tmp_path / "rendered.yaml"
    file.write_text(MANIFEST)
    arguments = () if piped else (str(file), "--name=of-mine")
    assert run(monkeypatch, *arguments, text=MANIFEST if piped else "") == 0
    role = yaml.safe_load(capsys.readouterr().out)
    assert (role["kind"], role["metadata"]["name"]) == ("ClusterRole", "kapsa-fleet" if piped else "of-mine")
    resources = {each for rule in role["rules"] for each in rule["resources"]}
    assert {"cronjobs", "configmaps", "secrets"} <= resources
    assert "lists" not in resources


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "",
            "standard input has no objects: pass the output of `helm template RELEASE CHART --include-crds`",
        ),
        ("replicas: 3\n", "has a document that is not a Kubernetes object: render the chart first"),
        ("{", "standard input cannot be read as YAML"),
    ],
    ids=["nothing", "values", "not YAML"],
)
def test_what_is_not_a_rendered_chart_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    assert run(monkeypatch, text=text) == 1
    assert message in capsys.readouterr().err
