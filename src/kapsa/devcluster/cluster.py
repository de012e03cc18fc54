"""A control plane that starts and stops: `async with DevCluster() as cluster`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import tempfile
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import msgspec

from kapsa.devcluster.clock import ClusterClock
from kapsa.devcluster.errors import PortBusy
from kapsa.devcluster.faults.plan import FaultPlan

if TYPE_CHECKING:
    from kapsa.devcluster.embedded.admission.webhook_client import WebhookHandler
    from kapsa.devcluster.embedded.server import Server
    from kapsa.devcluster.embedded.storage.identity_files import IdentityFiles
    from kapsa.devcluster.embedded.storage.store import Collection, ObjectStore, StoreChange
    from kapsa.devcluster.real.build import Progress
    from kapsa.devcluster.real.control_plane import RealControlPlane
    from kapsa.devcluster.wire.authorization import AccessPolicy
    from kapsa.devcluster.wire.exchange import Reply, Request
    from kapsa.devcluster.wire.listener import HttpFront
    from kapsa.devcluster.workloads import Workloads

__all__ = ["DevCluster", "EngineName", "ObjectChange", "ObjectSnapshot"]

EngineName = Literal["embedded", "real"]


class ObjectChange(NamedTuple):
    """A committed change of one object."""

    type: str
    """ADDED, MODIFIED or DELETED."""
    resource: str
    """Plural name of the resource, such as `pods`."""
    key: str
    """`namespace/name`, or `name` for a cluster-scoped object."""


class ObjectSnapshot(NamedTuple):
    """A stored object, with its resource and key."""

    resource: str
    """Plural name of the resource, such as `pods`."""
    key: str
    """`namespace/name`, or `name` for a cluster-scoped object."""
    object: dict[str, Any]


class DevCluster:
    """A Kubernetes control plane for development and tests.

    The `embedded` engine is this process: pure Python, ready in milliseconds, on any clock. The `real` engine is etcd,
    kube-apiserver and the rest as processes. Both have the same interface.
    """

    def __init__(
        self,
        engine: EngineName = "embedded",
        *,
        clock: ClusterClock | None = None,
        faults: FaultPlan | None = None,
        http: bool = True,
        tls: bool = False,
        port: int = 0,
        controllers: bool = True,
        policy: AccessPolicy | None = None,
        seed: int | None = None,
        nodes: int = 1,
        data: str | os.PathLike[str] | None = None,
        binaries: Mapping[str, Path] | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Configure a control plane; `start` or `async with` starts it.

        - `engine`: `embedded` or `real`.
        - `clock`: the clock of the embedded engine; by default the host's.
        - `faults`: the requests that fail. With the real engine, a proxy in front of it makes them fail.
        - `http`: whether the embedded engine listens on a socket. A simulation does not need one.
        - `tls`: whether the embedded engine serves HTTPS. Its callers then need a client certificate, which the
          kubeconfig has, or a token. Over plain HTTP, a caller without a token is the administrator.
        - `port`: the port to listen on; by default any free one.
        - `controllers`: whether controllers run: Deployments create pods, garbage is collected.
        - `policy`: a function that authorizes requests to the embedded engine, instead of its RBAC rules.
        - `seed`: makes UIDs and generated names of the embedded engine repeatable.
        - `nodes`: the number of nodes at the start.
        - `data`: a directory that keeps the state of the embedded engine; a later cluster starts from it. Its authority,
          its token key and, if it is free, its port stay the same, so older credentials are valid. By default the state
          is in memory.
        - `binaries`: executables of the real engine; by default they are looked up, or built.
        - `progress`: called with the progress of that build; by default it goes to standard error.
        """
        if engine not in ("embedded", "real"):
            raise ValueError(f"engine must be 'embedded' or 'real', not {engine!r}")
        if engine == "real" and data is not None:
            raise ValueError(
                "data keeps the state of the embedded engine; the real one has no data directory"
            )
        self.engine: EngineName = engine
        self.faults = faults
        self._clock = clock
        self._http = http
        self._tls = tls
        self._port = port
        self._controllers = controllers
        self._policy = policy
        self._seed = seed
        self._nodes = nodes
        self._data = None if data is None else Path(data)
        self._binaries = binaries
        self._progress = progress
        self._server: Server | None = None
        self._front: HttpFront | None = None
        self._workloads: Workloads | None = None
        self._real: RealControlPlane | None = None
        self._url = ""
        self._stack = contextlib.AsyncExitStack()
        self._kubeconfig: Path | None = None
        self._kubeconfig_data: dict[str, Any] = {}
        self._identity: _ServerIdentity | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def server(self) -> Server:
        """The embedded server itself, for tests of the engine."""
        if self._server is None:
            raise RuntimeError(
                f"the {self.engine} devcluster has no embedded server; use its url, or start an embedded one"
            )
        return self._server

    # Observing an embedded cluster from the same process

    async def handle(self, request: Request) -> Reply:
        """Serve one request without a socket. Raises ConnectionDroppedError when the fault plan drops it."""
        return await self.server.handle(request)

    @property
    def revision(self) -> int:
        """Revision of the last committed write."""
        return self.server.backend.store.revision

    def count_changes(self, *, ignore: Container[str] = ()) -> int:
        """Return how many changes have been committed, except those of ignored resources (plural names)."""
        collections = self.server.backend.store.collections()
        return sum(collection.end for collection in collections if collection.key[1] not in ignore)

    def on_change(self, listener: Callable[[ObjectChange], None]) -> None:
        """Call the listener after each committed change. It must be quick and must not write."""

        def notify(collection: Collection, change: StoreChange) -> None:
            listener(ObjectChange(change.type, collection.key[1], change.object.key))

        self.server.backend.store.listeners.append(notify)

    def objects(self) -> Iterator[ObjectSnapshot]:
        """Yield each stored object, decoded into a copy of its own."""
        for collection in self.server.backend.store.collections():
            for stored in collection.current():
                yield ObjectSnapshot(collection.key[1], stored.key, msgspec.json.decode(stored.body))

    def route_webhooks(self, address: str, handler: WebhookHandler) -> None:
        """Deliver webhook calls for an address to a handler in this process, without a socket."""
        self.server.webhooks.client.route(address, handler)

    @property
    def real(self) -> RealControlPlane:
        """The real engine's processes."""
        if self._real is None:
            raise RuntimeError(f"the {self.engine} devcluster has no processes; start one with engine='real'")
        return self._real

    @property
    def workloads(self) -> Workloads:
        """Controls the embedded engine's pods and nodes: slow, crashing, finished, unready, gone."""
        if self._workloads is None:
            raise RuntimeError("workloads need a started embedded devcluster with controllers=True")
        return self._workloads

    @property
    def url(self) -> str:
        """URL of the API server."""
        if not self._url:
            raise RuntimeError("the devcluster has no URL: it is not started, or was started with http=False")
        return self._url

    @property
    def kubeconfig_data(self) -> dict[str, Any]:
        """The administrator's kubeconfig."""
        if not self._kubeconfig_data:
            raise RuntimeError(
                "the devcluster has no kubeconfig: it is not started, or was started with http=False"
            )
        return self._kubeconfig_data

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig as a file, for kubectl and other clients."""
        if self._kubeconfig is None:
            directory = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="kapsa-devcluster-"))
            self._kubeconfig = Path(directory) / "kubeconfig"
            import yaml

            self._kubeconfig.write_text(yaml.safe_dump(self.kubeconfig_data))
            self._kubeconfig.chmod(0o600)
        return self._kubeconfig

    async def start(self) -> None:
        """Start the control plane and return once its API serves requests."""
        try:
            if self.engine == "embedded":
                await self._start_embedded()
            else:
                await self._start_real()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop the control plane and remove its files. May be called more than once."""
        self._server = None
        self._front = None
        self._workloads = None
        self._real = None
        self._identity = None
        self._url = ""
        self._kubeconfig = None
        self._kubeconfig_data = {}
        stack, self._stack = self._stack, contextlib.AsyncExitStack()
        await stack.aclose()

    async def restart_api_server(self, *, pause: float = 0.0) -> None:
        """Restart the API server on the same address and objects, and return once it serves requests again.

        Clients lose their connections and watches. For at least `pause` seconds connections are refused.
        """
        if self._real is not None:
            await self._real.restart_api_server(pause=pause)
        elif self._front is not None:
            await self._front.close()
            await asyncio.sleep(pause)
            await self._front.start(self._front.address[1])
        else:
            raise RuntimeError(
                "the devcluster has no API server to restart: it is not started, or was started with http=False"
            )

    async def _start_embedded(self) -> None:
        from kapsa.devcluster.embedded.backend import Backend
        from kapsa.devcluster.embedded.server import Server
        from kapsa.devcluster.wire.exchange import ADMIN

        backend = Backend(clock=self._clock, store=self._open_store(), seed=self._seed)
        files = self._identity_files()
        token_key = None if files is None else await asyncio.to_thread(files.token_key)
        self._server = Server(backend, faults=self.faults, policy=self._policy, token_key=token_key)
        serves_tls = self._http and self._tls
        identity = await asyncio.to_thread(_ServerIdentity, files) if serves_tls else None
        if self._controllers:
            from kapsa.devcluster.embedded.controllers.manager import Controllers

            certificate = identity.authority.decode() if identity else ""
            controllers = Controllers(
                backend,
                nodes=self._nodes,
                certificate=certificate,
                sign=identity.sign if identity else None,
                issue_token=self._server.issue_secret_token,
            )
            self._stack.push_async_callback(controllers.stop)
            await controllers.start()
            self._workloads = controllers.workloads
            self._server.endpoints.read_log = controllers.read_log
        if self._http:
            from kapsa.devcluster.wire.listener import HttpFront

            front = HttpFront(self._server, port=self._port, tls=identity.context if identity else None)
            self._stack.push_async_callback(front.close)
            await self._listen(front, files)
            self._front = front
            self._server.advertise(*front.address)
            self._listen_at(front.url)
            if identity is not None:
                self._server.publish_authority(identity.authority.decode())
                self._identity = identity
                self._kubeconfig_data = identity.kubeconfig(front.url, ADMIN.username, ADMIN.groups[:1])

    async def _listen(self, front: HttpFront, files: IdentityFiles | None) -> None:
        """Listen on the requested port; if any will do, on the one of the last run with this data."""
        earlier = 0 if files is None or self._port else files.port
        try:
            if earlier:
                with contextlib.suppress(OSError):
                    await front.start(earlier)
                    return
            await front.start()
        except OSError as error:
            raise PortBusy.because(self._port, error) from error
        if files is not None:
            files.port = front.address[1]

    def _identity_files(self) -> IdentityFiles | None:
        if self._data is None:
            return None
        from kapsa.devcluster.embedded.storage.identity_files import IdentityFiles

        return IdentityFiles(self._data)

    def _open_store(self) -> ObjectStore | None:
        """Return the store of the data directory, which is closed after everything that writes to it."""
        if self._data is None:
            return None
        from kapsa.devcluster.embedded.storage.data_directory import open_store

        return self._stack.enter_context(open_store(self._data))

    async def _start_real(self) -> None:
        from kapsa.devcluster.real.control_plane import RealControlPlane

        real = RealControlPlane(
            binaries=self._binaries,
            controllers=self._controllers,
            nodes=self._nodes,
            port=self._port,
            progress=self._progress,
        )
        self._stack.push_async_callback(real.stop)
        await real.start()
        self._real = real
        self._url = real.url
        self._kubeconfig_data = real.kubeconfig_data
        self._kubeconfig = real.kubeconfig
        if self.faults is not None:
            from kapsa.devcluster.real.proxy import FaultProxy

            proxy = FaultProxy(real.url, real.kubeconfig_data, self.faults)
            self._stack.push_async_callback(proxy.close)
            await proxy.start()
            self._listen_at(proxy.url)

    def _listen_at(self, url: str) -> None:
        self._url = url
        self._kubeconfig = None
        self._kubeconfig_data = _open_kubeconfig(url)

    def kubeconfig_of(self, user: str, groups: Sequence[str] = ()) -> dict[str, Any]:
        """Return a kubeconfig with a client certificate of another user, for an embedded cluster with TLS."""
        if self._identity is None:
            raise RuntimeError("client certificates need a started embedded devcluster with tls=True")
        return self._identity.kubeconfig(self.url, user, groups)


class _ServerIdentity:
    """A certificate for the loopback address, and the authority that issued it and accepts clients."""

    def __init__(self, files: IdentityFiles | None = None) -> None:
        from kapsa.devcluster.certificates import Authority

        self._issuer = Authority() if files is None else files.authority()
        self.authority = self._issuer.pair.certificate
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.verify_mode = ssl.CERT_OPTIONAL
        self.context.load_verify_locations(cadata=self.authority.decode())
        with tempfile.TemporaryDirectory(prefix="kapsa-tls-") as directory:
            pair = self._issuer.issue_server(["127.0.0.1", "localhost"])
            self.context.load_cert_chain(*pair.write(Path(directory), "server"))

    def sign(self, request: bytes, seconds: int | None) -> bytes:
        """Return the certificate for a request of a client; the controllers have checked that it is approved."""
        return self._issuer.sign_request(request, seconds)

    def kubeconfig(self, url: str, user: str, groups: Sequence[str]) -> dict[str, Any]:
        """Return a kubeconfig with a new client certificate of a user."""
        from kapsa.devcluster.certificates import kubeconfig

        return kubeconfig(url, self.authority, self._issuer.issue_client(user, groups))


def _open_kubeconfig(url: str) -> dict[str, Any]:
    """Return a kubeconfig for a server on the loopback address that needs no credentials."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "devcluster", "cluster": {"server": url}}],
        "users": [{"name": "admin", "user": {}}],
        "contexts": [{"name": "devcluster", "context": {"cluster": "devcluster", "user": "admin"}}],
        "current-context": "devcluster",
    }
