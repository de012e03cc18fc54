"""Sessions with the real kubectl: each command answers on either engine what the real one answered when recorded.

`pytest --engine real --record tests/behaviour/clients/test_sessions.py` records the answers of the commands again.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from kapsa.devcluster import DevCluster
from tests.behaviour.clients.kubectl import Kubectl
from tests.behaviour.clients.transcripts import Masks, Step, mask_descriptions, parse, render

SESSIONS = Path(__file__).parent / "sessions"
NUMBERS = itertools.count(1)
PATIENCE = 30.0
"""Seconds that a repeated command has to answer as recorded."""


@pytest.fixture
async def secure_cluster(engine: str, request: pytest.FixtureRequest) -> AsyncIterator[DevCluster]:
    """A cluster of the engine under test with users: the embedded one over TLS."""
    if engine == "real":
        yield request.getfixturevalue("real_cluster")
        return
    async with DevCluster(tls=True) as embedded:
        yield embedded


@pytest.fixture
async def session(secure_cluster: DevCluster, tmp_path: Path) -> AsyncIterator[Session]:
    session = Session(secure_cluster, f"session-{os.getpid()}-{next(NUMBERS)}", tmp_path)
    await session.start()
    yield session
    await session.stop()


class Session:
    """One session: a namespace, a copy of the files and of the kubeconfig, and the commands in order."""

    def __init__(self, cluster: DevCluster, namespace: str, directory: Path) -> None:
        self._directory = directory / "work"
        shutil.copytree(SESSIONS / "files", self._directory)
        configuration = cluster.kubeconfig_data
        context = {**configuration["contexts"][0]["context"], "namespace": namespace}
        named = {**configuration["contexts"][0], "context": context}
        kubeconfig = directory / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump({**configuration, "contexts": [named]}))
        self._kubectl = Kubectl(cluster, namespace, self._directory, kubeconfig=kubeconfig)
        self._masks = Masks(namespace, str(directory))

    async def start(self) -> None:
        await self._kubectl("create", "namespace", self._kubectl.namespace)
        await self._kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=30s")

    async def stop(self) -> None:
        await self._kubectl("delete", "namespace", self._kubectl.namespace, "--wait=false")

    async def answer(self, step: Step) -> str:
        """Run a command and return its masked answer."""
        program, *arguments = step.arguments
        assert program == "kubectl", f"a session runs kubectl only, not {program}"
        given = [argument.replace("NAMESPACE", self._kubectl.namespace) for argument in arguments]
        answer = self._masks.answer(*await self._kubectl.run(*given))
        return mask_descriptions(answer) if arguments[0] == "explain" else answer

    async def expected(self, step: Step) -> str:
        """Run a command, again and again if the transcript says so, until it answers as recorded."""
        deadline = asyncio.get_running_loop().time() + (PATIENCE if step.repeated else 0)
        while True:
            answer = await self.answer(step)
            if answer == step.answer or asyncio.get_running_loop().time() >= deadline:
                return answer
            await asyncio.sleep(0.2)

    async def recorded(self, step: Step) -> Step:
        """Return the step with the answer of this engine."""
        if step.repeated:
            await asyncio.sleep(3)
        return step._replace(answer=await self.answer(step))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", sorted(path.stem for path in SESSIONS.glob("*.txt")))
async def test_each_command_answers_as_recorded_on_the_real_engine(
    name: str, session: Session, engine: str, request: pytest.FixtureRequest
) -> None:
    transcript = SESSIONS / f"{name}.txt"
    steps = list(parse(transcript.read_text()))
    if request.config.getoption("--record"):
        assert engine == "real", "transcripts are what the real engine answers; add --engine real"
        transcript.write_text(render([await session.recorded(step) for step in steps]))
        return
    for step in steps:
        assert await session.expected(step) == step.answer, step.line
