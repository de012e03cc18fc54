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
        ("{", "standard input is not YAML: line 2: did not find expected node content"),
        ("[" * 5000, "standard input is nested more than"),
        ("a: .inf", "standard input is not YAML: line 1: the number .inf is out of range"),
    ],
    ids=["nothing", "values", "not YAML", "nested deeply", "infinity"],
)
def test_what_is_not_a_rendered_chart_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    assert run(monkeypatch, text=text) == 1
    assert message in capsys.readouterr().err


def test_a_text_that_looks_like_a_date_is_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, text="{apiVersion: v1, kind: ConfigMap, data: {released: 2024-13-01}}") == 0


def granting(rules: str, kind: str = "ClusterRole") -> str:
    """Return the manifest of a role with rules."""
    return (
        f"apiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\n"
        f"metadata: {{name: wolf, namespace: packs}}\nrules: {rules}\n"
    )


EVERYTHING = granting('[{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]')


def test_a_chart_that_grants_everything_is_refused_unless_that_is_allowed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, text=EVERYTHING) == 1
    refused = capsys.readouterr()
    assert refused.out == ""
    assert "ClusterRole wolf grants everything" in refused.err
    assert "--allow-everything" in refused.err
    assert run(monkeypatch, "--allow-everything", text=EVERYTHING) == 0
    allowed = capsys.readouterr()
    assert "warning: ClusterRole wolf grants everything" in allowed.err
    assert {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]} in yaml.safe_load(allowed.out)["rules"]


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        (
            granting(
                '[{apiGroups: ["rbac.authorization.k8s.io"], resources: [roles], verbs: [escalate, bind]}]'
            ),
            "ClusterRole wolf grants bind and escalate on roles: an account with that can get any other right",
        ),
        (
            granting('[{apiGroups: [""], resources: [users], verbs: [impersonate]}]'),
            "ClusterRole wolf grants impersonate on users",
        ),
        (granting('[{apiGroups: [""], resources: ["*"], verbs: [get]}]'), "ClusterRole wolf has a wildcard"),
        (
            granting("[{apiGroups: [apps], resources: [deployments], verbs: [get]}]", "Role"),
            "the rights of Role packs/wolf count in its namespace, and those of the role below in all",
        ),
    ],
    ids=["escalate", "impersonate", "wildcard", "namespace"],
)
def test_powerful_rights_of_a_chart_are_pointed_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str, warning: str
) -> None:
    assert run(monkeypatch, text=text) == 0
    written = capsys.readouterr()
    assert f"warning: {warning}" in written.err
    assert yaml.safe_load(written.out)["kind"] == "ClusterRole"


def test_a_chart_without_powerful_rights_is_not_commented_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, text=MANIFEST) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("apiVersion: v1\nkind: 5\n", "is not a Kubernetes object"),
        ("apiVersion: v1\nkind: List\nitems: [1]\n", "is not a Kubernetes object"),
        ("apiVersion: v1\nkind: List\nitems: 1\n", "is not a Kubernetes object"),
        ("apiVersion: v1\nkind: List\nitems: [{metadata: {name: a}}]\n", "is not a Kubernetes object"),
        (
            "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: a}\n",
            "CustomResourceDefinition a has no spec.group and spec.names.plural",
        ),
        (granting("5"), "ClusterRole wolf has rules that are not a list of objects"),
        (granting("[{verbs: 5}]"), "ClusterRole wolf has rules that are not a list of objects"),
    ],
)
def test_a_malformed_object_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    assert run(monkeypatch, text=text) == 1
    written = capsys.readouterr()
    assert (written.out, message in written.err, "Traceback" in written.err) == ("", True, False)


def test_the_items_of_a_typed_list_have_the_kind_of_the_list(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "apiVersion: batch/v1\nkind: CronJobList\nitems: [{metadata: {name: a}}]\n"
    assert run(monkeypatch, text=text) == 0
    rules = yaml.safe_load(capsys.readouterr().out)["rules"]
    assert "cronjobs" in {each for rule in rules for each in rule["resources"]}
