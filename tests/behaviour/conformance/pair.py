"""The two engines side by side, and the comparison of their responses."""

from __future__ import annotations

import asyncio
import itertools
import ssl
import tempfile
from base64 import b64decode
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from kapsa.devcluster import DevCluster
from kapsa.runtime.testing import background_loop
from tests.behaviour.conformance.cases.definitions import DEFINITIONS
from tests.behaviour.conformance.cases.requests import CRDS, get, post
from tests.behaviour.conformance.exchange import Case, Engine


class Pair:
    """Both engines, without controllers, so that only the requests change anything."""

    def __init__(
        self, wait: Callable[[Coroutine[Any, Any, Any]], Any], embedded: Engine, real: Engine
    ) -> None:
        self._wait = wait
        self._embedded = embedded
        self._real = real
        self._numbers = itertools.count(1)

    def compare(self, case: Case) -> tuple[list[Any], list[Any]]:
        """Send a case to both engines and return the responses of the embedded and of the real one."""
        embedded, real = self._wait(self._compare(case))
        return embedded, real

    def statuses(self, sent: bytes) -> tuple[int, int]:
        """Send these bytes to both engines and return the status of each response."""
        embedded, real = self._wait(self._statuses(sent))
        return embedded, real

    async def _statuses(self, sent: bytes) -> list[int]:
        return await asyncio.gather(*(engine.status_of(sent) for engine in (self._embedded, self._real)))

    async def _compare(self, case: Case) -> tuple[list[Any], list[Any]]:
        namespace = f"case-{next(self._numbers)}"
        embedded, real = await asyncio.gather(
            *(_play_in(engine, case, namespace) for engine in (self._embedded, self._real))
        )
        return embedded, real


async def _play_in(engine: Engine, case: Case, namespace: str) -> list[Any]:
    steps = [
        post("/api/v1/namespaces", {"metadata": {"name": "{ns}"}}),
        # The controller that would create the service account, which admission requires, does not run.
        post("/api/v1/namespaces/{ns}/serviceaccounts", {"metadata": {"name": "default"}}),
    ]
    await engine.play(Case(name="setup", steps=steps), namespace)
    return await engine.play(case, namespace)


@contextmanager
def engines() -> Iterator[Pair]:
    """Start both on a loop in the background, so that ordinary and generated tests can share them."""
    with background_loop() as wait:
        stack = AsyncExitStack()
        try:
            yield Pair(wait, *wait(_start(stack)))
        finally:
            wait(stack.aclose())


async def _start(stack: AsyncExitStack) -> tuple[Engine, Engine]:
    started = []
    for name in ("embedded", "real"):
        cluster = await stack.enter_async_context(DevCluster(engine=name, controllers=False, tls=True))
        tls = tls_of(cluster.kubeconfig_data)
        administrator = await stack.enter_async_context(_session(tls))
        anonymous = await stack.enter_async_context(_session(authority_of(cluster.kubeconfig_data)))
        engine = Engine(name, cluster.url, administrator, anonymous, tls)
        await _install(engine)
        started.append(engine)
    return started[0], started[1]


async def _install(engine: Engine) -> None:
    """Create the custom kinds and wait until their objects can be listed."""
    await engine.play(
        Case(name="install", steps=[post(CRDS, definition) for definition in DEFINITIONS]), "none"
    )
    group = DEFINITIONS[0]["spec"]["group"]
    lists = [get(f"/apis/{group}/v1/{definition['spec']['names']['plural']}") for definition in DEFINITIONS]
    for _ in range(100):
        answers = await engine.play(Case(name="ready", steps=lists), "none")
        if all(answer["status"] == 200 for answer in answers):
            return
        await asyncio.sleep(0.1)
    raise RuntimeError(f"the custom kinds did not become available on the {engine.name} engine: {answers}")


def _session(tls: ssl.SSLContext) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls))


def authority_of(kubeconfig: dict[str, Any]) -> ssl.SSLContext:
    """Return a context that trusts the cluster and has no client certificate."""
    authority = kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"]
    return ssl.create_default_context(cadata=b64decode(authority).decode())


def tls_of(kubeconfig: dict[str, Any]) -> ssl.SSLContext:
    """Return a context with the administrator's certificate."""
    user = kubeconfig["users"][0]["user"]
    context = authority_of(kubeconfig)
    with tempfile.TemporaryDirectory() as directory:
        certificate, key = Path(directory) / "crt", Path(directory) / "key"
        certificate.write_bytes(b64decode(user["client-certificate-data"]))
        key.write_bytes(b64decode(user["client-key-data"]))
        context.load_cert_chain(certificate, key)
    return context
