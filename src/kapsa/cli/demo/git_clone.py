"""A developer's clone: changes files, commits and pushes with the real git."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from kapsa.adapters.process.tools import find_tool

__all__ = ["GitClone"]

_NAME = "Demo"
_EMAIL = "demo@example.com"


class GitClone:
    """A clone of the demo's repository."""

    def __init__(self, directory: Path, repository: Path) -> None:
        self.directory = directory
        self._repository = repository
        self._git = find_tool("git").path
        self._environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(directory.parent),
            "LC_ALL": "C",
            # The configuration of this machine may require signatures or hooks, or name another default branch.
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_TERMINAL_PROMPT": "0",
        }

    async def start(self, application: Path) -> str:
        """Create the clone, and push the application to main."""
        self.directory.mkdir(parents=True)
        await self.git("init", "--quiet", "--initial-branch=main")
        await self.git("config", "user.name", _NAME)
        await self.git("config", "user.email", _EMAIL)
        await self.git("remote", "add", "origin", str(self._repository))
        shutil.copytree(application, self.directory, dirs_exist_ok=True)
        return await self.push("main", message="Begin")

    async def branch(self, name: str) -> None:
        """Create a branch from main."""
        await self.git("switch", "--quiet", "-c", name, "main")

    async def push(
        self, branch: str, files: Mapping[str, str] | None = None, *, message: str, delete: str = ""
    ) -> str:
        """Commit files to a branch and push it.

        Return the commit. The same push can delete another branch.
        """
        for path, content in (files or {}).items():
            (self.directory / path).write_text(content)
        await self.git("add", "--all")
        await self.git("commit", "--quiet", "-m", message)
        deleted = [f":refs/heads/{delete}"] if delete else []
        await self.git("push", "--quiet", "origin", f"refs/heads/{branch}", *deleted)
        return await self.git("rev-parse", "HEAD")

    async def git(self, *arguments: str) -> str:
        """Run git in the clone."""
        process = await asyncio.create_subprocess_exec(
            str(self._git),
            *arguments,
            cwd=self.directory,
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        stdout, stderr = await process.communicate()
        if process.returncode:
            raise RuntimeError(f"git {arguments[0]}: {stderr.decode(errors='replace').strip()}")
        return stdout.decode().strip()
