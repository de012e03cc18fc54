"""The real systems outside the cluster: guarded, and closed in the end."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from kapsa.adapters.errors import Refused
from kapsa.adapters.git.repositories import Repositories
from kapsa.adapters.http.client import GuardedHttpClient
from kapsa.adapters.testing.git_server import GitRepository
from kapsa.environments.installation import installation
from kapsa.environments.operator import ExternalSystems, make_operator
from kapsa.environments.render.renderer import PROCESS_MEMORY, PROCESSES
from kapsa.environments.settings import Settings
from kapsa.runtime import Quantity
from tests.environments.sandbox import Sandbox

ROOT = Path(__file__).parents[2]


def settings(directory: Path) -> Settings:
    return Settings(cache_directory=directory, git_protocols=("http",), leader_election=False)


async def test_git_connects_to_internal_addresses_only_if_that_is_allowed(
    git_repository: GitRepository, tmp_path: Path
) -> None:
    git_repository.commit({"a": "b"})
    guarded = ExternalSystems.of(settings(tmp_path), GuardedHttpClient())
    with pytest.raises(Refused, match=r"127\.0\.0\.1"):
        await guarded.git.ls_remote(git_repository.url)
    free = ExternalSystems.of(settings(tmp_path), GuardedHttpClient(), address_guard=None)
    assert (await free.git.ls_remote(git_repository.url)).branches


def test_the_key_of_the_webhooks_is_kept_in_the_operators_namespace() -> None:
    webhooks = make_operator(Settings(namespace="platform", webhooks_enabled=True)).webhooks
    assert webhooks is not None
    assert webhooks.namespace == "platform"


async def test_checkouts_are_removed_when_the_operator_ends(
    sandbox: Sandbox, git_repository: GitRepository, tmp_path: Path
) -> None:
    commit = git_repository.commit({"a": "b"})
    systems = ExternalSystems.of(settings(tmp_path), GuardedHttpClient(), address_guard=None)
    assert isinstance(systems.commits, Repositories)
    await sandbox.start(make_operator(settings(tmp_path), systems))
    async with systems.commits.checkout(git_repository.url, commit) as checkout:
        assert (checkout.root / "a").read_text() == "b"
    assert any((tmp_path / "checkouts").iterdir())
    await sandbox.harness.stop()
    assert not any((tmp_path / "checkouts").iterdir())
    assert any((tmp_path / "repositories").iterdir()), "they are kept for the next time"


def test_the_memory_of_a_pod_suffices_for_the_operator_and_all_processes_that_render() -> None:
    chart = yaml.safe_load((ROOT / "charts/kapsa/values.yaml").read_text(encoding="utf-8"))
    installed = installation(Settings(), image="kapsa:1")
    (pod,) = (each["spec"]["template"]["spec"] for each in installed if each["kind"] == "Deployment")
    needed = PROCESSES * PROCESS_MEMORY + Quantity("768Mi").value  # of the operator itself and git
    for resources in (chart["operator"]["resources"], pod["containers"][0]["resources"]):
        assert Quantity(resources["limits"]["memory"]).value >= needed
