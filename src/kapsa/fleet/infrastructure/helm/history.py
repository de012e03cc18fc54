"""The revisions of a release, read from the Secrets that helm stores them in: no helm runs for that.

Metadata comes first: a release that a person keeps without a limit may have hundreds of revisions of a megabyte.
The content is read where it decides: the newest revisions, and the one that is deployed.
"""

import asyncio
import re
from collections.abc import Mapping
from typing import Any

from kapsa.adapters.errors import ExternalError
from kapsa.adapters.helm.release_secret import RELEASE_SECRET, HelmRelease, read_release
from kapsa.adapters.redaction import HIDDEN, printable, redact
from kapsa.fleet.domain.rollout.releases import HelmStatus, ReleaseRecord, ReleaseRef
from kapsa.runtime import Client, NotFound

__all__ = ["read_history", "secret_name"]

_OWN_LABELS = frozenset({"name", "owner", "status", "version", "createdAt", "modifiedAt"})
_NEWEST = 3
_DESCRIPTION_LIMIT = 16 * 1024
"""Longer than what is shown: values are hidden before a message is cut."""
_QUOTED_VALUE = re.compile(r'((?:Invalid|Unsupported|Duplicate) value: )("(?:[^"\\\n]|\\.)*"|.*?)(?=: |, |$)')
"""A value of the manifest in an error of the API server. It may come from a secret one."""
_MOST_READ = 6


def secret_name(release: ReleaseRef, revision: int) -> str:
    """Return the name of the Secret that stores a revision."""
    return f"sh.helm.release.v1.{release.name}.v{revision}"


async def read_history(client: Client, release: ReleaseRef) -> tuple[ReleaseRecord, ...]:
    """Return the revisions of a release, oldest first; none if it is not installed.

    Descriptions and versions are those of the newest revisions and of the deployed one. The others have none.
    """
    listed: dict[int, Mapping[str, Any]] = {}
    pages = client.pages(
        "v1/Secret",
        namespace=release.namespace,
        label_selector={"owner": "helm", "name": release.name},
        field_selector=f"type={RELEASE_SECRET}",
        metadata_only=True,
        limit=500,
    )
    async for page in pages:
        for secret in page.items:
            revision = _revision(release, secret["metadata"])
            if revision:
                listed[revision] = secret["metadata"]
    ordered = sorted(listed, reverse=True)
    deployed = [each for each in ordered if _labels(listed[each]).get("status") == HelmStatus.DEPLOYED]
    chosen = [*dict.fromkeys([*ordered[:_NEWEST], *deployed])][:_MOST_READ]
    read = await asyncio.gather(*(_read(client, release, each) for each in chosen))
    records = {each: _from_labels(each, listed[each]) for each in ordered}
    for revision, record in zip(chosen, read, strict=True):
        if record is None:
            del records[revision]  # deleted since it was listed
        elif isinstance(record, ReleaseRecord):
            records[revision] = record
    return tuple(records[each] for each in sorted(records))


async def _read(client: Client, release: ReleaseRef, revision: int) -> ReleaseRecord | bool | None:
    """Return a revision; None if it is gone, and False if it cannot be read."""
    try:
        secret = await client.get("v1/Secret", secret_name(release, revision), namespace=release.namespace)
        content = await asyncio.to_thread(read_release, secret)
    except NotFound:
        return None
    except ExternalError:
        return False
    return _record(revision, secret["metadata"], content)


def _record(revision: int, metadata: Mapping[str, Any], content: HelmRelease) -> ReleaseRecord:
    labels = _labels(metadata)
    return ReleaseRecord(
        revision=revision,
        status=_status(content.status),
        labels={key: value for key, value in labels.items() if key not in _OWN_LABELS},
        description=_shown(content.description),
        version=content.chart_version,
        uid=str(metadata.get("uid", "")),
        resource_version=str(metadata.get("resourceVersion", "")),
    )


def _shown(description: str) -> str:
    """Return the description in one line, without the values that the API server quotes."""
    plain = redact(" ".join(printable(description).split()))
    return _QUOTED_VALUE.sub(rf"\g<1>{HIDDEN}", plain)[:_DESCRIPTION_LIMIT]


def _from_labels(revision: int, metadata: Mapping[str, Any]) -> ReleaseRecord:
    labels = _labels(metadata)
    return ReleaseRecord(
        revision=revision,
        status=_status(labels.get("status", "")),
        labels={key: value for key, value in labels.items() if key not in _OWN_LABELS},
        uid=str(metadata.get("uid", "")),
        resource_version=str(metadata.get("resourceVersion", "")),
    )


def _status(word: str) -> HelmStatus:
    try:
        return HelmStatus(word)
    except ValueError:
        return HelmStatus.UNKNOWN


def _labels(metadata: Mapping[str, Any]) -> dict[str, str]:
    return {str(key): str(value) for key, value in (metadata.get("labels") or {}).items()}


def _revision(release: ReleaseRef, metadata: Mapping[str, Any]) -> int:
    """Return the number of a revision; 0 unless the name of the Secret is the one that helm gives it."""
    text = _labels(metadata).get("version", "")
    revision = int(text) if text.isdecimal() and len(text) < 10 else 0
    return revision if metadata.get("name") == secret_name(release, revision) else 0
