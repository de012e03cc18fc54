"""One request about a resource: its object, its body and the form of its reply."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.codec import bodies
from kapsa.devcluster.embedded.codec.posted_kinds import decode_delete_options
from kapsa.devcluster.embedded.codec.strict_checks import duplicate_fields
from kapsa.devcluster.embedded.endpoints.subresource_parts import confined
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.embedded.replies.negotiation import Form, negotiate
from kapsa.devcluster.embedded.replies.writer import Writer
from kapsa.devcluster.embedded.requests.mutations import DeleteRequest, WriteRequest
from kapsa.devcluster.embedded.requests.parameters import (
    DeleteParameters,
    WriteMethod,
    WriteParameters,
    delete_parameters,
    write_parameters,
)
from kapsa.devcluster.embedded.storage.store import Stored
from kapsa.devcluster.embedded.verbs import patches, writes
from kapsa.devcluster.embedded.verbs.decoder import check_claimed_version, decode_into_schema
from kapsa.devcluster.embedded.verbs.metadata import check_namespace
from kapsa.devcluster.wire import status_errors as errors
from kapsa.devcluster.wire.exchange import ADMIN, Reply, Request, RequestUser
from kapsa.devcluster.wire.query import parse_query
from kapsa.devcluster.wire.routes import ResourceRoute

__all__ = ["ResourceRequest"]

Object = dict[str, Any]


class ResourceRequest:
    """A request, the resource its path names, and the writes that work on subresources too."""

    def __init__(
        self,
        backend: Backend,
        request: Request,
        route: ResourceRoute,
        info: ResourceInfo,
        *,
        frozen: int | None = None,
    ) -> None:
        self.backend = backend
        self.request = request
        self.route = route
        self.info = info
        self.frozen = frozen
        """Revision that reads are served from while the fault plan makes them stale."""
        self.collection = backend.collection(info)
        self.warnings = [info.deprecation] if info.deprecation else []

    @property
    def user(self) -> RequestUser:
        """The user who sent the request, by default the administrator."""
        return self.request.user or ADMIN

    # Reading

    def stored(self) -> Stored:
        """Return the object that the path names. Raises StatusError 404 when it does not exist."""
        key = self.info.object_key(self.route.namespace, self.route.name)
        stored = self.collection.get(key) if self.frozen is None else self.collection.get_at(self.frozen, key)
        if stored is None:
            raise errors.not_found(self.info, self.route.name)
        return stored

    async def prepare(self, objects: Iterable[Stored]) -> None:
        """Convert objects to the requested version where a webhook has to do it."""
        if self.info.converter is not None:
            await self.info.converter.prepare(objects)

    # Writing

    async def update(self) -> Reply:
        """Replace the object, or the part of it that the subresource is."""
        writer = self.writer()
        write, _ = self.submitted(WriteMethod.UPDATE)
        transform = confined(self.route.subresource, lambda _: self.body())
        written = await writes.update(self.backend, write, transform)
        return writer.object(201 if written.created else 200, written.stored)

    async def patch(self) -> Reply:
        """Patch the object, or the part of it that the subresource is."""
        writer = self.writer()
        media_type = patches.media_type_of(self.request, self.info)
        method = patches.method_of(media_type)
        parameters = write_parameters(self.request, method)
        patch = patches.decode(media_type, self.request.body, parameters)
        write = self.write(method, parameters, patch.strict_problems, patch.strategic)
        transform = patches.transform_of(patch, write, self.backend)
        written = await writes.update(self.backend, write, transform)
        return writer.object(201 if written.created else 200, written.stored)

    def write(
        self,
        method: WriteMethod,
        parameters: WriteParameters | None = None,
        strict_problems: list[str] | None = None,
        strategic_patch: Any = None,
    ) -> WriteRequest:
        """Return the write of this request."""
        route = self.route
        return WriteRequest(
            info=self.info,
            method=method,
            namespace=route.namespace,
            name=route.name,
            subresource=route.subresource,
            parameters=parameters or write_parameters(self.request, method),
            user=self.user,
            strict_problems=strict_problems or [],
            strategic_patch=strategic_patch,
            warnings=self.warnings,
        )

    def submitted(self, method: WriteMethod) -> tuple[WriteRequest, Object]:
        """Return the write of a whole object, and the object."""
        parameters = write_parameters(self.request, method)
        obj = self._decoded()
        if parameters.field_validation == "Ignore":
            return self.write(method, parameters), self._checked(obj)
        problems = duplicate_fields(self.request.body, obj, self._content_type)
        write = self.write(method, parameters, problems)
        check_claimed_version(write, obj)
        return write, self._checked(obj)

    def body(self) -> Object:
        """Return the request's object, decoded from scratch each time, since writes change it in place."""
        return self._checked(self._decoded())

    def posted(self, kind: ResourceInfo, method: WriteMethod = WriteMethod.CREATE) -> Object:
        """Return a body of a kind that is never stored, without its unknown fields.

        Raises StatusError 400 for another kind, for another namespace than the path's, and for an unknown field
        under Strict validation.
        """
        parameters = write_parameters(self.request, method)
        decoded = bodies.decode_object(self.request.body, self._content_type, kind)
        problems: list[str] = []
        if parameters.field_validation != "Ignore":
            problems = duplicate_fields(self.request.body, decoded, self._content_type)
        obj = bodies.check_kind(decoded, kind, self.backend.registry, self.request.body)
        write = msgspec.structs.replace(self.write(method, parameters, problems), info=kind)
        decode_into_schema(write, obj)
        check_namespace(kind, obj, self.route.namespace)
        return obj

    @property
    def _content_type(self) -> str:
        return self.request.headers.get("content-type", "")

    def _decoded(self) -> Object:
        return bodies.decode_object(self.request.body, self._content_type, self.info)

    def _checked(self, obj: Object) -> Object:
        return bodies.check_kind(obj, self.info, self.backend.registry, self.request.body)

    # Deleting

    def deletion(self, name: str, parameters: DeleteParameters, namespace: str = "") -> DeleteRequest:
        """Return the deletion of one object, by default in the path's namespace."""
        return DeleteRequest(
            info=self.info,
            namespace=namespace or self.route.namespace,
            name=name,
            parameters=parameters,
            user=self.user,
            warnings=self.warnings,
        )

    def delete_parameters(self) -> DeleteParameters:
        """Return the parameters of a deletion, from the body or the query."""
        request = self.request
        if request.body:
            decoded = decode_delete_options(request.body, self._content_type)
            parameters = msgspec.convert(decoded, DeleteParameters)
        else:
            parameters = delete_parameters(request.query)
        parameters.validate()
        return parameters

    # Replying

    def writer(self, *, stream: bool = False) -> Writer:
        """Return the writer for the form that the client accepts.

        Raises StatusError 406 before the request does anything when the server cannot produce it.
        """
        watchable = not self.route.name and self.request.method == "GET"
        form, include = negotiate(self.request, collection=watchable, stream=stream), ""
        _check_target(form, self.info, is_list=watchable and not stream)
        if "includeObject" in self.request.query:
            include = parse_query(self.request.query).get("includeObject", [""])[0]
            _check_include(include, form)
        return Writer(self.info, form, self.warnings, now=self.backend.clock.now, include=include)


def _check_target(form: Form, info: ResourceInfo, *, is_list: bool) -> None:
    """Reject metadata of a list for one object, and metadata of one object for a list."""
    if form.target not in ("PartialObjectMetadata", "PartialObjectMetadataList"):
        return
    if is_list == form.target.endswith("List"):
        return
    what = "a list" if is_list else "not a list"
    kind = f"{info.group.partition('.')[0] or 'core'}.{info.kind}{'List' if is_list else ''}"
    if info.is_custom:
        kind = "unstructured.UnstructuredList" if is_list else "unstructured.Unstructured"
    message = f"you requested {form.target}, but the requested object is {what} (*{kind})"
    raise errors.StatusError(406, "NotAcceptable", message)


def _check_include(include: str, form: Form) -> None:
    if form.target == "Table" and include not in ("", "Metadata", "Object", "None"):
        raise errors.bad_request(
            f'Unable to convert to Table as requested: includeObject: Invalid value: "{include}": '
            "must be 'Metadata', 'Object', 'None', or empty"
        )
