"""Parameters that many routes have. Limits are litestar's own: `msgspec.Meta` on a parameter is silently ignored."""

import uuid
from typing import Annotated

from litestar.params import HeaderParameter, PathParameter, QueryParameter

from kapsa.fleet.orchestrator.cursors import LARGEST_LIMIT

__all__ = ["CrdName", "IfMatch", "ObjectId", "ObjectName", "PageCursor", "PageLimit"]

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"

ObjectName = Annotated[
    str,
    PathParameter(pattern=f"^{_LABEL}$", min_length=1, max_length=63, description="The name of the object."),
]
ObjectId = Annotated[uuid.UUID, PathParameter(description="The id of the object.")]
CrdName = Annotated[
    str,
    PathParameter(
        pattern=f"^{_LABEL}(\\.{_LABEL})+$",
        max_length=253,
        description="The name of the CRD, such as `certificates.cert-manager.io`.",
    ),
]
PageCursor = Annotated[
    str,
    QueryParameter(
        max_length=1024,
        description="`nextCursor` of the page before; the first page without it.",
        schema_extra={"pattern": "^[A-Za-z0-9_-]*$"},
    ),
]
PageLimit = Annotated[
    int, QueryParameter(ge=1, le=LARGEST_LIMIT, description="The largest number of items in the page.")
]
IfMatch = Annotated[
    str | None,
    HeaderParameter(
        name="If-Match",
        max_length=64,
        description="The ETag of the version that the change is based on.",
        schema_extra={"pattern": '^("[0-9]{1,18}"|[*])$'},
    ),
]
