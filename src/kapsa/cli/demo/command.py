"""`kapsa demo`: starts the services, runs the walkthrough, and stops or keeps them running."""

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
        bool, typer.Option("--keep", help="Keep the demo running afterwards, and write a kubeconfig for it.")
    ] = False,
    kubeconfig: Annotated[
        Path, typer.Option(metavar="FILE", help="The file that --keep writes the kubeconfig to.")
    ] = Path("demo.kubeconfig"),
) -> None:
    """Push branches to a git repository, and watch their environments get created, updated and deleted.

    Everything but the containers is real: git, helm, an image registry, the operator, and a control plane in
    Python.
    """
    if keep and kubeconfig.exists():
        raise typer.BadParameter(f"{kubeconfig} already exists; choose another file with --kubeconfig")
    try:
        asyncio.run(_run(kubeconfig if keep else None))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


async def _run(kubeconfig: Path | None) -> None:
    from kapsa.cli.demo.display import Display
    from kapsa.cli.demo.requirements import check_requirements
    from kapsa.cli.demo.services import start_services
    from kapsa.cli.demo.walkthrough import Walkthrough
    from kapsa.runtime import logs

    logs.configure(level="error", format="text")
    display = Display()
    await check_requirements(display)
    with contextlib.ExitStack() as files:
        directory = files.enter_context(_temporary_directory())
        target = files.enter_context(_private_file(kubeconfig)) if kubeconfig is not None else None
        try:
            async with (
                start_services(Path(directory), display) as services,
                display.following(services.client),
            ):
                walkthrough = Walkthrough(services, display)
                await walkthrough.run()
                if target is None:
                    await walkthrough.clean_up()
                else:
                    target.write_text(services.cluster.kubeconfig.read_text())
                    walkthrough.show_instructions(target)
                    await _interrupted()
        except asyncio.CancelledError:
            display.say("interrupted")
            raise
    display.say("everything is stopped, and all files are removed")


def _temporary_directory() -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(prefix="kapsa-demo-")
    except OSError as error:
        raise typer.BadParameter(
            f"temporary files cannot be created ({error}): set TMPDIR to another directory"
        ) from None


@contextlib.contextmanager
def _private_file(path: Path) -> Iterator[Path]:
    """Create a file that only its owner can read, and remove it when the block ends."""
    try:
        path.touch(mode=0o600, exist_ok=False)
    except OSError as error:
        raise typer.BadParameter(
            f"{path} cannot be written: {error.strerror}; choose another file with --kubeconfig"
        ) from None
    try:
        yield path.absolute()
    finally:
        path.unlink(missing_ok=True)


async def _interrupted() -> None:
    """Wait for Ctrl-C or SIGTERM, which end the demo without an error."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()
