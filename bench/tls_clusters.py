"""Embedded clusters with TLS and controllers in one process: `... COUNT` prints the seconds and megabytes they take."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
import sys
import time
from base64 import b64decode
from urllib.parse import urlsplit

from bench.processes import usage
from kapsa.devcluster import DevCluster


async def measure(count: int) -> dict[str, float]:
    """Start the clusters and call each once. Return what the whole process has used by then, imports included."""
    began = time.monotonic()
    async with contextlib.AsyncExitStack() as stack:
        clusters = [await stack.enter_async_context(DevCluster(tls=True)) for _ in range(count)]
        for cluster in clusters:
            await read_version(cluster)
        wall, used = time.monotonic() - began, usage(os.getpid())
        return {"CPU s": used.cpu_seconds, "wall s": wall, "peak RSS MB": used.peak_rss_mb}


async def read_version(cluster: DevCluster) -> None:
    """Send one request over TLS. Raises RuntimeError unless it succeeds."""
    address = urlsplit(cluster.url)
    authority = cluster.kubeconfig_data["clusters"][0]["cluster"]["certificate-authority-data"]
    context = ssl.create_default_context(cadata=b64decode(authority).decode())
    reader, writer = await asyncio.open_connection(address.hostname, address.port, ssl=context)
    writer.write(b"GET /version HTTP/1.1\r\nHost: cluster\r\nConnection: close\r\n\r\n")
    reply = await reader.read()
    writer.close()
    if not reply.startswith(b"HTTP/1.1 200 "):
        raise RuntimeError(f"{cluster.url} answered {reply[:100]!r}")


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(measure(int(sys.argv[1])))))
