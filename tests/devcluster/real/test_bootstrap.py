"""A cluster that starts with the data of another is not ready just because the other one was."""

import ssl
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from kapsa.devcluster.real.bootstrap import NODE_LEASES, Administrator

AUTHORITIES = "/api/v1/configmaps"
NODE = "/api/v1/nodes/node-1"

Objects = dict[str, dict[str, Any]]


@pytest.fixture
def objects() -> Objects:
    """The objects of the fake API by path; a test adds them."""
    return {}


@pytest_asyncio.fixture
async def api(objects: Objects) -> AsyncIterator[Administrator]:
    async def answer(request: web.Request) -> web.Response:
        obj = objects.get(request.path)
        return web.json_response(obj, status=200 if obj else 404)

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    async with (
        TestServer(application) as server,
        Administrator(str(server.make_url("")), ssl.create_default_context()) as administrator,
    ):
        yield administrator


async def test_the_authority_of_an_earlier_cluster_does_not_count(
    api: Administrator, objects: Objects
) -> None:
    def publish(**authorities: str) -> None:
        objects[AUTHORITIES] = {
            "items": [
                {"metadata": {"namespace": namespace}, "data": {"ca.crt": authority}}
                for namespace, authority in authorities.items()
            ]
        }

    assert not await api.has_published("new")
    publish(elsewhere="new")
    assert not await api.has_published("new"), "default has none yet"
    publish(default="new", elsewhere="old")
    assert not await api.has_published("new")
    publish(default="new", elsewhere="new")
    assert await api.has_published("new")


async def test_a_node_that_was_ready_in_an_earlier_cluster_needs_a_new_kubelet(
    api: Administrator, objects: Objects
) -> None:
    objects[NODE] = {"spec": {}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    assert not await api.is_schedulable("node-1")
    objects[f"{NODE_LEASES}/node-1"] = {"spec": {}}
    assert await api.is_schedulable("node-1")
