"""The programs that the demo needs, looked for first: one line says what is missing, before anything starts."""

from __future__ import annotations

import asyncio
from functools import partial

from kapsa.cli.demo.screen import Screen
from kapsa.tools import find_tool

__all__ = ["check_programs"]


async def check_programs(screen: Screen) -> None:
    """Find git, and helm, which is fetched if it is not there.

    :raises ToolNotFound: one is missing; the message says what to do.
    """
    for name in ("git", "helm"):
        await asyncio.to_thread(partial(find_tool, name, say=screen.say))
