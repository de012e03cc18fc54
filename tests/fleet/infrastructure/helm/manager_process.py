"""A manager that installs a release and meets a signal in the middle of it.

Arguments: a kubeconfig, the namespace, the seconds that are left of its lease then, and the name of the signal. It prints
the processes of helm, then sends the signal to itself as soon as the pending revision is stored. If it lives, it prints
how it ended.
"""

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path

from kapsa.fleet.infrastructure.clusters.gateway import untrusted_client
from tests.fleet.real_helm import ApiWrite, RealHelm, helm_processes, lease


async def main(kubeconfig: bytes, namespace: str, seconds: float, number: signal.Signals) -> None:
    async with untrusted_client(kubeconfig, allow_loopback=True) as client:
        made = RealHelm(client, namespace=namespace)
        guard = lease()

        async def meet_signal(write: ApiWrite) -> None:
            if write.to_history and write.answered:
                made.transport.tamper = None
                guard.extend(time.monotonic() + seconds)  # a busy machine may take long to come here
                print(json.dumps(helm_processes()), flush=True)  # noqa: T201
                os.kill(os.getpid(), number)

        made.transport.tamper = meet_signal
        try:
            await made.helm.upgrade(made.request(), guard)
            end = "done"
        except Exception as error:
            end = type(error).__name__
        print(end, flush=True)  # noqa: T201
        await made.helm.close()


if __name__ == "__main__":
    content = Path(sys.argv[1]).read_bytes()
    asyncio.run(main(content, sys.argv[2], float(sys.argv[3]), signal.Signals[sys.argv[4]]))
