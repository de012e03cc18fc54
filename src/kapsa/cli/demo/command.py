"""`kapsa demo`: runs a story, and stops or keeps its services running."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["DemoStory", "command"]


class DemoStory(enum.StrEnum):
    """The stories by name."""

    ENVIRONMENTS = "environments"
    FLEET = "fleet"


def command(
    story: Annotated[
        DemoStory,
        typer.Argument(help="environments: branches get environments. fleet: an operator on ten clusters."),
    ] = DemoStory.ENVIRONMENTS,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep",
            help="Keep the demo running afterwards: with a kubeconfig (environments), or a token and URLs (fleet).",
        ),
    ] = False,
    kubeconfig: Annotated[
        Path, typer.Option(metavar="FILE", help="The file that --keep writes the kubeconfig to.")
    ] = Path("demo.kubeconfig"),
) -> None:
    """Watch Kapsa at work on embedded control planes, in under a minute.

    environments: push branches to a git repository, and watch their environments get created, updated and deleted.
    fleet: roll an operator out over ten clusters, and watch a bad version get caught and rolled back.
    Everything but the containers is real: git, helm, registries, the operator, the manager and its database.
    """
    if keep and story is DemoStory.ENVIRONMENTS and kubeconfig.exists():
        raise typer.BadParameter(f"{kubeconfig} already exists; choose another file with --kubeconfig")
    try:
        asyncio.run(_run_fleet(keep=keep) if story is DemoStory.FLEET else _run(kubeconfig if keep else None))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


async def _run_fleet(*, keep: bool) -> None:
    from kapsa.cli.demo.fleet.story import run_fleet_story

    await run_fleet_story(_interrupted if keep else None)


async def _run(kubeconfig: Path | None) -> None:
    from kapsa.cli.demo.display import Display
    from kapsa.cli.demo.requirements import check_requirements
    from kapsa.cli.demo.services import start_services
    from kapsa.cli.demo.walkthrough import Walkthrough
    from kapsa.runtime import logs

    logs.configure(level="error", format="text")
    display = Display()
    await check_requirements(display, "git", "helm")
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
