"""One command's connection to the manager that the person is logged in to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from kapsa.cli.fleet.client.manager_api import ManagerApi
from kapsa.cli.fleet.client.profile import Profile, profile_path

__all__ = ["call_manager", "connect"]

Result = TypeVar("Result")


def call_manager(work: Callable[[ManagerApi], Awaitable[Result]]) -> Result:
    """Run `work` with the API of the manager that the stored login is for."""
    return connect(Profile.load(profile_path()), work)


def connect(profile: Profile, work: Callable[[ManagerApi], Awaitable[Result]]) -> Result:
    """Run `work` with the API that a login is for."""

    async def run() -> Result:
        api = ManagerApi(profile.server, profile.token, authority=profile.authority)
        try:
            return await work(api)
        finally:
            await api.close()

    return asyncio.run(run())
