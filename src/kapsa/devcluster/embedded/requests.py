"""One request about a resource: from its method and path to a verb, and the verb's reply."""

from __future__ import annotations

from typing import Any

import msgspec

from . import bodies, deletion, errors, listing, patches, writes
from .backend import Backend
from .deletion import DeleteOptions, Deletion
from .exchange import ADMIN, Reply, Request
from .options import ListOptions, list_options, parse_query, write_options
from .registry import ResourceInfo
from .routes import Route
from .selection import selection
from .storage import Stored
from .watch import Watch, bookmark_of
from .writes import Write

__all__ = ["ResourceRequest"]

Object = dict[str, Any]
_JSON = {"content-type": "application/json", "cache-control": "no-cache, private"}
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
    """What is known about the request so far, and the verbs it can turn out to be."""

    def __init__(self, backend: Backend, request: Request, route: Route, info: ResourceInfo) -> None:
        self.backend = backend
        self.request = request
        self.route = route
        self.info = info
        self.collection = backend.collection(info)
        self.warnings: list[str] = []

    async def answer(self) -> Reply:
        method, route = self.request.method, self.route
        if route.subresource and self.info.subresource(route.subresource) is None:
            raise errors.resource_not_found()
        if method == "GET" or method == "HEAD":
            return await self._read()
        if method == "POST" and not route.name:
            return await self._create()
        if method == "PUT" and route.name:
            return await self._update()
        if method == "PATCH" and route.name:
            return await self._patch()
        if method == "DELETE":
            return await (self._delete() if route.name else self._delete_collection())
        raise errors.method_not_allowed()

    # Reading

    async def _read(self) -> Reply:
        if self.route.name and not self.route.watch:
            options = list_options(self.request.query) if "watch" in self.request.query else ListOptions()
            if not options.watch:
                return self._object(200, self._get())
        options = list_options(self.request.query, watch=self.route.watch)
        if options.watch:
            return self._watch(options)
        return self._list(options)

    def _get(self) -> Stored:
        stored = self.collection.get(self.info.object_key(self.route.namespace, self.route.name))
        if stored is None:
            raise errors.not_found(self.info, self.route.name)
        return stored

    def _list(self, options: ListOptions) -> Reply:
        chosen = selection(self.info, self.route.namespace, options)
        page = listing.read_page(self.backend.store, self.collection, chosen, options)
        head = {
            "kind": self.info.list_kind,
            "apiVersion": self.info.api_version,
            "metadata": page.metadata(),
        }
        body = b'%b,"items":[%b]}\n' % (
            msgspec.json.encode(head)[:-1],
            b",".join([stored.body for stored in page.items]),
        )
        return Reply(status=200, headers=dict(_JSON), body=body)

    def _watch(self, options: ListOptions) -> Reply:
        chosen = selection(self.info, self.route.namespace, options, self.route.name)
        watch = Watch(
            self.backend.store,
            self.collection,
            chosen,
            options,
            bookmark=bookmark_of(self.info.api_version, self.info.kind),
            timeout=self._watch_timeout(options),
        )
        revision = options.resource_version
        watch.open(revision, listing.parse_revision(revision) if revision else 0)
        return Reply(status=200, headers=dict(_JSON), body=watch.events())

    def _watch_timeout(self, options: ListOptions) -> float:
        if options.timeout_seconds is not None:
            return float(options.timeout_seconds)
        return 1800.0 * (1.0 + self.backend.random.random())

    # Writing

    async def _create(self) -> Reply:
        write = self._write("CreateOptions")
        stored = await writes.create(self.backend, write, self._body())
        return self._object(201, stored)

    async def _update(self) -> Reply:
        write = self._write("UpdateOptions")
        body = self._body()
        stored = await writes.update(self.backend, write, lambda _: body)
        return self._object(201 if write.created else 200, stored)

    async def _patch(self) -> Reply:
        kind = patches.patch_type(self.request, self.info)
        write = self._write("PatchOptions", applies=kind == patches.APPLY)
        transform = patches.transform_of(kind, self.request, write, self.backend.now())
        stored = await writes.update(self.backend, write, transform)
        return self._object(201 if write.created else 200, stored)

    def _write(self, options: str, *, applies: bool = False) -> Write:
        route = self.route
        return Write(
            info=self.info,
            namespace=route.namespace,
            name=route.name,
            subresource=route.subresource,
            options=write_options(self.request, options, patch=options == "PatchOptions", apply=applies),
            applies=applies,
            user=self.request.user or ADMIN,
            warnings=self.warnings,
        )

    def _body(self) -> Object:
        obj = bodies.decode(self.request.body, self.request.headers.get("content-type", ""))
        return bodies.check_object(obj, self.info)

    # Deleting

    async def _delete(self) -> Reply:
        options = self._delete_options()
        stored, gone = await deletion.delete(
            self.backend,
            Deletion(
                info=self.info,
                namespace=self.route.namespace,
                name=self.route.name,
                options=options,
                user=self.request.user or ADMIN,
                warnings=self.warnings,
            ),
        )
        code = 202 if not gone and options.orphan_dependents is False else 200
        if not gone or (self.info.group, self.info.resource) in _RETURN_DELETED:
            return self._object(code, stored)
        return Reply(status=code, headers=dict(_JSON), body=_success(self.info, stored))

    async def _delete_collection(self) -> Reply:
        options = self._delete_options()
        chosen = selection(self.info, self.route.namespace, list_options(self.request.query))
        page = listing.read_page(self.backend.store, self.collection, chosen, ListOptions())
        for stored in page.items:
            try:
                await deletion.delete(
                    self.backend,
                    Deletion(
                        info=self.info,
                        namespace=stored.namespace,
                        name=stored.name,
                        options=options,
                        user=self.request.user or ADMIN,
                        warnings=self.warnings,
                    ),
                )
            except errors.ApiError as error:
                if error.code != 404:
                    raise
        return self._list_reply(page)

    def _list_reply(self, page: listing.Page) -> Reply:
        head = {"kind": self.info.list_kind, "apiVersion": self.info.api_version, "metadata": page.metadata()}
        items = b",".join([stored.body for stored in page.items])
        body = b'%b,"items":[%b]}\n' % (msgspec.json.encode(head)[:-1], items)
        return Reply(status=200, headers=dict(_JSON), body=body)

    def _delete_options(self) -> DeleteOptions:
        request = self.request
        if request.body:
            decoded = bodies.decode(request.body, request.headers.get("content-type", ""))
            try:
                options = msgspec.convert(decoded, DeleteOptions)
            except msgspec.ValidationError as error:
                raise errors.bad_request(
                    f"decoded object cannot be converted to DeleteOptions: {error}"
                ) from None
        else:
            options = _options_of_query(request.query)
        options.validate()
        return options

    # Replying

    def _object(self, code: int, stored: Stored) -> Reply:
        headers = dict(_JSON)
        if self.warnings:
            headers["warning"] = ", ".join(_warning(text) for text in dict.fromkeys(self.warnings))
        return Reply(status=code, headers=headers, body=stored.body)


def _warning(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{escaped}"'


def _success(info: ResourceInfo, stored: Stored) -> bytes:
    details = {"name": stored.name, "kind": info.resource, "uid": stored.uid}
    if info.group:
        details["group"] = info.group
    return msgspec.json.encode(
        {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    )


def _options_of_query(query: str) -> DeleteOptions:
    values = parse_query(query)
    grace = values.get("gracePeriodSeconds", [""])[0]
    orphan = values.get("orphanDependents", [""])[0]
    return DeleteOptions(
        grace_period_seconds=int(grace) if grace else None,
        orphan_dependents=orphan != "false" if orphan else None,
        propagation_policy=values.get("propagationPolicy", [None])[0],
        dry_run=values.get("dryRun"),
    )
