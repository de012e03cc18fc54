"""`kapsa demo`: an operator's life on an embedded devcluster, told as it happens."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from kapsa.cli.demo_operator import Site, operator
from kapsa.devcluster import DevCluster
from kapsa.runtime import Client, custom_resource_definitions, logs

__all__ = ["command"]

_STEP_SECONDS = 30.0
_REFRESH_SECONDS = 0.1
_SITE: dict[str, Any] = {
    "apiVersion": "demo.kapsa.dev/v1",
    "kind": "Site",
    "metadata": {"name": "hello", "namespace": "default"},
    "spec": {"image": "example.com/hello:1", "replicas": 3},
}


def command(
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave it running, with a kubeconfig to play with.")
    ] = False,
    kubeconfig: Annotated[
        Path, typer.Option(metavar="FILE", help="Where --keep writes the kubeconfig.")
    ] = Path("demo.kubeconfig"),
) -> None:
    """Start a cluster, run an operator on it, and follow a resource from its creation to its end."""
    if keep and kubeconfig.exists():
        raise typer.BadParameter(f"{kubeconfig} exists already; name another file with --kubeconfig")
    logs.configure(level="error", format="text")
    asyncio.run(_Demo(Console(highlight=False)).play(kubeconfig if keep else None))


class _Demo:
    """The steps of the demo, in order. Each says what it does, waits until it has come about, and says so."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()

    async def play(self, kubeconfig: Path | None) -> None:
        async with DevCluster() as cluster, Client.connect(kubeconfig=cluster.kubeconfig) as client:
            self._tell(f"a Kubernetes control plane serves at {cluster.url}")
            for manifest in custom_resource_definitions(operator.resources):
                await client.apply(manifest, force=True)
            self._tell("the Site kind is installed: its CRD was generated from a Python class")
            async with operator.running(client.derive(field_manager=operator.field_manager)):
                self._tell("the operator runs")
                await self._life(client)
                if kubeconfig is not None:
                    await self._keep(cluster, client, kubeconfig)
        self._tell("the operator and the cluster are stopped, and nothing is left behind")

    async def _life(self, client: Client) -> None:
        await client.create(_SITE)
        self._tell("a person creates Site hello with 3 replicas")
        async with self._live(client):
            await self._until("all replicas are ready", lambda: self._ready(client, "example.com/hello:1"))
        await client.patch(Site, "hello", {"spec": {"image": "example.com/hello:2"}}, namespace="default")
        self._tell("the person asks for image hello:2")
        async with self._live(client):
            await self._until(
                "the new version is rolled out", lambda: self._ready(client, "example.com/hello:2")
            )
        await client.patch(
            "apps/v1/Deployment",
            "hello",
            {"spec": {"replicas": 1}},
            namespace="default",
            field_manager="somebody",
        )
        self._tell("somebody scales the Deployment down to 1 by hand")
        async with self._live(client):
            await self._until("the operator puts it back", lambda: self._ready(client, "example.com/hello:2"))
            await self._until("an event names who changed it", lambda: self._drift_told(client))
        await client.delete(Site, "hello", namespace="default")
        self._tell("the person deletes Site hello")
        async with self._live(client):
            await self._until("its Deployment and pods are gone", lambda: self._gone(client))

    async def _keep(self, cluster: DevCluster, client: Client, kubeconfig: Path) -> None:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await client.create(_SITE)
        kubeconfig.touch(mode=0o600)
        kubeconfig.write_text(cluster.kubeconfig.read_text())
        self._console.print(
            f"\nIt goes on running. In another terminal:\n\n  export KUBECONFIG={kubeconfig.absolute()}\n"
            "  kubectl get sites,deployments,pods\n\nCtrl-C ends it."
        )
        try:
            await stop.wait()
        finally:
            kubeconfig.unlink(missing_ok=True)

    # -- telling -----------------------------------------------------------------------------------------------

    def _tell(self, line: str) -> None:
        self._console.print(f"[dim]{time.monotonic() - self._began:6.2f} s[/dim]  {line}")

    async def _until(self, what: str, look: Callable[[], Awaitable[bool]]) -> None:
        deadline = time.monotonic() + _STEP_SECONDS
        while not await look():
            if time.monotonic() > deadline:
                self._console.print(f"[red]it did not come about in {_STEP_SECONDS:.0f} s that {what}[/red]")
                raise typer.Exit(1)
            await asyncio.sleep(_REFRESH_SECONDS / 2)
        self._tell(f"[green]✓[/green] {what}")

    @contextlib.asynccontextmanager
    async def _live(self, client: Client) -> AsyncIterator[None]:
        """A table of what there is, renewed while the block runs; nothing where nobody watches."""
        if not self._console.is_terminal:
            yield
            return
        with Live(console=self._console, transient=True, auto_refresh=False) as live:

            async def renew() -> None:
                while True:
                    live.update(await _table(client), refresh=True)
                    await asyncio.sleep(_REFRESH_SECONDS)

            renewing = asyncio.create_task(renew())
            try:
                yield
            finally:
                renewing.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await renewing

    # -- looking -----------------------------------------------------------------------------------------------

    async def _ready(self, client: Client, image: str) -> bool:
        """Whether the site says it is ready, and three pods of this image and no others are."""
        site = await client.get(Site, "hello", namespace="default")
        pods = (await client.list("v1/Pod", namespace="default")).items
        images = [pod["spec"]["containers"][0]["image"] for pod in pods]
        return site.status.ready_replicas == 3 and images == [image] * 3

    async def _drift_told(self, client: Client) -> bool:
        events = await client.list("events.k8s.io/v1/Event", namespace="default")
        return any("somebody" in event.get("note", "") for event in events.items)

    async def _gone(self, client: Client) -> bool:
        for kind in ("demo.kapsa.dev/v1/Site", "apps/v1/Deployment", "v1/Pod"):
            if (await client.list(kind, namespace="default")).items:
                return False
        return True


async def _table(client: Client) -> Table:
    table = Table("kind", "name", "image", "ready")
    for site in (await client.list(Site, namespace="default")).items:
        ready = f"{site.status.ready_replicas}/{site.spec.replicas}"
        table.add_row("Site", site.metadata.name, site.spec.image, ready)
    for pod in (await client.list("v1/Pod", namespace="default")).items:
        phase = (
            "Terminating"
            if "deletionTimestamp" in pod["metadata"]
            else pod.get("status", {}).get("phase", "")
        )
        table.add_row("Pod", pod["metadata"]["name"], pod["spec"]["containers"][0]["image"], phase)
    return table
