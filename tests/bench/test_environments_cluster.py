"""The servers of the environments benchmark match what the operator expects."""

from __future__ import annotations

import contextlib

from bench.environments_cluster import serve_all_hosts
from kapsa.adapters.http.client import GuardedHttpClient
from kapsa.adapters.http.prober import HttpProber


async def test_the_operators_probe_of_any_host_succeeds() -> None:
    http = GuardedHttpClient(address_guard=None)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(http.close)
        address = await serve_all_hosts(stack)
        assert await HttpProber(http).probe("https://any.preview.test", address=address) == 200
