"""Admission: the API server rejects over TLS what would fail later, with the messages of the controllers."""

from __future__ import annotations

import asyncio
import json
import random
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from kapsa.adapters.process.tools import find_tool
from kapsa.devcluster import DevCluster
from kapsa.environments.admission import validators
from kapsa.environments.names import OWNER, OWNER_UID
from kapsa.environments.resources import KINDS, DomainPool, Environment, PreviewEnvironment, Project
from kapsa.environments.settings import Settings
from kapsa.runtime import Client, ClientError, Forbidden, NotFound, Webhooks, custom_resource_definitions
from kapsa.runtime.webhooks.server import WebhookServer
from tests.eventually import eventually

OPERATOR = "kapsa-admission-test"
COMMIT = "0123456789" * 4


@pytest.fixture
def team() -> str:
    """A name that no other test uses: the real engine deletes namespaces slowly."""
    return f"team-{uuid.uuid4().hex[:8]}"


@pytest_asyncio.fixture
async def client(cluster: DevCluster, team: str, unused_tcp_port: int) -> AsyncIterator[Client]:
    """A client of a cluster with the webhooks, a team, a project and its namespace."""
    async with Client.connect(kubeconfig=cluster.kubeconfig, field_manager=OPERATOR) as client:
        for definition in custom_resource_definitions(KINDS):
            await client.apply(definition, force=True)
        webhooks = Webhooks(
            *validators(Settings()),
            host="127.0.0.1",
            port=unused_tcp_port,
            url=f"https://127.0.0.1:{unused_tcp_port}",
        )
        server = WebhookServer(webhooks, client, operator=OPERATOR)
        await server.start()
        try:
            async with asyncio.timeout(30):
                await server.ready.wait()
            await namespace(client, team)
            await eventually(lambda: called(client, team), bool, "the API server asks every webhook")
            await furnish(client, team)
            yield client
        finally:
            await clear(client)
            await server.stop()


async def called(client: Client, team: str) -> bool:
    """Wait until the API server serves the kinds and calls the webhooks."""
    probes = [
        manifest(Project, "probe", project_spec(repositoryUrl="http://git.example.com/app"), team),
        manifest(Environment, "probe", environment_spec(), team),
    ]
    try:
        for probe in probes:
            try:
                await client.create(probe, dry_run=True)
            except Forbidden:
                continue
            return False
        await client.list(DomainPool)
        await client.list(PreviewEnvironment)
    except ClientError:
        return False
    return True


async def furnish(client: Client, team: str) -> None:
    project = await client.create(manifest(Project, "app", project_spec(), team))
    await namespace(client, f"{team}-app", owner=f"{team}/app", uid=project["metadata"]["uid"])
    status = {"status": {"namespace": {"name": f"{team}-app", "uid": ""}}}
    await client.patch(Project, "app", status, namespace=team, subresource="status")


async def clear(client: Client) -> None:
    """Delete all resources: tests share the real engine."""
    await client.delete("admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration", OPERATOR)
    await client.delete("v1/Secret", f"{OPERATOR}-webhook-certificates")
    for kind in KINDS:
        resource: Any
        for resource in (await client.list(kind)).items:
            await client.delete(kind, resource.name, namespace=resource.namespace)


async def namespace(client: Client, name: str, *, owner: str = "", uid: str = "") -> None:
    metadata: dict[str, Any] = {"name": name}
    if owner:
        metadata |= {"labels": {OWNER_UID: uid}, "annotations": {OWNER: owner}}
    await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})


def manifest(kind: Any, name: str, spec: dict[str, Any], namespace: str = "") -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


def project_spec(**source: Any) -> dict[str, Any]:
    return {
        "source": {"repositoryUrl": "https://git.example.com/org/app", **source},
        "deployment": {"type": "manifest"},
    }


def environment_spec(*, project: str = "app", **spec: Any) -> dict[str, Any]:
    return {"projectRef": {"name": project}, "source": {"commitSha": COMMIT}, **spec}


def preview_spec(number: int) -> dict[str, Any]:
    return {"pr_number": number, "branch_name": "x", "image": "a", "image_tag": "b"}


async def refusal(client: Client, body: dict[str, Any]) -> tuple[str, str]:
    """Return the reason and the message of a rejected write."""
    with pytest.raises(Forbidden) as caught:
        await client.create(body)
    return caught.value.reason, str(caught.value)


async def test_what_is_right_is_let_through(client: Client, team: str) -> None:
    made = await client.create(manifest(Environment, "one", environment_spec(), f"{team}-app"))
    host: dict[str, Any] = {"ingress": {"host": "one.preview.catalyst.dev"}}
    await client.create(manifest(Environment, "two", environment_spec(**host), f"{team}-app"))
    await client.create(manifest(DomainPool, "pool", {"baseDomains": ["example.com"]}))
    await client.create(manifest(PreviewEnvironment, "pr-7", preview_spec(7), team))
    made["metadata"]["labels"] = {"a": "b"}
    await client.replace(made)


async def test_an_environment_in_a_namespace_of_no_project_is_refused(client: Client, team: str) -> None:
    reason, message = await refusal(client, manifest(Environment, "one", environment_spec(), team))
    assert reason == "ProjectMissing"
    assert f"namespace {team} does not belong to a Project app: create the Project" in message


async def test_an_environment_of_another_project_than_its_namespaces_is_refused(
    client: Client, team: str
) -> None:
    body = manifest(Environment, "one", environment_spec(project="other"), f"{team}-app")
    assert (await refusal(client, body))[0] == "ProjectMissing"


async def test_an_environment_cannot_move_to_another_project(client: Client, team: str) -> None:
    made = await client.create(manifest(Environment, "one", environment_spec(), f"{team}-app"))
    made["spec"]["projectRef"]["name"] = "other"
    with pytest.raises(Forbidden, match="does not belong to a Project other"):
        await client.replace(made)


async def test_an_environment_whose_namespace_is_somebody_elses_is_refused(client: Client, team: str) -> None:
    await namespace(client, f"{team}-app-taken", owner="others/app", uid="1")
    reason, message = await refusal(client, manifest(Environment, "taken", environment_spec(), f"{team}-app"))
    assert reason == "NamespaceNotOurs"
    assert f"namespace {team}-app-taken already exists and belongs to others/app" in message


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "snippet": (
        {"annotations": {"nginx.ingress.kubernetes.io/server-snippet": "return 200;"}},
        "AnnotationRefused",
        "would configure the ingress controller itself",
    ),
    "issuer": (
        {"annotations": {"cert-manager.io/cluster-issuer": "mine"}},
        "AnnotationRefused",
        "may only be set by the operator",
    ),
    "another's host": (
        {
            "host": "one.preview.catalyst.dev",
            "annotations": {"external-dns.alpha.kubernetes.io/hostname": "www.example.com"},
        },
        "AnnotationRefused",
        "a host that is not allocated to it",
    ),
    "path": ({"path": "/{}"}, "IngressPathRefused", "may contain only letters, digits"),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_a_route_that_is_never_made_is_refused_at_once(client: Client, team: str, what: str) -> None:
    ingress, reason, words = REFUSED[what]
    body = manifest(Environment, "one", environment_spec(ingress=ingress), f"{team}-app")
    refused = await refusal(client, body)
    assert refused[0] == reason
    assert words in refused[1]
    body["spec"]["ingress"]["enabled"] = False
    made = await client.create(body)
    made["spec"]["ingress"]["enabled"] = True
    with pytest.raises(Forbidden, match=words):
        await client.replace(made)


async def test_an_annotation_with_a_host_that_is_yet_to_be_given_out_is_let_through(
    client: Client, team: str
) -> None:
    names = {"external-dns.alpha.kubernetes.io/hostname": "one.preview.catalyst.dev"}
    body = manifest(Environment, "one", environment_spec(ingress={"annotations": names}), f"{team}-app")
    await client.create(body)


async def give(client: Client, host: str) -> None:
    """Allocate a host to an environment of another tenant."""
    pool = {"baseDomains": ["example.com"], "allocationPolicy": {"reservedSubdomains": ["admin"]}}
    await client.create(manifest(DomainPool, "pool", pool))
    held = {"host": host, "environment": "others-app/one", "uid": "1"}
    await client.patch(DomainPool, "pool", {"status": {"allocations": [held]}}, subresource="status")


@pytest.mark.parametrize(
    ("host", "reason", "words"),
    [
        ("held.example.com", "HostTaken", "host held.example.com is taken by environment others-app/one"),
        ("admin.example.com", "HostReserved", "host admin.example.com is reserved by DomainPool pool"),
        (
            "a.example.org",
            "HostOutsidePools",
            "is not under any domain available to the Project (example.com)",
        ),
    ],
)
async def test_a_host_that_cannot_be_had_is_refused(
    client: Client, team: str, host: str, reason: str, words: str
) -> None:
    await give(client, "held.example.com")
    spec = environment_spec(ingress={"host": host})
    given_reason, message = await refusal(client, manifest(Environment, "one", spec, f"{team}-app"))
    assert given_reason == reason
    assert words in message


async def test_a_host_is_judged_when_it_changes_and_then_only(client: Client, team: str) -> None:
    spec = environment_spec(ingress={"host": "held.preview.catalyst.dev"})
    made = await client.create(manifest(Environment, "one", spec, f"{team}-app"))
    await give(client, "held.example.com")
    made["spec"]["suspended"] = True
    made = await client.replace(made)
    made["spec"]["ingress"]["host"] = "held.example.com"
    with pytest.raises(Forbidden, match="is taken by environment others-app/one"):
        await client.replace(made)


async def test_an_environment_whose_project_is_gone_can_still_be_deleted(client: Client, team: str) -> None:
    body = manifest(Environment, "one", environment_spec(), f"{team}-app")
    body["metadata"]["finalizers"] = ["example.com/wait"]
    await client.create(body)
    await client.delete(Project, "app", namespace=team)
    await client.delete(Environment, "one", namespace=f"{team}-app")
    patch = {"metadata": {"finalizers": None}, "spec": {"projectRef": {"name": "other"}}}
    await client.patch(Environment, "one", patch, namespace=f"{team}-app")
    with pytest.raises(NotFound):
        await client.get(Environment, "one", namespace=f"{team}-app")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"repositoryUrl": "http://git.example.com/app"}, "protocol 'http' is not allowed"),
        ({"repositoryUrl": "https://git.example.com/a/../b"}, "must not contain '..'"),
        ({"branch": "a..b"}, "'a..b' is not a valid branch name"),
    ],
)
async def test_a_project_that_can_never_be_fetched_is_refused(
    client: Client, team: str, source: dict[str, str], words: str
) -> None:
    assert words in (await refusal(client, manifest(Project, "other", project_spec(**source), team)))[1]


async def test_a_project_whose_namespace_is_somebody_elses_is_refused(client: Client, team: str) -> None:
    await namespace(client, f"{team}-app-taken")
    reason, message = await refusal(client, manifest(Project, "app-taken", project_spec(), team))
    assert reason == "NamespaceNotOurs"
    assert f"namespace {team}-app-taken already exists and belongs to another owner" in message


async def test_a_project_whose_namespace_would_be_the_one_of_builds_is_refused_at_once(
    client: Client,
) -> None:
    await namespace(client, "kapsa")
    reason, message = await refusal(client, manifest(Project, "builds", project_spec(), "kapsa"))
    assert reason == "NamespaceNotOurs"
    assert "namespace kapsa-builds is reserved for the operator or the cluster" in message


async def test_a_domain_is_in_one_pool_only(client: Client) -> None:
    await client.create(manifest(DomainPool, "one", {"baseDomains": ["a.example.com", "b.example.com"]}))
    two = await client.create(manifest(DomainPool, "two", {"baseDomains": ["c.example.com"]}))
    reason, message = await refusal(
        client, manifest(DomainPool, "three", {"baseDomains": ["d.example.com", "a.example.com"]})
    )
    assert reason == "DomainTaken"
    assert "another pool allocates hosts under a.example.com (DomainPool one)" in message
    two["spec"]["baseDomains"].append("b.example.com")
    with pytest.raises(Forbidden, match="DomainPool one"):
        await client.replace(two)


async def test_a_pull_request_has_one_preview(client: Client, team: str) -> None:
    number = random.randrange(1, 900_000)
    await namespace(client, f"preview-pr-{number}", owner="others/first", uid="1")
    second = manifest(PreviewEnvironment, "second", preview_spec(number), team)
    reason, message = await refusal(client, second)
    assert reason == "NamespaceNotOurs"
    assert f"namespace preview-pr-{number} already exists and belongs to others/first" in message


async def kubectl(cluster: DevCluster, tmp_path: Path, body: dict[str, Any]) -> tuple[int, str]:
    file = tmp_path / "object.json"
    file.write_text(json.dumps(body))
    process = await asyncio.create_subprocess_exec(
        find_tool("kubectl").path,
        f"--kubeconfig={cluster.kubeconfig}",
        "apply",
        f"--filename={file}",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    return process.returncode or 0, out.decode()


async def test_kubectl_prints_the_refusal(
    client: Client, team: str, cluster: DevCluster, tmp_path: Path
) -> None:
    await give(client, "held.example.com")
    spec = environment_spec(ingress={"host": "held.example.com"})
    code, output = await kubectl(cluster, tmp_path, manifest(Environment, "one", spec, f"{team}-app"))
    assert code == 1
    assert "Error from server (HostTaken)" in output
    assert (
        'admission webhook "validate-environment.catalyst.catalyst.dev" denied the request: host held.example.com is '
        "taken by environment others-app/one. Choose another host, or delete that environment first"
    ) in output


async def test_kubectl_prints_warnings_about_missing_references(
    client: Client, team: str, cluster: DevCluster, tmp_path: Path
) -> None:
    spec = {
        **project_spec(),
        "registry": {"name": "images", "imageRepository": "org/app"},
        "domain": {"domainPoolRef": {"name": "pool"}},
    }
    code, output = await kubectl(cluster, tmp_path, manifest(Project, "other", spec, team))
    assert code == 0
    assert (
        "Warning: Registry images does not exist yet: the environments of the Project wait for it" in output
    )
    assert "Warning: DomainPool pool does not exist yet" in output
