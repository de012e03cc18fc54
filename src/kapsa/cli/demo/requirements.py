"""The programs that the demo needs, checked before anything starts."""

from __future__ import annotations

import asyncio
from functools import partial

from kapsa.adapters.process.tools import find_tool
from kapsa.cli.demo.progress_lines import ProgressLines

__all__ = ["check_requirements"]


async def check_requirements(display: ProgressLines, *programs: str) -> None:
    """Find programs. Install helm if it is missing.

    Raises `ToolNotFound` when a program is missing.
    """
    for name in programs:
        await asyncio.to_thread(partial(find_tool, name, report=display.say))
