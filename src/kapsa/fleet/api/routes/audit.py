"""The route of the audit log."""

from datetime import datetime
from typing import Annotated

import msgspec
from litestar import Controller, get
from litestar.params import QueryParameter

from kapsa.fleet.api.access import ADMINS, read
from kapsa.fleet.api.parameters import PageCursor
from kapsa.fleet.api.requests import ApiRequest
from kapsa.fleet.domain.errors import InvalidField, InvalidInput
from kapsa.fleet.orchestrator.audit import LARGEST_PAGE, AuditFilter, AuditRecord
from kapsa.fleet.orchestrator.pages import Page

__all__ = ["AuditController"]

AuditLimit = Annotated[
    int, QueryParameter(ge=1, le=LARGEST_PAGE, description="The largest number of items in the page.")
]
Actor = Annotated[str, QueryParameter(max_length=256, description="Only entries of this subject.")]
Action = Annotated[
    str, QueryParameter(max_length=128, description="Only entries of this action: `cluster.register`.")
]
ObjectKind = Annotated[
    str, QueryParameter(name="objectKind", max_length=64, description="Only entries of this kind of object.")
]
ObjectId = Annotated[
    str,
    QueryParameter(name="objectId", max_length=256, description="Only entries of the object with this id."),
]
Since = Annotated[
    str | None,
    QueryParameter(
        description="Only entries at or after this time, with a time zone.",
        schema_extra={"format": "date-time"},
    ),
]
Until = Annotated[
    str | None,
    QueryParameter(
        description="Only entries before this time, with a time zone.", schema_extra={"format": "date-time"}
    ),
]


class AuditController(Controller):
    """The route of the audit log."""

    path = "/api/v1/audit"

    @get("/", opt=read(ADMINS), operation_id="listAuditEntries")
    async def list_all(
        self,
        request: ApiRequest,
        cursor: PageCursor = "",
        limit: AuditLimit = 100,
        actor: Actor = "",
        action: Action = "",
        object_kind: ObjectKind = "",
        object_id: ObjectId = "",
        since: Since = None,
        until: Until = None,
    ) -> Page[AuditRecord]:
        """List audit entries, newest first. They name people, so only admins may."""
        criteria = AuditFilter(
            actor=actor,
            action=action,
            object_kind=object_kind,
            object_id=object_id,
            since=_moment("since", since),
            until=_moment("until", until),
        )
        return await request.use_cases.audit_log.page(request.principal, criteria, cursor=cursor, limit=limit)


def _moment(name: str, text: str | None) -> datetime | None:
    """Return the time in a parameter. It is a text here, because litestar reads a number as one, too."""
    if text is None:
        return None
    try:
        moment = msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        moment = None
    if moment is None or moment.tzinfo is None:
        message = "must be a time with a time zone, such as 2026-11-17T12:00:00Z"
        raise InvalidInput(f"{name} {message}", InvalidField(f"/{name}", message))
    return moment
