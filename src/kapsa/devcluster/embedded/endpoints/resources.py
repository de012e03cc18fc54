"""One request about a resource: the verb it turns out to be, and the verb's reply."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.codec import bodies
from kapsa.devcluster.embedded.codec.posted_kinds import decode_delete_options
from kapsa.devcluster.embedded.codec.strict_decoding import duplicate_fields
from kapsa.devcluster.embedded.endpoints import reviews, subresources
from kapsa.devcluster.embedded.kinds import names
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.embedded.replies.negotiation import Form, negotiate
from kapsa.devcluster.embedded.replies.writer import Writer, reply_document, warning_header
from kapsa.devcluster.embedded.requests.mutations import DeleteRequest, WriteRequest
from kapsa.devcluster.embedded.requests.parameters import (
    DeleteParameters,
    ListParameters,
    WriteMethod,
    WriteParameters,
    delete_parameters,
    list_parameters,
    write_parameters,
)
from kapsa.devcluster.embedded.storage.store import CompactedError, FutureRevisionError, Stored
from kapsa.devcluster.embedded.verbs import deletion, listing, patches, writes
from kapsa.devcluster.embedded.verbs.decoding import check_claimed_version
from kapsa.devcluster.embedded.verbs.selection import selection
from kapsa.devcluster.embedded.verbs.watch import WatchStream, too_old, watch_revision
from kapsa.devcluster.wire import status_errors as errors
from kapsa.devcluster.wire.exchange import ADMIN, Reply, Request, RequestUser
from kapsa.devcluster.wire.query import parse_query
from kapsa.devcluster.wire.routes import ResourceRoute
from kapsa.devcluster.wire.status_errors import StatusError
from kapsa.devcluster.wire.watch_events import error_stream
from kapsa.schemas import go_format

__all__ = ["ResourceRequest"]

Object = dict[str, Any]
_RETURN_DELETED = frozenset(
    {
        ("", "namespaces"),
        ("", "persistentvolumeclaims"),
        ("", "persistentvolumes"),
        ("", "pods"),
        ("", "podtemplates"),
        ("", "resourcequotas"),
        ("", "serviceaccounts"),
        ("", "services"),
        ("storage.k8s.io", "csidrivers"),
        ("storage.k8s.io", "csinodes"),
        ("storage.k8s.io", "storageclasses"),
        ("storage.k8s.io", "volumeattachments"),
        ("storage.k8s.io", "volumeattributesclasses"),
    }
)


class ResourceRequest:
    """What is known about a request, and the verbs it can be."""

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
        """A revision that reads are served from, when they are made stale on purpose."""
        self.collection = backend.collection(info)
        self.warnings = [info.deprecation] if info.deprecation else []

    @property
    def user(self) -> RequestUser:
        return self.request.user or ADMIN

    async def answer(self, verb: str) -> Reply:
        """Do what the verb says; a refusal carries the warnings that came up on the way to it."""
        try:
            return await self._answer(verb)
        except errors.StatusError as error:
            error.headers |= warning_header(self.warnings)
            raise

    async def _answer(self, verb: str) -> Reply:
        route, info = self.route, self.info
        if route.subresource and info.subresource(route.subresource) is None:
            raise errors.resource_not_found()
        if problems := names.path_segment(route.name):
            quoted = go_format.quote(route.name)
            raise errors.bad_request(f"Name parameter invalid: {quoted}: {'; '.join(problems)}")
        if route.namespace and not info.namespaced:
            raise errors.page_not_found() if info.is_custom else errors.resource_not_found()
        if route.subresource:
            return await subresources.answer(self, verb)
        if info.namespaced and not route.namespace and (route.name or verb == "create"):
            raise errors.method_not_allowed() if verb == "create" else errors.resource_not_found()
        if (info.group, info.resource) in reviews.REVIEWS:
            return self._review(verb)
        if verb not in info.verbs or (
            verb in ("create", "update", "patch") and bool(route.name) is (verb == "create")
        ):
            raise errors.method_not_allowed()
        match verb:
            case "get":
                return await self._get()
            case "list":
                return await self._list()
            case "watch":
                return self._watch()
            case "create":
                return await self._create()
            case "update":
                return await self.update()
            case "patch":
                return await self.patch()
            case "delete":
                return await self._delete()
            case _:
                return await self._delete_collection()

    # Reading

    async def _get(self) -> Reply:
        writer = self.writer()
        if "resourceVersion" in self.request.query:
            self._check_get_revision()
        stored = self.stored()
        await self._prepare([stored])
        return writer.object(200, stored)

    async def _prepare(self, objects: Iterable[Stored]) -> None:
        """Have objects converted to the version that is asked for, where that takes more than a look."""
        if self.info.converter is not None:
            await self.info.converter.prepare(objects)

    def _check_get_revision(self) -> None:
        wanted = parse_query(self.request.query).get("resourceVersion", [""])[0]
        revision, current = watch_revision(wanted), self.backend.store.revision
        if revision > current:
            raise listing.too_large_revision(FutureRevisionError(revision, current))

    def stored(self) -> Stored:
        """The object the path names."""
        key = self.info.object_key(self.route.namespace, self.route.name)
        stored = self.collection.get(key) if self.frozen is None else self.collection.get_at(self.frozen, key)
        if stored is None:
            raise errors.not_found(self.info, self.route.name)
        return stored

    async def _list(self) -> Reply:
        writer = self.writer()
        options = list_parameters(self.request.query)
        chosen = selection(self.info, self.route.namespace, options)
        page = listing.read_page(self.backend.store, self.collection, chosen, options, frozen=self.frozen)
        await self._prepare(page.items)
        return writer.page(page)

    def _watch(self) -> Reply:
        writer = self.writer(stream=True)
        options = list_parameters(self.request.query, watch=True)
        chosen = selection(self.info, self.route.namespace, options, self.route.name)
        watch = WatchStream(
            self.backend.store,
            self.collection,
            chosen,
            options,
            bookmark=writer.bookmark,
            view=writer.view,
            prepare=None if self.info.converter is None else self.info.converter.prepare,
            timeout=self._watch_timeout(options),
        )
        try:
            watch.open()
        except CompactedError as error:
            return Reply(status=200, headers=writer.headers(), body=error_stream(too_old(error)))
        return Reply(status=200, headers=writer.headers(), body=watch.events())

    def _watch_timeout(self, options: ListParameters) -> float:
        if options.timeout_seconds is not None:
            return float(options.timeout_seconds)
        return 1800.0 * (1.0 + self.backend.random.random())

    # Writing

    async def _create(self) -> Reply:
        writer = self.writer()
        write, obj = self._submitted(WriteMethod.CREATE)
        stored = await writes.create(self.backend, write, obj)
        return writer.object(201, stored)

    async def update(self) -> Reply:
        """Replace the object, or the part of it that the subresource is."""
        writer = self.writer()
        write, _ = self._submitted(WriteMethod.UPDATE)
        transform = subresources.narrowed(self.route.subresource, lambda _: self.body())
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
        """Return the write that this request asks for."""
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

    def _submitted(self, method: WriteMethod) -> tuple[WriteRequest, Object]:
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

    @property
    def _content_type(self) -> str:
        return self.request.headers.get("content-type", "")

    def _decoded(self) -> Object:
        return bodies.decode_object(self.request.body, self._content_type, self.info)

    def _checked(self, obj: Object) -> Object:
        return bodies.check_kind(obj, self.info, self.backend.registry, self.request.body)

    def _review(self, verb: str) -> Reply:
        if verb != "create" or self.route.name:
            raise errors.method_not_allowed()
        manager = write_parameters(self.request, WriteMethod.CREATE).manager
        reviewed = reviews.answer(
            self.backend, self.info, self.user, self.body(), self.route.namespace, manager
        )
        return reply_document(201, reviewed, negotiate(self.request))

    # Deleting

    async def _delete(self) -> Reply:
        writer = self.writer()
        parameters = self._delete_parameters()
        stored, gone = await deletion.delete(self.backend, self._deletion(self.route.name, parameters))
        code = 202 if not gone and parameters.orphan_dependents is False else 200
        if not gone or (self.info.group, self.info.resource) in _RETURN_DELETED:
            return writer.object(code, stored)
        return reply_document(code, _success(self.info, stored), writer.form, self.warnings)

    async def _delete_collection(self) -> Reply:
        writer = self.writer()
        selected = list_parameters(self.request.query)
        parameters = self._delete_parameters()
        chosen = selection(self.info, self.route.namespace, selected)
        page = listing.read_page(self.backend.store, self.collection, chosen, ListParameters())
        for stored in page.items:
            try:
                await deletion.delete(self.backend, self._deletion(stored.name, parameters, stored.namespace))
            except StatusError as error:
                if error.code != 404:
                    raise
        return writer.page(page)

    def _deletion(self, name: str, parameters: DeleteParameters, namespace: str = "") -> DeleteRequest:
        return DeleteRequest(
            info=self.info,
            namespace=namespace or self.route.namespace,
            name=name,
            parameters=parameters,
            user=self.user,
            warnings=self.warnings,
        )

    def _delete_parameters(self) -> DeleteParameters:
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
        """Writes replies in the form the client wants; refuses one that cannot be had before anything is done."""
        watchable = not self.route.name and self.request.method == "GET"
        form, include = negotiate(self.request, collection=watchable, stream=stream), ""
        _check_target(
            form, self.info, is_list=not self.route.name and self.request.method == "GET" and not stream
        )
        if "includeObject" in self.request.query:
            include = parse_query(self.request.query).get("includeObject", [""])[0]
            _check_include(include, form)
        return Writer(self.info, form, self.warnings, now=self.backend.clock.now, include=include)


def _check_target(form: Form, info: ResourceInfo, *, is_list: bool) -> None:
    """Metadata of a list is a list, and that of an object is none."""
    if form.target not in ("PartialObjectMetadata", "PartialObjectMetadataList"):
        return
    if is_list == form.target.endswith("List"):
        return
    what = "a list" if is_list else "not a list"
    kind = f"{info.group.partition('.')[0] or 'core'}.{info.kind}{'List' if is_list else ''}"
    if info.is_custom:
        kind = "unstructured.UnstructuredList" if is_list else "unstructured.Unstructured"
    message = f"you requested {form.target}, but the requested object is {what} (*{kind})"
    raise StatusError(406, "NotAcceptable", message)


def _check_include(include: str, form: Form) -> None:
    if form.target == "Table" and include not in ("", "Metadata", "Object", "None"):
        raise errors.bad_request(
            f'Unable to convert to Table as requested: includeObject: Invalid value: "{include}": '
            "must be 'Metadata', 'Object', 'None', or empty"
        )


def _success(info: ResourceInfo, stored: Stored) -> Object:
    details = {"name": stored.name}
    if info.group:
        details["group"] = info.group
    details |= {"kind": info.resource, "uid": stored.uid}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
