"""`kapsa demo`: the life of a project on the embedded devcluster, told as it happens."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["command"]


def command(
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave it running, with a kubeconfig to play with.")
    ] = False,
    kubeconfig: Annotated[
        Path, typer.Option(metavar="FILE", help="Where --keep writes the kubeconfig.")
    ] = Path("demo.kubeconfig"),
) -> None:
    """Push branches to a git repository, and watch their environments come, change, fail and go.

    All of it is real but the containers: git, helm, the image registry, the operator, and a control plane in Python.
    """
    if keep and kubeconfig.exists():
        raise typer.BadParameter(f"{kubeconfig} exists already; name another file with --kubeconfig")
    try:
        asyncio.run(_play(kubeconfig if keep else None))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


async def _play(kubeconfig: Path | None) -> None:
    from kapsa.cli.demo.display import Display
    from kapsa.cli.demo.requirements import check_programs
    from kapsa.cli.demo.services import start_services
    from kapsa.cli.demo.walkthrough import Walkthrough
    from kapsa.runtime import logs

    logs.configure(level="error", format="text")
    screen = Display()
    await check_programs(screen)
    with contextlib.ExitStack() as files:
        directory = files.enter_context(_temporary_directory())
        target = files.enter_context(_private_file(kubeconfig)) if kubeconfig is not None else None
        try:
            async with start_services(Path(directory), screen) as stage, screen.following(stage.client):
                story = Walkthrough(stage, screen)
                await story.tell()
                if target is None:
                    await story.end()
                else:
                    target.write_text(stage.cluster.kubeconfig.read_text())
                    story.invite(target)
                    await _interrupted()
        except asyncio.CancelledError:
            screen.say("interrupted")
            raise
    screen.say("everything is stopped, and nothing is left behind")


def _temporary_directory() -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(prefix="kapsa-demo-")
    except OSError as error:
        raise typer.BadParameter(f"there is no room for temporary files ({error}): set TMPDIR") from None


@contextlib.contextmanager
def _private_file(path: Path) -> Iterator[Path]:
    """A file that only its owner can read, for as long as the block runs. Made first: it may well not be possible."""
    try:
        path.touch(mode=0o600, exist_ok=False)
    except OSError as error:
        raise typer.BadParameter(f"{path} can't be written: {error.strerror}; use --kubeconfig") from None
    try:
        yield path.absolute()
    finally:
        path.unlink(missing_ok=True)


async def _interrupted() -> None:
    """Wait for Ctrl-C, or for a SIGTERM. Here it is the usual end, and no error."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()
