"""The programs that the demo needs, checked before anything starts."""

from __future__ import annotations

import asyncio
from functools import partial

from kapsa.adapters.process.tools import find_tool
from kapsa.cli.demo.display import Display

__all__ = ["check_requirements"]


async def check_requirements(display: Display) -> None:
    """Find git and helm. Install helm if it is missing.

    Raises `ToolNotFound` when a program is missing.
    """
    for name in ("git", "helm"):
        await asyncio.to_thread(partial(find_tool, name, report=display.say))
