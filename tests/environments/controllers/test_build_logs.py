"""The log of a failed build, without the secrets that the operator put into it."""

from __future__ import annotations

import pytest

from kapsa.environments.resources import Registry
from tests.environments.tenant import ALL_REPOSITORIES, Tenant

pytestmark = pytest.mark.virtual_time

PASSWORD = "correct horse battery"
"""A secret that no pattern recognizes."""


async def test_a_registrys_password_is_in_no_status_though_a_build_prints_it(tenant: Tenant) -> None:
    await tenant.sandbox.make_namespace("kapsa-system")
    login = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "login", "namespace": "kapsa-system"},
        "stringData": {"username": "robot", "password": PASSWORD},
    }
    await tenant.client.create(login)
    spec = {
        "endpoint": "registry.example.com",
        "auth": {"secretRef": {"name": "login"}},
        "repositories": ALL_REPOSITORIES,
    }
    await tenant.sandbox.apply(Registry, "main", spec)
    workloads = tenant.sandbox.harness.cluster.workloads
    workloads.crash("kapsa-builds/*", exit_code=1)
    workloads.logs("kapsa-builds/*", f"pushing as robot, {PASSWORD}\nCOPY failed: no such file\n")
    await tenant.project(
        build={"strategy": "dockerfile"},
        registry={"name": "main", "imageRepository": "org/app"},
        deployment={"type": "image"},
    )
    await tenant.environment()
    failed = await tenant.reaches("one", "BuildReady", "False", "BuildFailed")
    failure = failed.status.failure
    assert failure is not None
    assert "COPY failed" in failure.log_tail
    assert PASSWORD not in str(failed.to_dict())
