"""The images of deleted environments, with a registry that implements the distribution specification."""

from __future__ import annotations

import pytest
import pytest_asyncio

from kapsa.adapters.errors import ExternalError, Refused
from kapsa.adapters.oci.credentials import RegistryCredentials
from kapsa.adapters.oci.image_reference import ImageReference
from kapsa.adapters.oci.registries import ImageRegistries
from kapsa.adapters.oci.registry import ImageRegistry
from kapsa.adapters.testing.registry_server import RegistryServer
from kapsa.environments.resources import Environment, Registry
from tests.environments.fakes import commit_of
from tests.environments.sandbox import Sandbox
from tests.environments.tenant import ALL_REPOSITORIES, Tenant

pytestmark = pytest.mark.virtual_time

LOGIN = ("robot", "hunter2-very-secret")
DOCKERFILE = {"build": {"strategy": "dockerfile"}, "deployment": {"type": "image"}}


class Registered:
    """A tenant whose project has its images in a registry that requires credentials."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.tenant = Tenant(sandbox)
        self.server = RegistryServer()
        self.server.login = LOGIN
        self.tenant.systems.images = ImageRegistries(self.server.http)

    async def start(self, retention: str = "delete") -> None:
        name, password = LOGIN
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "login", "namespace": self.sandbox.namespace},
            "stringData": {"username": name, "password": password},
        }
        await self.sandbox.client.create(secret)
        login = {"name": "login", "namespace": self.sandbox.namespace}
        spec = {
            "endpoint": "registry.test",
            "insecure": True,
            "auth": {"secretRef": login},
            "imageRetention": retention,
            "repositories": ALL_REPOSITORIES,
        }
        await self.sandbox.apply(Registry, self.sandbox.unique, spec)
        await self.tenant.start()
        await self.tenant.project(
            **DOCKERFILE, registry={"name": self.sandbox.unique, "imageRepository": "org/app"}
        )

    async def environment(self, name: str = "one", commit: str = "one") -> Environment:
        """Return an environment that is ready at a commit whose image was built."""
        self.server.push("org/app", commit_of(commit), commit.encode())
        await self.tenant.environment(name, commit=commit)
        return await self.tenant.ready(name)

    async def delete(self, name: str = "one") -> None:
        await self.tenant.client.delete(Environment, name, namespace=self.tenant.home)
        await self.sandbox.gone(Environment, name, namespace=self.tenant.home)

    def tags(self) -> list[str]:
        """Return the commits whose images exist."""
        return self.server.tags("org/app")

    async def notes_of(self, reason: str) -> list[str]:
        """Return the notes of events with this reason."""
        events = (await self.tenant.client.list("events.k8s.io/v1/Event", namespace=self.tenant.home)).items
        return [each["note"] for each in events if each["reason"] == reason]


@pytest_asyncio.fixture
async def registered(sandbox: Sandbox) -> Registered:
    return Registered(sandbox)


async def test_images_stay_unless_the_registry_says_otherwise(registered: Registered) -> None:
    await registered.start("keep")
    await registered.environment()
    await registered.delete()
    assert registered.tags() == [commit_of("one")]
    assert (await registered.notes_of("ImagesDeleted")) == []


async def test_a_deleted_environment_takes_all_its_images_along(registered: Registered) -> None:
    await registered.start()
    await registered.environment(commit="one")
    ready = await registered.environment(commit="two")
    assert len(ready.status.built_images) == 2
    assert ready.status.built_images[-1] == ready.status.image
    await registered.delete()
    assert registered.tags() == []
    (note,) = await registered.notes_of("ImagesDeleted")
    assert note == f"deleted 2 images from Registry {registered.sandbox.unique}"


async def test_an_image_goes_with_the_last_environment_that_has_it(registered: Registered) -> None:
    await registered.start()
    for name in ("one", "two"):
        await registered.environment(name)
    await registered.delete("one")
    assert registered.tags() == [commit_of("one")]
    await registered.tenant.ready("two")
    await registered.delete("two")
    assert registered.tags() == []


async def test_environments_that_go_together_leave_their_image_to_nobody(registered: Registered) -> None:
    await registered.start()
    for name in ("one", "two"):
        await registered.environment(name)
    for name in ("one", "two"):
        await registered.tenant.client.delete(Environment, name, namespace=registered.tenant.home)
    for name in ("one", "two"):
        await registered.sandbox.gone(Environment, name, namespace=registered.tenant.home)
    assert registered.tags() == []


async def test_a_commit_whose_image_was_deleted_is_built_again(registered: Registered) -> None:
    await registered.start()
    await registered.environment()
    await registered.delete()
    registered.sandbox.harness.cluster.workloads.delay(finish=600)
    await registered.tenant.environment()
    await registered.tenant.reaches("one", "BuildReady", "False", "Building")


async def test_a_registry_without_deletion_is_reported_and_does_not_delay_the_environment(
    registered: Registered,
) -> None:
    registered.server.supports_deletion = False
    await registered.start()
    image = (await registered.environment()).status.image
    await registered.delete()
    assert registered.tags() == [commit_of("one")]
    (note,) = await registered.notes_of("ImagesNotDeleted")
    assert note.startswith(f"could not delete {image} from Registry {registered.sandbox.unique}: ")
    assert "does not delete images (405)" in note


async def test_an_unavailable_registry_is_tried_once_and_does_not_delay_the_environment(
    registered: Registered,
) -> None:
    await registered.start()
    await registered.environment(commit="one")
    await registered.environment(commit="two")
    registered.server.fail(503, times=100, method="DELETE")
    await registered.delete()
    asked = {each.path for each in registered.server.requests if each.method == "DELETE"}
    assert len(asked) == 1, "after the first image the others are not tried"
    (note,) = await registered.notes_of("ImagesNotDeleted")
    assert "and 1 more from Registry" in note
    assert "503" in note
    assert LOGIN[1] not in note


async def test_a_registry_without_its_credentials_does_not_delay_the_environment(
    registered: Registered,
) -> None:
    await registered.start()
    await registered.environment()
    await registered.tenant.client.delete("v1/Secret", "login", namespace=registered.sandbox.namespace)
    await registered.delete()
    (note,) = await registered.notes_of("ImagesNotDeleted")
    assert "Secret login, which Registry" in note


async def test_deleting_asks_for_a_token_that_may_delete() -> None:
    server = RegistryServer()
    server.login = LOGIN
    digest = server.push("team/app", "1.0")
    login = RegistryCredentials(username=LOGIN[0], password=LOGIN[1])
    registry = ImageRegistry("http://registry.test", server.http, credentials=login, insecure=True)
    image = ImageReference.parse("registry.test/team/app:1.0")
    assert await registry.digest(image) == digest
    assert await registry.delete(image.with_digest(digest)) is True
    assert await registry.delete(image.with_digest(digest)) is False
    assert await registry.digest(image) is None


async def test_an_image_is_never_deleted_by_its_tag() -> None:
    server = RegistryServer()
    server.push("team/app", "1.0")
    registry = ImageRegistry("http://registry.test", server.http, insecure=True)
    with pytest.raises(Refused, match="without its digest"):
        await registry.delete(ImageReference.parse("registry.test/team/app:1.0"))


@pytest.mark.parametrize("status", [400, 403, 405, 429, 500])
async def test_whatever_a_registry_answers_but_done_or_absent_is_an_error(status: int) -> None:
    server = RegistryServer()
    digest = server.push("team/app", "1.0")
    server.fail(status, method="DELETE")
    registry = ImageRegistry("http://registry.test", server.http, insecure=True)
    with pytest.raises(ExternalError, match=str(status)):
        await registry.delete(ImageReference.parse("registry.test/team/app").with_digest(digest))
