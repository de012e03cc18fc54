"""HttpTransport over a link that loses packets: a write that was given up never arrives."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys

import pytest

_ALONE = ("unshare", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
"""Runs a command in a network namespace of its own."""


async def run(*command: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *_ALONE, *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, errors = await process.communicate()
    return process.returncode or 0, output.decode(), errors.decode()


@pytest.mark.long
@pytest.mark.timeout(120)
async def test_a_write_that_was_given_up_does_not_arrive_when_the_link_works_again() -> None:
    if not shutil.which("unshare") or not shutil.which("ip"):
        pytest.skip("this machine lacks unshare or ip, which make a network namespace with a link to cut")
    code, _, reason = await run("true")
    if code:
        pytest.skip(f"this machine does not let its users make network namespaces: {reason.strip()}")
    code, output, reason = await run(sys.executable, "-m", "tests.runtime.client.http.lossy_link")
    assert code == 0, reason
    received = {"http": ["GET", "DELETE"], "https": ["GET", "DELETE"]}
    assert json.loads(output) == {"asyncio": received, "uvloop": received}
