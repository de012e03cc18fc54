"""The commands of people, against the real API."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from kapsa.devcluster import DevCluster
from kapsa.runtime.testing import background_loop
from tests.cli.fleet.terminal import Terminal

REPOSITORY = ("--repository", "https://charts.example.com", "--chart", "widget")


def register(terminal: Terminal, name: str, *options: str) -> str:
    return terminal.succeed("operators", "register", name, "-n", "widgets", *REPOSITORY, *options)


@pytest.fixture(scope="module")
def kubeconfig() -> Iterator[Path]:
    """The kubeconfig of a cluster."""
    with background_loop() as wait:
        cluster = DevCluster(tls=True)
        wait(cluster.start())
        try:
            yield Path(cluster.kubeconfig)
        finally:
            wait(cluster.stop())


def test_an_operator_is_registered_shown_in_each_form_changed_and_deleted(
    ada: Terminal, tmp_path: Path
) -> None:
    values = tmp_path / "values.yaml"
    values.write_text("replicas: 2\n")
    assert register(ada, "shop", "--values", str(values)) == "operator shop 1.0.0 is registered\n"
    ada.succeed("operators", "add-version", "shop", "--version", "1.1.0")
    header, row = ada.succeed("operators", "ls", "--prefix", "shop").splitlines()
    assert header.split() == ["NAME", "NAMESPACE", "CHART", "STATE", "AGE"]
    assert row.split()[:4] == ["shop", "widgets", "https://charts.example.com/widget", "Active"]
    assert ada.succeed("operators", "versions", "shop", "-o", "name").split() == ["1.1.0", "1.0.0"]
    assert json.loads(ada.succeed("operators", "describe", "shop", "-o", "json"))["values"] == {"replicas": 2}
    values.write_text("replicas: 3\n")
    ada.succeed("operators", "update", "shop", "--values", str(values))
    described = ada.succeed("operators", "describe", "shop")
    assert "replicas: 3" in described
    assert yaml.safe_load(ada.succeed("operators", "describe", "shop", "-o", "yaml"))["version"] == 2
    assert ada.succeed("operators", "health", "shop") == "shop is Unknown\n"
    assert "shop" in ada.succeed("crds", "ls", "--operator", "shop")
    assert "widgets.example.com" in ada.succeed("crds", "ls", "--operator", "shop", "-o", "name")
    assert "1.1.0" in ada.succeed("crds", "describe", "widgets.example.com", "--operator", "shop")
    assert "severity:" in ada.succeed("crds", "validate", "widgets.example.com", "--operator", "shop")
    assert "add --yes to confirm" in ada.fail("operators", "delete", "shop")
    ada.succeed("operators", "delete", "shop", "--yes")
    assert "was refused (404): there is no operator 'shop'" in ada.fail("operators", "describe", "shop")


def test_an_operator_has_values_for_environments_secrets_and_a_login_that_are_shown_to_nobody(
    ada: Terminal, tmp_path: Path
) -> None:
    contents = {
        "environment-values": "Staging: {replicas: 4}\n",
        "secret-values": "password: hunter2secret\n",
        "credentials": "{username: robot, password: hunter3secret}\n",
    }
    options: list[str] = []
    for name, text in contents.items():
        (tmp_path / name).write_text(text)
        options += [f"--{name}", str(tmp_path / name)]
    register(ada, "sealed", *options)
    described = ada.succeed("operators", "describe", "sealed", "-o", "json")
    assert json.loads(described)["environmentValues"] == {"Staging": {"replicas": 4}}
    assert "hunter" not in described
    ada.succeed("operators", "update", "sealed", *options)
    assert json.loads(ada.succeed("operators", "describe", "sealed", "-o", "json"))["version"] == 2
    (tmp_path / "credentials").write_text("{user: robot}\n")
    line = ada.fail("operators", "update", "sealed", "--credentials", str(tmp_path / "credentials"))
    assert "credentials: Object contains unknown field `user`" in line


def test_a_version_has_the_guide_of_its_file(ada: Terminal, tmp_path: Path) -> None:
    guide = tmp_path / "guide.md"
    guide.write_text("Stop the old one first.\n")
    register(ada, "guided")
    added = ("operators", "add-version", "guided", "--version", "1.1.0", "--migration-guide", str(guide))
    ada.succeed(*added)
    listed = json.loads(ada.succeed("operators", "versions", "guided", "-o", "json"))["items"]
    guides = {each["version"]: each["migrationGuide"] for each in listed}
    assert guides == {"1.1.0": "Stop the old one first.\n", "1.0.0": ""}


def test_a_list_is_read_page_by_page_and_says_when_it_is_cut_off(
    ada: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"many-{number}" for number in range(5)]
    for name in names:
        register(ada, name)
    monkeypatch.setattr("kapsa.cli.fleet.client.manager_api.LARGEST_PAGE", 2)
    assert ada.succeed("operators", "ls", "--prefix", "many-", "-o", "name").split() == names
    cut = ada.run("operators", "ls", "--prefix", "many-", "-o", "name", "--limit", "3")
    assert (cut.out.split(), cut.err) == (names[:3], "only 3 are shown: use --limit 0 for all\n")


def test_a_repeated_request_with_the_same_key_has_one_effect(ada: Terminal) -> None:
    key = ("--idempotency-key", "pipeline-17")
    assert register(ada, "once", *key) == register(ada, "once", *key)
    line = ada.fail("operators", "register", "twice", "-n", "widgets", *REPOSITORY, *key)
    assert "was refused (422)" in line


@pytest.mark.long
def test_a_cluster_is_registered_from_standard_input_labelled_frozen_and_deleted(
    ada: Terminal, kubeconfig: Path, tmp_path: Path
) -> None:
    ada.succeed(
        *("clusters", "register", "dev", "--environment", "dev", "--kubeconfig", "-", "-l", "region=eu"),
        *("-l", "tier=gold", "--window", "Tue,Thursday 22:00 4h Europe/Prague"),
        stdin=kubeconfig.read_text(),
    )
    _, row = ada.succeed("clusters", "ls", "-l", "region=eu").splitlines()
    assert row.split()[:3] == ["dev", "Dev", "Healthy"]
    assert "Windows" in row
    ada.succeed("clusters", "update", "dev", "-l", "tier-", "-l", "owner=ada", "--no-windows")
    ada.succeed("clusters", "freeze", "dev", "--until", "2h", "--reason", "year end")
    cluster = json.loads(ada.succeed("clusters", "describe", "dev", "-o", "json"))
    assert cluster["labels"] == {"region": "eu", "owner": "ada"}
    assert (cluster["windows"], [each["reason"] for each in cluster["freezes"]]) == ([], ["year end"])
    assert "Frozen" in ada.succeed("clusters", "ls")
    assert ": year end" in ada.succeed("clusters", "describe", "dev")
    ada.succeed("clusters", "unfreeze", "dev")
    values = tmp_path / "values.yaml"
    values.write_text("dev: {replicas: 5}\n")
    register(ada, "layered", "--cluster-values", str(values))
    assert "replicas: 5" in ada.succeed("operators", "describe", "layered")
    assert "Any time" in ada.succeed("clusters", "ls")
    assert "RELEASE" not in ada.succeed("clusters", "releases", "dev")
    assert "RELEASE" not in ada.succeed("clusters", "releases", "dev", "--refresh")
    deployment(ada)
    ada.succeed("clusters", "delete", "dev", "--yes")


def deployment(ada: Terminal) -> None:
    """Request, change and end a deployment to the cluster."""
    register(ada, "widget")
    options = ("widget", "1.0.0", "--cluster", "dev", "--stages", "50,100", "--soak", "1h30m")
    refused = ada.fail("deployments", "plan", *options)
    assert "a cluster cannot be used now" in refused
    identifier = ada.succeed("deployments", "create", *options, "-o", "name").strip()
    short = identifier[:8]
    details = json.loads(ada.succeed("deployments", "describe", short, "-o", "json"))
    strategy = details["deployment"]["strategy"]
    assert (strategy["percentages"], strategy["evaluationPeriod"]) == ([50, 100], "PT5400S")
    assert details["clusters"][0]["gate"]["healthyChecks"] == 0
    assert ada.succeed("deployments", "ls", "--operator", "widget").splitlines()[1].split()[:3] == [
        short,
        "widget",
        "1.0.0",
    ]
    assert "has no plan" in ada.fail("deployments", "plan", short)
    assert ada.succeed("approvals", "ls", "--deployment", short) == ""
    assert "is Aborted" in ada.succeed("deployments", "abort", short, "--yes")
    watched = ada.run("deployments", "watch", short)
    assert (watched.code, watched.out.splitlines()[-1].split(":")[0]) == (1, "widget 1.0.0 is Aborted")
    assert "(by ada)" in ada.succeed("deployments", "events", short)
    assert "was refused (409)" in ada.fail("deployments", "pause", short)
    assert "no deployment among the newest" in ada.fail("deployments", "describe", "ffffffff")
    actions = json.loads(ada.succeed("audit", "ls", "--since", "1h", "--actor", "ada", "-o", "json"))["items"]
    assert {"cluster.update", "deployment.abort"} <= {each["action"] for each in actions}


def test_a_request_file_is_completed_by_options_and_a_wrong_field_in_it_is_named(
    ada: Terminal, tmp_path: Path
) -> None:
    request = tmp_path / "request.yaml"
    request.write_text("operator: nothing\nversion: 1.0.0\ntargets: {environment: Dev}\nstrategy: Rolling\n")
    line = ada.fail("deployments", "create", "-f", str(request), "--soak", "1m")
    assert "no operator is named 'nothing'" in line
    request.write_text("operator: nothing\nversion: 1.0.0\ntargets: {environments: Dev}\n")
    assert "contains unknown field `environments` - at `$.targets`" in ada.fail(
        "deployments", "create", "-f", str(request)
    )
    assert "--stages has no effect with strategy Rolling" in ada.fail(
        *(
            "deployments",
            "create",
            "widget",
            "1.0.0",
            "-c",
            "dev",
            "--strategy",
            "rolling",
            "--stages",
            "10,100",
        )
    )
    assert "no clusters selected" in ada.fail("deployments", "plan", "widget", "1.0.0")


def test_names_are_completed_from_the_manager_and_only_plain_ones(
    person: Callable[..., Terminal], monkeypatch: pytest.MonkeyPatch
) -> None:
    from kapsa.cli.fleet.client.references import complete_operators

    terminal = person("ada")
    register(terminal, "completed")
    monkeypatch.setenv("KAPSA_FLEETCONFIG", str(terminal.login))
    assert complete_operators("compl") == ["completed"]
    monkeypatch.setenv("KAPSA_FLEETCONFIG", "/nonexistent")
    assert complete_operators("compl") == []
