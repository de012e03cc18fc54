"""The objects that a kube-apiserver creates when it starts: a data file that tools/bootstrap collects from real ones."""

from __future__ import annotations

import gzip
from functools import cache, lru_cache
from pathlib import Path

import msgspec

__all__ = ["BootstrapObject", "Template", "aggregated_roles", "bootstrap_objects"]

DATA_FILE = Path(__file__).parents[1] / "data" / "bootstrap-1.36.json.gz"
_UID, _REVISION, _TIME, _PORT = b"@uid@", b"1000000007", b"@time@", b"1000000009"
_DEFAULT_PORT = b"6443"


class Template(msgspec.Struct, frozen=True):
    """The bytes of an object before its UID, between UID and revision, and after its revision."""

    start: bytes
    middle: bytes
    end: bytes


class BootstrapObject(msgspec.Struct, frozen=True):
    """An object as it is stored, except for its UID, revision and times."""

    group: str
    resource: str
    key: str
    namespace: str
    name: str
    labels: dict[str, str]
    body: str

    def template(self, now: str) -> Template:
        """Return the object's bytes with all times set."""
        body = self.body.encode().replace(_TIME, now.encode()).replace(_PORT, _DEFAULT_PORT)
        start, _, rest = body.partition(_UID)
        middle, _, end = rest.partition(_REVISION)
        return Template(start, middle, end)


class _Data(msgspec.Struct, frozen=True):
    objects: tuple[BootstrapObject, ...]
    aggregated: tuple[BootstrapObject, ...]


@cache
def _load() -> _Data:
    return msgspec.json.decode(gzip.decompress(DATA_FILE.read_bytes()), type=_Data)


@lru_cache(maxsize=4)
def bootstrap_objects(now: str) -> tuple[tuple[BootstrapObject, Template], ...]:
    """Return the objects that exist without controllers, in the order of their creation.

    The templates of one second are shared, because tests start many clusters at the same virtual time.
    """
    return tuple((each, each.template(now)) for each in _load().objects)


@lru_cache(maxsize=4)
def aggregated_roles(now: str) -> tuple[tuple[BootstrapObject, Template], ...]:
    """Return the ClusterRoles that aggregate others, with the rules that the controller writes."""
    return tuple((each, each.template(now)) for each in _load().aggregated)
