"""A control plane of etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok processes."""

import asyncio
import contextlib
import errno
import os
import shutil
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import yaml

from kapsa.devcluster import certificates
from kapsa.devcluster.certificates import Authority, PemPair
from kapsa.devcluster.errors import ComponentFailed, DevClusterError, PortBusy
from kapsa.devcluster.real import bootstrap, components, kwok_stages
from kapsa.devcluster.real.bootstrap import Administrator
from kapsa.devcluster.real.build import Progress, ensure_binaries
from kapsa.devcluster.real.components import (
    API_SERVER,
    CONTROLLER_MANAGER,
    ETCD,
    KWOK,
    LOCALHOST,
    SCHEDULER,
    Files,
)
from kapsa.devcluster.real.supervisor import Component, Supervisor

__all__ = ["RealControlPlane"]

T = TypeVar("T")

_READY_SECONDS = 90.0
_POLL_SECONDS = 0.05
_PORT_ATTEMPTS = 5
_RESTARTS = 3
_RESTARTS_SECONDS = 60.0
"""An API server that ends is started again, at most this often within this time; then the control plane has failed."""
_DEFAULT_ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"
_CLIENTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "admin": ("kubernetes-admin", ("system:masters",)),
    CONTROLLER_MANAGER: ("system:kube-controller-manager", ()),
    SCHEDULER: ("system:kube-scheduler", ()),
    # kwok acts for all kubelets and impersonates any user.
    KWOK: ("system:kwok", ("system:masters",)),
}


class RealControlPlane:
    """A Kubernetes control plane in separate processes, with its own certificates, data and port.

    Nothing of it outlives this process: after `stop()`, a normal exit or a SIGKILL, no process and no
    directory is left.
    """

    def __init__(
        self,
        *,
        binaries: Mapping[str, Path] | None = None,
        controllers: bool = True,
        nodes: int = 1,
        port: int = 0,
        data: Path | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Describe the control plane; `start()` starts it.

        `binaries` maps each component's name to its executable; by default they are located, or built.
        Without `controllers` only etcd and the API server run, enough for a test of the API itself. A `port`
        of 0 means any free port. `data` is a directory that another control plane's `save()` wrote: this one
        starts with its objects, nodes included, but with new certificates and keys, so that tokens and
        kubeconfigs of the other one are invalid. `progress` is called during a build; by default progress is
        written to standard error.
        """
        self._binaries = binaries or {}
        self._progress = progress
        self._controllers = controllers
        self._nodes = nodes if controllers else 0
        self._requested_port = port
        self._data = data
        self._supervisor: Supervisor | None = None
        self._components: dict[str, Component] = {}
        self._clients: dict[str, PemPair] = {}
        self._authority = Authority()
        self._port = 0
        self._deadline = 0.0
        self._restarting = asyncio.Lock()
        self._restarts: list[float] = []
        self.startup_seconds = 0.0
        """Seconds that the start took, without a build, until a pod could be scheduled."""

    @property
    def url(self) -> str:
        return f"https://{LOCALHOST}:{self._port}"

    @property
    def directory(self) -> Path:
        """The directory of certificates, data and logs; removed by `stop()`."""
        if self._supervisor is None:
            raise DevClusterError("the control plane is not running; start it first")
        return self._supervisor.directory

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig file."""
        return Files(self.directory).kubeconfig("admin")

    @property
    def kubeconfig_data(self) -> dict[str, Any]:
        """The administrator's kubeconfig, certificates included."""
        return self._kubeconfig_of("admin")

    @property
    def pids(self) -> dict[str, int]:
        """The process of each running component."""
        return {name: component.pid for name, component in self._components.items() if component.running}

    async def start(self) -> None:
        """Start all processes and return once a pod can be scheduled. A failure leaves nothing behind."""
        needed = components.ALL_COMPONENTS if self._controllers else components.API_COMPONENTS
        if not self._binaries.keys() >= set(needed):
            self._binaries = await ensure_binaries(needed, progress=self._progress)
        began = time.monotonic()
        self._deadline = began + _READY_SECONDS
        try:
            self._supervisor = await Supervisor.start()
            await self._start_components(Files(self._supervisor.directory))
        except BaseException as error:
            await self.stop()
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                raise DevClusterError(
                    f"no space left for the cluster's files ({error.filename}); free some and try again"
                ) from error
            raise
        self.startup_seconds = time.monotonic() - began

    async def stop(self) -> None:
        """End every process and remove the directory. Safe to call again."""
        if self._supervisor is not None:
            stopping, self._supervisor = self._supervisor, None
            await asyncio.shield(stopping.close())
        self._components.clear()

    async def save(self, target: Path) -> None:
        """Stop, and keep all objects in a new directory, from which other control planes can start (`data`).

        The directory appears complete or not at all. If it cannot be written, all processes have ended but
        nothing is lost until `stop()`: save to another directory.
        """
        if self._supervisor is None:
            raise DevClusterError("the control plane is not running; start it first")
        if target.exists():
            raise DevClusterError(
                f"{target} already exists; remove it, or choose a directory that does not exist"
            )
        for name in reversed(components.ALL_COMPONENTS):
            if name in self._components:
                await self._supervisor.stop(name)
        # Every write that etcd acknowledged is in its log, however it ended.
        await _in_thread(partial(_copy_data, self.directory / "etcd", target))
        await self.stop()

    async def restart_api_server(self, *, pause: float = 0.0) -> None:
        """Kill the API server, start it again on the same port and data, and return once it is ready.

        Clients lose their connections and watches. For at least `pause` seconds the port refuses connections.
        """
        async with self._restarting:
            if self._supervisor is None:
                raise DevClusterError("the control plane is not running; start it first")
            await self._supervisor.stop(API_SERVER)
            await asyncio.sleep(pause)
            await self._revive_api_server()

    async def wait_for_failure(self) -> ComponentFailed:
        """Wait until a component ends on its own, and return the error that says why.

        An API server that ends is started again: its data is in etcd, and its clients retry. One that keeps ending
        is a failure.
        """
        while True:
            await asyncio.wait(
                [component.exited for component in self._components.values()],
                return_when=asyncio.FIRST_COMPLETED,
            )
            async with self._restarting:  # a restart on request is not a failure
                ended = [component for component in self._components.values() if not component.running]
                failed = [component for component in ended if component.name != API_SERVER]
                if failed or (ended and not self._may_restart()):
                    return (failed or ended)[0].failure()
                if ended:
                    try:
                        await self._revive_api_server()
                    except ComponentFailed as failure:
                        return failure

    def _may_restart(self) -> bool:
        now = time.monotonic()
        self._restarts = [moment for moment in self._restarts if now - moment < _RESTARTS_SECONDS]
        self._restarts.append(now)
        return len(self._restarts) <= _RESTARTS

    async def _revive_api_server(self) -> None:
        files = Files(self.directory)
        self._deadline = time.monotonic() + _READY_SECONDS
        component = await self._run(API_SERVER, components.api_server(files, self._port), files)
        if not await self._listens(component):
            raise component.failure()
        async with self._administrator(files) as api:
            await self._until(API_SERVER, api.is_ready)

    async def remove_at_end(self, path: Path) -> None:
        """Have this file removed when the control plane ends, however it ends."""
        if self._supervisor is not None:
            await self._supervisor.remove_at_end(path)

    async def _start_components(self, files: Files) -> None:
        if self._data is not None:
            await _in_thread(partial(_copy_data, self._data, files.directory / "etcd"))
        await self._run(ETCD, components.etcd(files), files)
        await _in_thread(partial(self._write_credentials, files))
        await self._start_api_server(files)
        for name in self._clients:
            certificates.write_private(
                files.kubeconfig(name), yaml.safe_dump(self._kubeconfig_of(name)).encode()
            )
        async with self._administrator(files) as api:
            if self._controllers:
                await self._run(CONTROLLER_MANAGER, components.controller_manager(files), files)
            await self._until(API_SERVER, api.is_ready)
            if self._controllers:
                # Not earlier: without permission to watch yet, it would wait long before it tries again.
                await self._run(SCHEDULER, components.scheduler(files), files)
                await self._run_kwok(files, api)
            await self._until(API_SERVER, partial(api.exists, "/api/v1/namespaces/default"))
            if self._controllers:
                await self._create_initial_objects(api)

    async def _run_kwok(self, files: Files, api: Administrator) -> None:
        # The data may have Leases of another kwok; this one would wait until they expire.
        await api.delete_all(bootstrap.NODE_LEASES)
        (files.directory / "stages.yaml").write_text(yaml.safe_dump_all(kwok_stages.all_stages()))
        await self._run(KWOK, components.kwok(files), files)

    async def _create_initial_objects(self, api: Administrator) -> None:
        version = await api.version()
        nodes = [bootstrap.node(number, version=version) for number in range(1, self._nodes + 1)]
        for node in nodes:
            await api.create("/api/v1/nodes", node)
        await api.create("/apis/storage.k8s.io/v1/storageclasses", bootstrap.STORAGE_CLASS)
        await self._until(CONTROLLER_MANAGER, partial(api.exists, _DEFAULT_ACCOUNT))
        await self._until(
            CONTROLLER_MANAGER, partial(api.has_published, self._authority.pair.certificate.decode())
        )
        for node in nodes:
            await self._until(KWOK, partial(api.is_schedulable, node["metadata"]["name"]))

    async def _start_api_server(self, files: Files) -> None:
        for _ in range(_PORT_ATTEMPTS):
            self._port = self._requested_port or _free_port()
            _check_port_is_free(self._port)
            component = await self._run(API_SERVER, components.api_server(files, self._port), files)
            if await self._listens(component):
                return
            if "address already in use" not in component.log.read_text(errors="replace"):
                raise component.failure()
            # Another process took the port after the check; the next attempt needs a log without this error.
            component.log.unlink()
        raise PortBusy(
            f"no free port on {LOCALHOST} after {_PORT_ATTEMPTS} attempts; stop the programs that take them, or choose a port"
        )

    async def _listens(self, component: Component) -> bool:
        while component.running:
            etcd = self._components[ETCD]
            if not etcd.running:
                raise etcd.failure()
            if time.monotonic() > self._deadline:
                raise component.failure()
            try:
                _, writer = await asyncio.open_connection(LOCALHOST, self._port)
            except ConnectionRefusedError:
                await asyncio.sleep(_POLL_SECONDS)
            else:
                writer.close()
                return True
        return False

    async def _run(self, name: str, arguments: Sequence[str], files: Files) -> Component:
        assert self._supervisor is not None
        # A home of its own: a component must not read or write files in the user's.
        env = {
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(files.directory),
            **components.environment(name),
        }
        component = await self._supervisor.run(name, [str(self._binaries[name]), *arguments], env)
        self._components[name] = component
        return component

    async def _until(self, responsible: str, is_done: Callable[[], Awaitable[bool]]) -> None:
        while not await is_done():
            for component in self._components.values():
                if not component.running:
                    raise component.failure()
            if time.monotonic() > self._deadline:
                raise self._components[responsible].failure()
            await asyncio.sleep(_POLL_SECONDS)

    def _write_credentials(self, files: Files) -> None:
        self._authority.pair.write(files.directory, "ca")
        self._authority.issue_server(components.SERVER_NAMES).write(files.directory, "server")
        certificates.signing_key().write(files.directory, "service-account")
        for name, (user, groups) in _CLIENTS.items():
            self._clients[name] = self._authority.issue_client(user, groups)
        self._clients["admin"].write(files.directory, "admin")

    def _kubeconfig_of(self, name: str) -> dict[str, Any]:
        return certificates.kubeconfig(
            self.url, self._authority.pair.certificate, self._clients[name], user=name
        )

    def _administrator(self, files: Files) -> Administrator:
        context = ssl.create_default_context(cafile=files / "ca.crt")
        context.load_cert_chain(files / "admin.crt", files / "admin.key")
        return Administrator(self.url, context)


async def _in_thread(work: Callable[[], T]) -> T:
    """Run `work` in a thread. On cancellation, wait for the thread: it must not write after a clean-up."""
    working = asyncio.create_task(asyncio.to_thread(work))
    try:
        await asyncio.wait([working])
    except asyncio.CancelledError:
        with contextlib.suppress(Exception):
            await asyncio.shield(working)
        raise
    return working.result()


def _copy_data(source: Path, target: Path) -> None:
    """Copy etcd's data, so that the target is complete or does not exist."""
    unfinished = target.with_name(f"{target.name}.partial")
    try:
        if unfinished.exists():
            shutil.rmtree(unfinished)
        # etcd preallocates empty *.tmp files.
        shutil.copytree(source, unfinished, ignore=shutil.ignore_patterns("*.tmp"))
        unfinished.rename(target)
    except OSError as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        # copytree copies what it can and raises a list of (source, target, reason), which has no errno.
        reason = error.args[0][0][2] if isinstance(error, shutil.Error) else error.strerror or error
        raise DevClusterError(
            f"cannot copy the cluster's data from {source} to {target}: {reason}"
        ) from error


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOCALHOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _check_port_is_free(port: int) -> None:
    with socket.socket() as probe:
        # As Go's listeners do: a connection that lingers from an earlier server is not an obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOCALHOST, port))
        except OSError as error:
            raise PortBusy.because(port, error) from None
