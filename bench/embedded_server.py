"""The embedded engine in its own process, so that its CPU is measured separately: `... KUBECONFIG_FILE`."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from kapsa.devcluster import DevCluster


async def serve(kubeconfig: Path) -> None:
    async with DevCluster(engine="embedded", controllers=False) as cluster:
        partial = kubeconfig.with_suffix(".partial")
        partial.write_text(cluster.kubeconfig.read_text())
        partial.rename(kubeconfig)
        ended = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
        await ended.wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
