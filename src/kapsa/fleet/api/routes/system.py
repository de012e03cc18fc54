"""Routes of the manager itself: health, metrics, and the documents of the API."""

import msgspec
import structlog
from litestar import Controller, Response, get
from prometheus_client import generate_latest

from kapsa import __version__
from kapsa.fleet.api.access import open_to_all, read
from kapsa.fleet.api.openapi.page import PAGE_POLICY, render_page
from kapsa.fleet.api.requests import ApiRequest
from kapsa.fleet.api.views import ServerHealth

__all__ = ["SystemController"]

log = structlog.get_logger(__name__)

_METRICS = "text/plain; version=0.0.4; charset=utf-8"


class SystemController(Controller):
    """Routes of the manager itself."""

    path = "/"

    @get("/health", opt={**open_to_all(), "statuses": (503,)}, operation_id="getHealth")
    async def health(self, request: ApiRequest) -> Response[ServerHealth]:
        """Report whether the manager can serve requests."""
        try:
            await request.app.state.check_database()
        except Exception as error:
            log.warning("the database does not answer", error=str(error)[:300])
            return Response(ServerHealth("Unhealthy", __version__, "Unreachable"), status_code=503)
        return Response(ServerHealth("Healthy", __version__, "Reachable"))

    @get("/livez", opt=open_to_all(), include_in_schema=False, media_type="text/plain")
    async def livez(self) -> str:
        """Respond, whatever the database does: a restart of the manager does not bring it back."""
        return "ok"

    @get("/metrics", opt={**read(), "media_type": "text/plain"}, operation_id="getMetrics")
    async def metrics(self, request: ApiRequest) -> Response[bytes]:
        """Get the metrics of this replica, in the format of Prometheus."""
        return Response(generate_latest(request.app.state.registry), media_type=_METRICS)

    @get("/openapi.json", opt=open_to_all(), include_in_schema=False)
    async def document(self, request: ApiRequest) -> Response[bytes]:
        """Get the OpenAPI document."""
        return Response(msgspec.json.encode(request.app.state.document), media_type="application/json")

    @get("/docs", opt=open_to_all(), include_in_schema=False)
    async def docs(self, request: ApiRequest) -> Response[str]:
        """Get the OpenAPI document as a page."""
        page = render_page(request.app.state.document)
        return Response(page, media_type="text/html", headers={"Content-Security-Policy": PAGE_POLICY})
