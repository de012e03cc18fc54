"""The service account of kpack builds: it exists, also without credentials, and has no rights. On both engines."""

from __future__ import annotations

from kapsa.environments.build.engines import BuildEngines
from kapsa.environments.settings import Settings
from kapsa.runtime import ClientError
from tests.environments.open_kinds import open_kind
from tests.environments.sandbox import Sandbox
from tests.environments.tenant import Tenant

KPACK_IMAGE = "kpack.io/v1alpha2/Image"
BUILDPACK = {
    "build": {"strategy": "buildpack"},
    "registry": {"imageRepository": "registry.example.com/org/app"},
    "deployment": {"type": "image"},
}


async def test_the_account_of_a_kpack_build_without_credentials_exists_and_has_no_rights(
    sandbox: Sandbox,
) -> None:
    async def served() -> bool:
        try:
            await sandbox.client.list(KPACK_IMAGE)
        except ClientError:
            return False
        return True

    await sandbox.client.apply(open_kind(KPACK_IMAGE), field_manager="person", force=True)
    await sandbox.until(served, "kpack's kind is served")
    tenant, settings = Tenant(sandbox), Settings(build_namespace=f"builds-{sandbox.unique}")
    tenant.systems.builds = BuildEngines(settings)
    await tenant.start(settings)
    await tenant.project(**BUILDPACK)
    await tenant.environment()
    await tenant.reaches("one", "BuildReady", "False", "Building")
    (image,) = (await tenant.client.list(KPACK_IMAGE, namespace=settings.build_namespace)).items
    name = image["spec"]["serviceAccountName"]
    assert name != "default"
    account = await tenant.client.get("v1/ServiceAccount", name, namespace=settings.build_namespace)
    assert account["automountServiceAccountToken"] is False
    assert not account.get("secrets")
    assert not account.get("imagePullSecrets")
