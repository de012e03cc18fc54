"""The HTTP application."""

from collections.abc import Awaitable, Callable

import msgspec
from litestar import Litestar, Response, get
from litestar.openapi.config import OpenAPIConfig

from kapsa import __version__

__all__ = ["ServerHealth", "create_application"]


class ServerHealth(msgspec.Struct, frozen=True, rename="camel"):
    """The health of the manager itself."""

    status: str
    version: str
    database: str


def create_application(check_database: Callable[[], Awaitable[None]]) -> Litestar:
    """Return the application. `check_database` raises if the database does not answer."""

    @get("/health")
    async def health() -> Response[ServerHealth]:
        """Report whether the manager can serve requests."""
        try:
            await check_database()
        except Exception:
            return Response(ServerHealth("Unhealthy", __version__, "Unreachable"), status_code=503)
        return Response(ServerHealth("Healthy", __version__, "Reachable"))

    return Litestar(
        [health], openapi_config=OpenAPIConfig(title="Kapsa fleet", version="v1"), logging_config=None
    )
