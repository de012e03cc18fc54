"""The fleet's demo from start to stop."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from kapsa.cli.demo.fleet.cluster_table import FleetDisplay
from kapsa.cli.demo.fleet.services import start_fleet
from kapsa.cli.demo.fleet.walkthrough import FleetWalkthrough
from kapsa.cli.demo.requirements import check_requirements
from kapsa.runtime import logs

__all__ = ["run_fleet_story"]


async def run_fleet_story(keep: Callable[[], Awaitable[None]] | None) -> None:
    """Run the demo. `keep` returns when a demo that was kept running may stop; None stops it at once."""
    logs.configure(level="error", format="text")
    display = FleetDisplay()
    await check_requirements(display, "helm")
    with tempfile.TemporaryDirectory(prefix="kapsa-demo-") as private:
        # For root, PostgreSQL runs as another user, who must be able to pass through.
        Path(private).chmod(0o711)
        try:
            async with start_fleet(Path(private), display) as demo:
                walkthrough = FleetWalkthrough(demo, display)
                await walkthrough.run()
                if keep is not None:
                    walkthrough.show_instructions()
                    await keep()
        except asyncio.CancelledError:
            display.say("interrupted")
            raise
    display.say("everything is stopped, and all files are removed")
