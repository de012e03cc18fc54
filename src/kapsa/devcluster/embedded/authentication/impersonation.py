"""Impersonation: the user that a request's headers name, if its sender may act as that user."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple
from urllib.parse import unquote

import msgspec

from kapsa.devcluster.embedded.authorization.authorizer import MASTERS, Authorizer, check
from kapsa.devcluster.embedded.authorization.rbac_index import split_account
from kapsa.devcluster.embedded.kinds import names
from kapsa.devcluster.wire import status_errors as errors
from kapsa.devcluster.wire.authorization import AccessAttributes
from kapsa.devcluster.wire.exchange import ANONYMOUS, HEADER_SEPARATOR, RequestUser
from kapsa.schemas.go_format import quote

__all__ = ["Impersonation", "impersonated_user"]

PREFIX = "impersonate-"
_EXTRA_PREFIX = "impersonate-extra-"
_AUTHENTICATION = "authentication.k8s.io"
_AUTHENTICATED, _UNAUTHENTICATED, _NODES = "system:authenticated", "system:unauthenticated", "system:nodes"
_NODE_PREFIX = "system:node:"
_NODE_NAME = "authentication.kubernetes.io/node-name"
_MANY = 4
"""Number of groups or extra values from which a right to all of them is looked for first."""


def impersonated_user(headers: Mapping[str, str]) -> RequestUser | None:
    """Return the user that headers name, as they are; None without such headers.

    Raises StatusError 400 for groups, a UID or extra values without a user.
    """
    extra: dict[str, list[str]] = {}
    for header, value in headers.items():
        if header.startswith(_EXTRA_PREFIX):
            extra.setdefault(unquote(header.removeprefix(_EXTRA_PREFIX)), []).extend(_values(value))
    user = RequestUser(
        username=_values(headers.get("impersonate-user", ""))[0],
        uid=_values(headers.get("impersonate-uid", ""))[0],
        groups=tuple(_values(headers["impersonate-group"])) if "impersonate-group" in headers else (),
        extra=extra,
    )
    if user.username:
        return user
    if user.uid or user.groups or extra:
        raise errors.bad_request(f"requested {_in_go(user)} without impersonating a user name")
    return None


def _values(header: str) -> list[str]:
    return header.split(HEADER_SEPARATOR)


def _in_go(user: RequestUser) -> str:
    """Return the user as Go prints it with `%#v`."""
    groups = f"[]string{{{', '.join(map(quote, user.groups))}}}" if user.groups else "[]string(nil)"
    extra = "map[string][]string(nil)"
    if user.extra:
        pairs = (
            f"{quote(key)}:[]string{{{', '.join(map(quote, values))}}}"
            for key, values in sorted(user.extra.items())
        )
        extra = f"map[string][]string{{{', '.join(pairs)}}}"
    return f'&user.DefaultInfo{{Name:"", UID:{quote(user.uid)}, Groups:{groups}, Extra:{extra}}}'


class Impersonation:
    """The modes of impersonation: four with a right for each verb, and the old one with a right for all."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer
        self._last: dict[str, _Mode] = {}
        """The mode that each user used last. It is tried first, and its error is the one that is reported."""

    def impersonate(self, target: RequestUser, request: AccessAttributes) -> RequestUser:
        """Return the user to act as. Raises StatusError 403 if the sender of the request may not."""
        sender = request.user
        first_error: errors.StatusError | None = None
        for mode in self._modes(sender):
            if not mode.applies(target, sender):
                continue
            try:
                user = self._check(mode, target, request)
            except errors.StatusError as error:
                first_error = first_error or error
                continue
            self._last[sender.username] = mode
            return user
        assert first_error is not None  # the last mode applies to every user
        raise first_error

    def _modes(self, sender: RequestUser) -> Iterator[_Mode]:
        last = self._last.get(sender.username)
        if last is not None:
            yield last
        yield from (mode for mode in _MODES if mode is not last)

    def _check(self, mode: _Mode, target: RequestUser, request: AccessAttributes) -> RequestUser:
        if mode.name:
            check(self._authorizer, _with_verb(request, f"impersonate-on:{mode.name}:{request.verb}"))
        return _Rights(self._authorizer, request.user, mode).check(target)


class _Mode(NamedTuple):
    name: str
    """Part of the verbs that the mode needs; empty for the old mode."""
    applies: Callable[[RequestUser, RequestUser], bool]
    """Takes the user to act as and the sender."""


class _Rights:
    """The rights of a sender to act as a user in one mode."""

    def __init__(self, authorizer: Authorizer, sender: RequestUser, mode: _Mode) -> None:
        self._authorizer = authorizer
        self._sender = sender
        self._mode = mode
        self._group = _AUTHENTICATION if mode.name else ""

    def check(self, target: RequestUser) -> RequestUser:
        groups = self._check_username(target)
        if target.uid:
            self._check("uids", target.uid, group=_AUTHENTICATION)
        if target.groups:
            self._check_groups(target.groups)
        if target.extra:
            self._check_extra(target.extra)
        if target.username == ANONYMOUS.username:
            added = _UNAUTHENTICATED
        else:
            added = "" if _UNAUTHENTICATED in groups else _AUTHENTICATED
        if added and added not in groups:
            groups = (*groups, added)
        return msgspec.structs.replace(target, groups=groups)

    def _check_username(self, target: RequestUser) -> tuple[str, ...]:
        """Check the right to the name, and return the groups of the user."""
        node, account = _node_name(target.username), split_account(target.username)
        if account is not None:
            namespace, name = account
            self._check("serviceaccounts", name, namespace=namespace)
            own = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
            return target.groups or own
        if self._mode.name and node:
            name = "*" if self._mode.name == "associated-node" else node
            self._check("nodes", name)
            return (_NODES,)
        self._check("users", target.username)
        return target.groups

    def _check_groups(self, groups: tuple[str, ...]) -> None:
        if self._mode.name:
            if "" in groups:
                raise self._denied("groups", "", "impersonating the empty string group is not allowed")
            if MASTERS in groups:
                raise self._denied("groups", MASTERS, "impersonating the system:masters group is not allowed")
            if len(groups) >= _MANY and self._may("groups", "*"):
                return
        for group in groups:
            self._check("groups", group)

    def _check_extra(self, extra: dict[str, list[str]]) -> None:
        if self._mode.name:
            for key, values in extra.items():
                self._validate_extra(key, values)
            many = len(extra) >= _MANY or sum(map(len, extra.values())) >= _MANY
            if many and self._may("userextras", "*", subresource="*", group=_AUTHENTICATION):
                return
        for key, values in extra.items():
            for value in values:
                self._check("userextras", value, subresource=key, group=_AUTHENTICATION)

    def _validate_extra(self, key: str, values: list[str]) -> None:
        problem = ""
        if not key:
            problem = "impersonating the empty string key in extra is not allowed"
        elif "" in values:
            problem = "impersonating the empty string value in extra is not allowed"
        elif "/" not in key:
            where = f'extra.key: Invalid value: {quote(key)}: must be a domain-prefixed path (such as "acme.io/foo")'
            problem = f"impersonating an invalid key in extra is not allowed: {where}"
        if problem:
            raise self._denied("userextras", "", problem)

    def _check(self, resource: str, name: str, **more: str) -> None:
        check(self._authorizer, self._attributes(resource, name, **more))

    def _may(self, resource: str, name: str, **more: str) -> bool:
        return self._authorizer.decide(self._attributes(resource, name, **more)).allowed

    def _denied(self, resource: str, name: str, why: str) -> errors.StatusError:
        group = _AUTHENTICATION if resource == "userextras" else self._group
        return errors.not_authorized(self._attributes(resource, name, group=group), why)

    def _attributes(
        self,
        resource: str,
        name: str,
        *,
        group: str | None = None,
        namespace: str = "",
        subresource: str = "",
    ) -> AccessAttributes:
        mode = self._mode.name
        return AccessAttributes(
            user=self._sender,
            verb=f"impersonate:{mode}" if mode else "impersonate",
            group=self._group if group is None else group,
            version="v1",
            resource=resource,
            subresource=subresource,
            namespace=namespace,
            name=name,
        )


def _with_verb(request: AccessAttributes, verb: str) -> AccessAttributes:
    return AccessAttributes(
        user=request.user,
        verb=verb,
        group=request.group,
        version=request.version,
        resource=request.resource,
        subresource=request.subresource,
        namespace=request.namespace,
        name=request.name,
        path=request.path,
    )


def _node_name(username: str) -> str:
    name = username.removeprefix(_NODE_PREFIX)
    return name if name != username and not names.dns1123_subdomain(name) else ""


def _names_only(target: RequestUser) -> bool:
    return not (target.uid or target.groups or target.extra)


def _is_own_node(target: RequestUser, sender: RequestUser) -> bool:
    node = _node_name(target.username)
    is_account = split_account(sender.username) is not None
    return bool(node) and _names_only(target) and is_account and sender.extra.get(_NODE_NAME) == [node]


_MODES = (
    _Mode("associated-node", _is_own_node),
    _Mode("arbitrary-node", lambda target, _: _names_only(target) and bool(_node_name(target.username))),
    _Mode(
        "serviceaccount",
        lambda target, _: _names_only(target) and split_account(target.username) is not None,
    ),
    _Mode(
        "user-info",
        lambda target, _: not _node_name(target.username) and split_account(target.username) is None,
    ),
    _Mode("", lambda target, sender: True),
)
