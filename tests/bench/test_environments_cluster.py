"""The world that the environments benchmark plays in fits the operator that is measured in it."""

from __future__ import annotations

import contextlib

from bench.environments_cluster import answer_for_hosts
from kapsa.adapters.http.client import GuardedHttpClient
from kapsa.adapters.http.prober import HttpProber


async def test_every_host_is_answered_as_the_operator_asks_for_it() -> None:
    outgoing = GuardedHttpClient(address_guard=None)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(outgoing.close)
        address = await answer_for_hosts(stack)
        assert await HttpProber(outgoing).probe("https://any.preview.test", address=address) == 200
