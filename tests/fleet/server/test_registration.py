"""A whole manager over HTTP: operators from real repositories, and ten real clusters."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio
import yaml
from sqlalchemy.engine import URL

from kapsa.adapters.testing.chart_server import ChartServer, pack_chart
from kapsa.adapters.testing.registry_server import RegistryServer
from kapsa.devcluster import DevCluster
from kapsa.fleet.domain.principals import Role
from kapsa.fleet.infrastructure.vault.encryption_keys import new_key_text
from kapsa.fleet.server.lifecycle import FleetServer
from kapsa.fleet.settings import FleetSettings
from tests.eventually import eventually
from tests.fleet.callers import Caller
from tests.fleet.charts import operator_chart

PASSWORD = "hunter2-very-secret"


@pytest.fixture
def settings(database_url: URL, tmp_path: Path) -> FleetSettings:
    return FleetSettings(
        database_url=database_url.render_as_string(hide_password=False),
        data_directory=tmp_path / "fleet",
        encryption_keys=new_key_text(),
        listen_port=0,
        internal_addresses=True,
        plain_http_repositories=True,
    )


@pytest_asyncio.fixture
async def server(settings: FleetSettings) -> AsyncIterator[FleetServer]:
    async with FleetServer(settings) as running:
        yield running


@pytest_asyncio.fixture
async def admins(server: FleetServer, settings: FleetSettings) -> AsyncIterator[list[Caller]]:
    """Three admins. Each may register five clusters a minute."""
    callers = [Caller(server, settings.directory, f"admin-{number}", Role.ADMIN) for number in range(3)]
    yield callers
    for each in callers:
        await each.http.aclose()


async def test_ten_clusters_are_registered_over_the_api_and_checked(
    server: FleetServer, admins: list[Caller]
) -> None:
    async with AsyncExitStack() as stack:
        for number in range(10):
            cluster = await stack.enter_async_context(DevCluster(tls=True))
            kubeconfig = Path(cluster.kubeconfig).read_text()
            body = {"name": f"c-{number}", "environment": "Dev", "kubeconfig": kubeconfig}
            status, created = await admins[number % 2].call("POST", "/clusters", body)
            assert status == 201, created
            key = yaml.safe_load(kubeconfig)["users"][0]["user"]["client-key-data"]
            assert key not in json.dumps(created)
        status, page = await admins[2].call("GET", "/clusters")
        assert [each["name"] for each in page["items"]] == [f"c-{number}" for number in range(10)]
        assert all(each["health"]["kubernetesVersion"].startswith("v1.") for each in page["items"])
        status, inventory = await admins[2].call("GET", "/clusters/c-0/releases")
        assert (status, inventory["releases"], inventory["problems"]) == (200, [], [])

        async def checked() -> set[str]:
            _, listed = await admins[2].call("GET", "/clusters")
            first = {each["name"]: each["createdAt"] for each in listed["items"]}
            return {
                each["name"]
                for each in listed["items"]
                if each["health"]["lastChecked"] != first[each["name"]]
            }

        # The first check of a new cluster is due at once.
        await eventually(checked, lambda names: len(names) == 10, "ten checked clusters", seconds=30)
    status, refused = await admins[2].call(
        "POST", "/clusters", {"name": "gone", "environment": "Dev", "kubeconfig": kubeconfig}
    )
    assert (status, refused["errors"][0]["path"]) == (400, "/kubeconfig")


@pytest.mark.long
async def test_operators_come_from_a_repository_a_registry_and_an_upload(admins: list[Caller]) -> None:
    admin = admins[0]
    with ChartServer() as repository, RegistryServer() as registry:
        repository.add(operator_chart("1.0.0"))
        repository.login = ("reader", PASSWORD)
        registry.push_chart("charts/widget", "2.0.0", operator_chart("2.0.0"))
        common = {"namespace": "widgets"}
        http = {"type": "http", "repository": repository.url, "chart": "widget"}
        login = {"username": "reader", "password": PASSWORD}
        status, first = await admin.call(
            "POST", "/operators", {**common, "name": "by-http", "source": http, "credentials": login}
        )
        assert (status, first["version"]["version"]) == (201, "1.0.0"), first
        assert first["version"]["facts"]["crdsInCrds"] == ["widgets.example.com"]
        oci = {"type": "oci", "reference": f"oci://{registry.endpoint}/charts/widget"}
        status, second = await admin.call("POST", "/operators", {**common, "name": "by-oci", "source": oci})
        assert (status, second["version"]["version"]) == (201, "2.0.0"), second
        upload = {"type": "upload", "chart": "widget"}
        archive = base64.b64encode(operator_chart("3.0.0")).decode()
        status, third = await admin.call(
            "POST", "/operators", {**common, "name": "by-upload", "source": upload, "archive": archive}
        )
        assert (status, third["version"]["version"]) == (201, "3.0.0"), third
        assert PASSWORD not in json.dumps([first, second, third, await admin.call("GET", "/audit")])

        for source, archive_content, reason in (
            (http, None, "credentials are required"),
            ({**http, "repository": "http://127.0.0.1:1"}, None, "127.0.0.1:1"),
            ({**oci, "reference": f"oci://{registry.endpoint}/charts/none"}, None, "does not have"),
            (upload, operator_chart("1.0.0", {"../evil": "x"}), "leads out"),
            (upload, operator_chart("1.0.0", {"bomb": b"\0" * (30 * 1024 * 1024)}), "times its size"),
            (upload, operator_chart("1.0.0", {"templates/a.yaml": "{{ .Values.a.b }}"}), "helm lint"),
            (upload, pack_chart("other", "1.0.0"), "has the chart 'other'"),
        ):
            body = {**common, "name": "refused", "source": source}
            if archive_content is not None:
                body["archive"] = base64.b64encode(archive_content).decode()
            status, problem = await admin.call("POST", "/operators", body)
            assert status == 400, problem
            assert reason in json.dumps(problem), problem
        status, _ = await admin.call("GET", "/operators/refused")
        assert status == 404
