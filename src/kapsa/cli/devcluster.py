"""`kapsa devcluster`: a Kubernetes control plane for development and tests."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

if TYPE_CHECKING:
    from kapsa.cli.devcluster_records import KubeconfigClaim
    from kapsa.devcluster import DevCluster
    from kapsa.devcluster.real.build import Progress

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    help="Run a Kubernetes control plane for development and tests.",
)

_DETACH_POLL_SECONDS = 0.05


class Engine(enum.StrEnum):
    EMBEDDED = "embedded"
    REAL = "real"


KubeconfigOption = Annotated[
    Path,
    typer.Option("--kubeconfig", metavar="FILE", help="The file to write the administrator's kubeconfig to."),
]
_DEFAULT_KUBECONFIG = Path("devcluster.kubeconfig")


EngineOption = Annotated[
    Engine,
    typer.Option(
        help="embedded: pure Python, starts at once. real: etcd, kube-apiserver and the other components."
    ),
]
PortOption = Annotated[
    int, typer.Option(min=0, max=65535, help="The port of the API server; 0 picks a free one.")
]
NodesOption = Annotated[int, typer.Option(min=0, help="The number of nodes.")]
ControllersOption = Annotated[
    bool,
    typer.Option(
        "--controllers/--no-controllers",
        help="Run controllers: Deployments create pods, garbage is collected. Without them it is an API server alone.",
    ),
]
TlsOption = Annotated[
    bool | None,
    typer.Option(
        "--tls/--no-tls",
        help="Serve HTTPS, the default, or HTTP without credentials. The real engine always serves HTTPS.",
    ),
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Keep the state of the embedded engine in a directory, and start from it. By default it is in memory.",
    ),
]


class ClusterOptions(NamedTuple):
    """The options of a cluster, as `up` and `run` take them."""

    engine: Engine
    port: int
    nodes: int
    controllers: bool
    tls: bool | None
    data: Path | None

    def check(self) -> None:
        """Raise an error for options that exclude each other."""
        if self.engine is Engine.REAL and self.tls is False:
            raise _user_error("the real engine always serves HTTPS; drop --no-tls, or use --engine embedded")
        if self.engine is Engine.REAL and self.data is not None:
            raise _user_error(
                "--data keeps the state of the embedded engine; drop it, or use --engine embedded"
            )

    def cluster(self, progress: Progress | None) -> DevCluster:
        """Return the cluster, which is not started yet."""
        from kapsa.devcluster import DevCluster

        return DevCluster(
            engine=self.engine.value,
            port=self.port,
            nodes=self.nodes,
            controllers=self.controllers,
            data=self.data,
            tls=self.tls is not False,
            progress=progress,
        )

    def arguments(self) -> list[str]:
        """Return the options as arguments of another process."""
        arguments = [f"--engine={self.engine}", f"--port={self.port}", f"--nodes={self.nodes}"]
        if not self.controllers:
            arguments.append("--no-controllers")
        if self.tls is not None:
            arguments.append("--tls" if self.tls else "--no-tls")
        if self.data is not None:
            arguments.append(f"--data={self.data.absolute()}")
        return arguments


@app.command()
def up(
    engine: EngineOption = Engine.EMBEDDED,
    kubeconfig: KubeconfigOption = _DEFAULT_KUBECONFIG,
    port: PortOption = 0,
    nodes: NodesOption = 1,
    controllers: ControllersOption = True,
    tls: TlsOption = None,
    data: DataOption = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return when the cluster is ready; stop it with `down`.")
    ] = False,
) -> None:
    """Start a cluster and run it until Ctrl-C, SIGTERM or `down`. All its files are removed then, except --data."""
    options = ClusterOptions(engine, port, nodes, controllers, tls, data)
    options.check()
    kubeconfig = kubeconfig.absolute()
    if not kubeconfig.parent.is_dir():
        raise _user_error(
            f"the directory of {kubeconfig} does not exist; create it, or choose another file with --kubeconfig"
        )
    if detach:
        _up_detached(options, kubeconfig)
        return
    from kapsa.cli.devcluster_records import claim_kubeconfig

    try:
        with claim_kubeconfig(kubeconfig) as claimed, _build_progress() as progress:
            claimed.record(engine)
            code = asyncio.run(_serve(options.cluster(progress), kubeconfig, claimed))
    except OSError as error:
        raise _user_error(f"the devcluster's files cannot be written: {error}") from error
    raise typer.Exit(code)


@app.command(context_settings={"allow_interspersed_args": False})
def run(
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND [ARGUMENT]...", help="The command to run.")
    ],
    engine: EngineOption = Engine.EMBEDDED,
    port: PortOption = 0,
    nodes: NodesOption = 1,
    controllers: ControllersOption = True,
    tls: TlsOption = None,
    data: DataOption = None,
) -> None:
    """Run a command with a cluster of its own: start it, set KUBECONFIG, run the command, stop it.

    Signals are passed on to the command, and its exit code is this one's.
    """
    from kapsa.cli.devcluster_command import check_command, run_command

    options = ClusterOptions(engine, port, nodes, controllers, tls, data)
    options.check()
    check_command(command)
    with _build_progress() as progress:
        raise typer.Exit(asyncio.run(run_command(options.cluster(progress), command)))


@app.command()
def down(
    kubeconfig: KubeconfigOption = _DEFAULT_KUBECONFIG,
    everyone: Annotated[bool, typer.Option("--all", help="Stop all devclusters of this user.")] = False,
) -> None:
    """Stop a cluster that was started in another terminal or with --detach."""
    from kapsa.cli.devcluster_records import find_record, list_records, stop_devcluster

    if everyone:
        records = list_records()
    else:
        record = find_record(kubeconfig.absolute())
        if record is None:
            raise _user_error(
                f"no devcluster uses {kubeconfig}; name another file with --kubeconfig, or stop all with `down --all`"
            )
        records = [record]
    for record in records:
        was_alive = stop_devcluster(record)
        _say(f"{record.kubeconfig}: {'stopped' if was_alive else 'was not running; removed its files'}")
    if not records:
        _say("no devcluster is running")


@app.command()
def envtest() -> None:
    """Print what makes Go's envtest start the embedded engine: `eval "$(kapsa devcluster envtest)"`."""
    import hashlib
    import shlex

    from kapsa.adapters.process.tools import ToolNotFound, cache_directory, find_tool
    from kapsa.devcluster.envtest.assets import write_assets

    # Each installation has a directory of its own, because the programs in it name its interpreter.
    installation = hashlib.sha256(f"{sys.executable}\n{__file__}".encode()).hexdigest()[:12]
    directory = cache_directory() / "envtest" / installation
    try:
        kubectl = find_tool("kubectl", install=False).path
    except ToolNotFound:
        kubectl = None
    try:
        write_assets(directory, kubectl)
    except OSError as error:
        raise _user_error(f"the programs for envtest cannot be written: {error}") from error
    typer.echo(f"export KUBEBUILDER_ASSETS={shlex.quote(str(directory))}")


@app.command()
def build() -> None:
    """Build the executables of the real engine with Go, unless they are installed already."""
    from kapsa.devcluster.real.binaries import find_binaries
    from kapsa.devcluster.real.build import ensure_binaries

    with _build_progress() as progress:
        asyncio.run(ensure_binaries(progress=progress))
    for binary in find_binaries().values():
        typer.echo(f"{binary.name:<24} {binary.source:<20} {binary.path}")


async def _serve(cluster: DevCluster, kubeconfig: Path, claimed: KubeconfigClaim) -> int:
    """Run a cluster until a signal arrives or it fails. Return the exit code."""
    stopped = _stop_signal()
    began = time.monotonic()
    starting = asyncio.create_task(cluster.start())
    _say(f"starting the {cluster.engine} engine")
    try:
        await asyncio.wait([starting, stopped], return_when=asyncio.FIRST_COMPLETED)
        if stopped.done():
            _say("interrupted; cleaning up")
            return 130
        await starting
        await _publish(cluster, kubeconfig, claimed)
        _say(f"ready in {_seconds(cluster, began):.1f} s at {cluster.url}")
        _say(f"export KUBECONFIG={kubeconfig}")
        _say("press Ctrl-C to stop it and remove its files")
        await _until_the_end(cluster, stopped)
        _say("stopping")
        return 0
    finally:
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await starting
        await cluster.stop()


async def _publish(cluster: DevCluster, kubeconfig: Path, claimed: KubeconfigClaim) -> None:
    import yaml

    claimed.write_kubeconfig(yaml.safe_dump(cluster.kubeconfig_data, sort_keys=False))
    if cluster.engine == "real":
        await cluster.real.remove_at_end(kubeconfig)
    claimed.record(cluster.engine, cluster.url)


def _seconds(cluster: DevCluster, began: float) -> float:
    # A build of the executables does not count as start-up.
    return cluster.real.startup_seconds if cluster.engine == "real" else time.monotonic() - began


async def _until_the_end(cluster: DevCluster, stopped: asyncio.Future[None]) -> None:
    if cluster.engine == "embedded":
        await stopped
        return
    failing = asyncio.create_task(cluster.real.wait_for_failure())
    waited_for: list[asyncio.Future[Any]] = [failing, stopped]
    await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)
    if failing.done():
        raise failing.result()
    failing.cancel()


def _stop_signal() -> asyncio.Future[None]:
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[None] = loop.create_future()

    def stop() -> None:
        if not stopped.done():
            stopped.set_result(None)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop)
    return stopped


def _up_detached(options: ClusterOptions, kubeconfig: Path) -> None:
    from kapsa.cli.devcluster_records import DevClusterRecord, check_free

    check_free(kubeconfig)
    log = DevClusterRecord(kubeconfig, options.engine, os.getpid()).log
    log.parent.mkdir(parents=True, exist_ok=True)
    arguments = ["up", f"--kubeconfig={kubeconfig}", *options.arguments()]
    with log.open("w+") as output:
        process = subprocess.Popen(  # noqa: S603 - this command itself
            [sys.executable, "-c", "from kapsa.cli import main; main()", "devcluster", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        with log.open() as reader:
            _wait_until_ready(process, kubeconfig, reader)
    _say(
        f"running in the background (pid {process.pid}); stop it with `kapsa devcluster down --kubeconfig {kubeconfig}`"
    )


def _wait_until_ready(process: subprocess.Popen[bytes], kubeconfig: Path, log: IO[str]) -> None:
    """Print the output of the background process until it is ready or has exited."""
    from kapsa.cli.devcluster_records import find_record

    try:
        while process.poll() is None:
            record = find_record(kubeconfig)
            if record is not None and record.pid == process.pid and record.url:
                return
            sys.stderr.write(log.read())
            time.sleep(_DETACH_POLL_SECONDS)
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        raise
    sys.stderr.write(log.read())
    raise typer.Exit(1)


@contextlib.contextmanager
def _build_progress() -> Iterator[Progress | None]:
    """Yield progress bars on a terminal. Elsewhere the build prints lines itself."""
    if not sys.stderr.isatty():
        yield None
        return
    from kapsa.cli.build_bars import BuildBars

    with contextlib.closing(BuildBars()) as bars:
        yield bars


def _say(message: str) -> None:
    typer.echo(message, err=True)


def _user_error(message: str) -> Exception:
    from kapsa.devcluster.errors import DevClusterError

    return DevClusterError(message)
